"""Links of the documents lead somewhere; those to other hosts are listed, not fetched."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.docs.documents import PAGES, ROOT, anchors, links

HOSTS = {
    "docs.astral.sh",
    "docs.dask.org",
    "filesystem-spec.readthedocs.io",
    "github.com",
    "pipx.pypa.io",
}
"""Other hosts that the documents may link to."""


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if "://" in link:
            parts = urlsplit(link)
            assert parts.scheme == "https", link
            assert parts.hostname in HOSTS, link
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.resolve().relative_to(ROOT).as_posix()), link
