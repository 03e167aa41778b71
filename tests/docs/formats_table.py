"""The tables of docs/reference/formats.md, made from the table of formats.

    python -m tests.docs.formats_table

writes them into the page; a test holds the page to them.
"""

from __future__ import annotations

import re
from typing import get_args

from tests.docs.documents import ROOT
from waifu2x.formats import table
from waifu2x.formats.table import Format

PAGE = ROOT / "docs/reference/formats.md"
_TABLE = r"(?:^\|.*\|\n)+"


def formats() -> str:
    """Draws the table of the parts that a result of each format holds."""
    rows = [
        ("format", "extensions", "bits a sample", "transparency", "metadata", "several pictures"),
        *map(_row, table.FORMATS),
    ]
    return _drawn(rows)


def parts() -> str:
    """Draws the table of the parts that no result holds."""
    rows: list[tuple[str, ...]] = [("part", "found in", "a run says")]
    for name, part in table.PARTS.items():
        rows.append((name, ", ".join(part.formats), part.notice.format(count="N")))
    return _drawn(rows)


def _row(form: Format) -> tuple[str, ...]:
    name = form.name + ("¹" if form.plugin else "")
    extensions = ", ".join(form.extensions)
    if not form.writable:
        return name, extensions, "read only", "", "", ""
    bits = ", ".join("float" if depth == 32 else str(depth) for depth in form.depths)
    if form.colours:
        bits = f"{form.colours} colours"
    alpha = "no" if not form.alpha else "on or off" if form.colours else "yes"
    kept = ", ".join(kind for kind in get_args(table.Kind) if kind in form.keeps)
    return name, extensions, bits, alpha, kept or "none", form.frames or "no"


def _drawn(rows: list[tuple[str, ...]]) -> str:
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "".join(re.sub(" +", " ", f"| {' | '.join(cells)} |") + "\n" for cells in lines)


def page(text: str) -> str:
    """Returns the page with these tables in the place of its first two."""
    made = iter((formats(), parts()))
    return re.sub(_TABLE, lambda found: next(made), text, count=2, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
