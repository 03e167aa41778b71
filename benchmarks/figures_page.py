"""Makes one page of the figures of many machines.

    python benchmarks/figures_page.py FILE.json... > page.html

The files are what `waifu2x bench --submit` writes, sent by anybody: each is checked, and one that
is no such file is named on stderr and left out. docs/reference/figures.md describes them. Machines
come in the order of the time of the first network that all have; times of networks in milliseconds.
"""

from __future__ import annotations

import html
import json
import math
import sys
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 16
_MOST_TEXT = 200
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>waifu2x on many machines</title>
<style>body { font: 1em sans-serif } td, th { padding: .2em .6em; text-align: right }
td:first-child, th:first-child { text-align: left }</style>
"""


class UnusableError(Exception):
    """Says why a file is not shown."""


def read(path: Path) -> dict[str, Any]:
    """Returns the checked figures of a file: texts are short, numbers finite and positive. Raises
    UnusableError."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UnusableError("it is too large")
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["waifu2x_figures"] != 1:
            raise UnusableError("its version is not 1")
        width, height = map(_number, found["size"])
        row: dict[str, Any] = {
            "device": _text(found["device"]["name"]),
            "detail": _text(found["device"]["detail"]),
            "backend": _text(found["device"]["backend"]),
            "program": f"{_text(found['program'])}, {_text(found['date'])}",
            "size": f"{width:.0f}x{height:.0f}",
            "cores": _number(found["machine"]["cores"]),
            "precision": _text(found["precision"]),
            "figures": {_text(one["model"]): _number(one["ms"]) for one in found["networks"]},
        }
        row["figures"]["one picture, s"] = _number(found["picture"]["seconds"])
        folder = found["folder"]
        row["figures"]["pictures/s"] = _number(folder["pictures"]) / _number(folder["seconds"])
        if film := found.get("film"):
            row["figures"]["frames/s"] = _number(film["frames"]) / _number(film["seconds"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise UnusableError(f"it is no file of figures ({type(error).__name__})") from error
    return row


def _text(found: object) -> str:
    if not isinstance(found, str) or len(found) > _MOST_TEXT or not found.isprintable():
        raise TypeError("no short text")
    return found


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError("no number")
    if not (math.isfinite(found) and 0 < found < 1e9):
        raise ValueError("not a possible number")
    return float(found)


def page(rows: list[dict[str, Any]]) -> str:
    """Returns a page with a table for each size of picture."""
    made = [_HEAD]
    for size in sorted({row["size"] for row in rows}):
        own = [row for row in rows if row["size"] == size]
        names = list(dict.fromkeys(name for row in own for name in row["figures"]))
        common = [name for name in names if all(name in row["figures"] for row in own)]
        own.sort(key=lambda row: row["figures"][common[0]])
        titles = ["device", "cores", "precision", *names, "version"]
        made.append(f"<h2>Pictures of {size}, enlarged to twice the size</h2>\n<table>\n")
        made.append(_line("th", titles))
        for row in own:
            figures = [_shown(row["figures"].get(name)) for name in names]
            device = f"{row['device']} ({row['backend']}: {row['detail']})"
            cells = [device, f"{row['cores']:.0f}", row["precision"], *figures, row["program"]]
            made.append(_line("td", cells))
        made.append("</table>\n")
    return "".join(made)


def _shown(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3g}"


def _line(kind: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>\n"


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if a file was left out."""
    rows, code = [], 0
    for name in arguments:
        try:
            rows.append(read(Path(name)))
        except UnusableError as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
    print(page(rows), end="")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
