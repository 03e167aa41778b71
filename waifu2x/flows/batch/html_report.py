"""Writes an HTML report: failures, then each picture before and after, by name.

It is one file that needs no network. Its content security policy allows only its own style and
script, by their digests, whatever names files have.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

from waifu2x.errors import OutputError
from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.flows.upscaling import Upscaled
from waifu2x.system.files import explained, open_regular, writing

if TYPE_CHECKING:
    from waifu2x.formats.preview import Preview

_GENERATOR = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="waifu2x batch">'
)
_PARTS = Path(__file__).parent / "report_page"
_SIDES = ((500, 480), (2000, 240))
"""Pictures, and the side of their previews up to that number: reports stay near 100 MB."""
_LEAST_SIDE = 128
_VIEW = """\
<dialog id="view" aria-labelledby="title">
<div class="bar"><h2 id="title"></h2>
<button type="button" id="beside" aria-pressed="false">Side by side</button>
<button type="button" id="previous">Previous</button>
<button type="button" id="next">Next</button>
<button type="button" id="close">Close</button></div>
<div id="stage" class="stage sliding"></div>
<input type="range" id="slider" class="slider" min="0" max="100" step="0.5" value="50"
 aria-label="Where before ends and after begins" autofocus>
<p class="faint">A detail, pixel for pixel of the result; before: enlarged by Lanczos.</p>
</dialog>
"""

Settings = Sequence[tuple[str, str]]
"""Names and values."""


def preview_side(pictures: int | None) -> int:
    """Returns the side of previews in a report on `pictures`; None: an unknown number."""
    if pictures is None:
        return _SIDES[0][1]
    return next((side for most, side in _SIDES if pictures <= most), _LEAST_SIDE)


class HtmlReport:
    """A report that grows as pictures are done. Until it is finished it is a file without a name:
    it takes no memory, and a killed run leaves nothing."""

    def __init__(self, path: Path, title: str, settings: Settings = ()) -> None:
        """Raises OutputError if the file cannot be written, or is no report."""
        self._path = path
        self._title = title
        self._settings = settings
        with explained(OutputError, f"{path}: cannot write"):
            if path.exists() and not _is_report(path):
                raise OutputError(
                    f"{path}: it exists already, and is no report", "choose another name"
                )
            self._figures = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        self._places: list[tuple[list[str | int], int, int]] = []
        """Sort key of each picture, and its start and size in the file."""
        self._error: OSError | None = None

    def add(self, outcome: Outcome) -> None:
        """Adds a finished picture, or the pages of an archive."""
        if self._error is not None or (made := outcome.made) is None:
            return
        try:
            for number, preview in enumerate(made.previews or [None]):
                figure = self._figure(outcome.job, made, preview).encode()
                key = [*_natural(str(outcome.job.source)), number]
                self._places.append((key, self._figures.tell(), len(figure)))
                self._figures.write(figure)
        except OSError as error:
            self._error = error  # the pictures go on

    def finish(self, summary: Iterable[str], failed: Iterable[Outcome]) -> None:
        """Writes the page, with lines for its top, and failures. Raises OutputError."""
        style, script = ((_PARTS / name).read_text("utf-8") for name in ("page.css", "page.js"))
        with (
            explained(OutputError, f"{self._path}: cannot write"),
            self._figures,
            writing(self._path) as file,
        ):
            if self._error is not None:
                raise self._error
            file.write(self._top(style, script, summary, failed).encode())
            for _, start, size in sorted(self._places):
                self._figures.seek(start)
                file.write(self._figures.read(size))
            end = f"</section></main>\n{_VIEW}<script>{script}</script></body></html>\n"
            file.write(end.encode())

    def _top(
        self, style: str, script: str, summary: Iterable[str], failed: Iterable[Outcome]
    ) -> str:
        title = _text(self._title)
        policy = (
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
            f" style-src '{_digest(style)}'; script-src '{_digest(script)}'"
        )
        lines = [
            f'{_GENERATOR}<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{style}</style></head><body><main>",
            f"<header><h1>{title}</h1>",
            *(f"<p>{_text(line)}</p>" for line in summary),
        ]
        if self._settings:
            lines.append('<details class="settings"><summary>Settings</summary><dl>')
            lines += [f"<dt>{_text(n)}</dt><dd>{_text(value)}</dd>" for n, value in self._settings]
            lines.append("</dl></details>")
        lines.append("</header>")
        rows = [
            f'<li>{self._link(each.job.source)}: <span class="why">{_text(_why(each))}</span></li>'
            for each in sorted(failed, key=lambda each: _natural(str(each.job.source)))
        ]
        if rows:
            lines += ["<h2>Failed</h2>", '<ul class="failed">', *rows, "</ul>"]
        return "\n".join(
            [
                *lines,
                "<h2>Done</h2>",
                '<div class="find" id="find" hidden><label for="search">Find by name</label>',
                '<input type="search" id="search"><span class="faint" id="found" role="status">'
                "</span></div>",
                '<section id="pictures" aria-label="Pictures">',
                "",
            ]
        )

    def _figure(self, job: Job, made: Upscaled, preview: Preview | None) -> str:
        name = job.source.name
        height, width, shown = made.height, made.width, ""
        if preview is not None:
            name = preview.name or name
            height, width = preview.height, preview.width
            shown = _pictures(name, preview)
        page = f'<bdi class="name">{_text(name)}</bdi> in ' if preview and preview.name else ""
        kept = ", as it is" if made.copied else ""
        seconds = "" if kept or page else f", {made.seconds:.2f} s"
        frames = "" if made.film is None else f", {made.film['frames']} frames"
        again = ", computed again in fp32" if made.recomputed and not page else ""
        linked = "" if page else "name"
        return (
            f"<figure>{shown}<figcaption>{page}{self._link(job.source, linked)} &rarr; "
            f'{self._link(job.target)}<br><span class="faint">{width}x{height}'
            f"{frames}{kept}{seconds}{again}</span></figcaption></figure>\n"
        )

    def _link(self, path: Path, kind: str = "") -> str:
        """Returns the name of a file as a link relative to the page."""
        name = f'<bdi class="{kind}">{_text(str(path))}</bdi>' if kind else _text(str(path))
        try:
            relative = Path(os.path.relpath(path, self._path.parent)).as_posix()
        except ValueError:  # on another drive
            return name
        # A quoted colon cannot begin a scheme.
        return f'<a href="{quote_from_bytes(os.fsencode(relative))}">{name}</a>'


def _pictures(name: str, preview: Preview) -> str:
    label = _text(name)
    if not preview.after:
        return _image(preview.thumbnail, label, "thumbnail alone")
    both = (("before", preview.before), ("after", preview.after))
    pair = "".join(f"<div>{word}{_image(data, f'{label}, {word}')}</div>" for word, data in both)
    thumbnail = _image(preview.thumbnail, f"Compare {label}", "thumbnail")
    return f'<details><summary>{thumbnail}</summary><div class="pair">{pair}</div></details>'


def _image(data: bytes, text: str, kind: str = "") -> str:
    # Browsers neither lay out nor decode what is not in sight yet.
    return (
        f'<img loading="lazy" decoding="async" alt="{text}" class="{kind}"'
        f' src="data:image/jpeg;base64,{base64.b64encode(data).decode()}">'
    )


def _why(outcome: Outcome) -> str:
    return outcome.error.removeprefix(f"{outcome.job.source}: ")


def _natural(name: str) -> list[str | int]:
    """Returns a sort key by which page 2 comes before page 10."""
    parts = re.split(r"([0-9]{1,18})", name.casefold())
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _digest(text: str) -> str:
    """Returns the name of a script or style in a security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _is_report(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(len(_GENERATOR)) == _GENERATOR.encode()


def _text(text: str) -> str:
    """Returns text as HTML; bytes that are no characters become escapes."""
    return escape(text.encode("utf-8", "backslashreplace").decode())
