"""Archives that ask for much are refused in a sentence, or done in bounded time and memory."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.helpers import greedy_archives
from tests.helpers.contents import identity_models


@pytest.mark.long
def test_refused_or_done_within_bounds(tmp_path: Path) -> None:
    model, path = identity_models(tmp_path / "identity"), tmp_path / "book.cbz"
    count, beyond = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of names that are there twice
        for name, content in greedy_archives.archives():
            path.write_bytes(content)
            said, seconds, mebibytes = greedy_archives.run(path, model)
            is_said = said.startswith(("made", "ImageError: ", "OutputError: "))
            if not is_said or seconds >= 10 or mebibytes >= 1024:
                beyond.append((name, said, seconds, mebibytes))
            for made in tmp_path.glob("book.cbz.*"):
                made.unlink()
            assert {left.name for left in tmp_path.iterdir()} == {"identity", "book.cbz"}
            count += 1
    assert count >= 100
    assert not beyond
