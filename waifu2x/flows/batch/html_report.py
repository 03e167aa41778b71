"""Writes an HTML report: what failed, then each picture before and after."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import quote_from_bytes

from waifu2x.errors import OutputError
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.preview import SIDE
from waifu2x.system.files import reason, writing

# Thumbnails are part of the page, and no script runs in it, whatever files are called. Browsers
# neither lay out nor decode what is not in sight yet, so ten thousand pictures open at once.
_HEAD = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="waifu2x batch">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>%s</title>
<style>
:root {{ color-scheme: light dark; font: 14px/1.4 system-ui, sans-serif }}
body {{ margin: 1.5em; overflow-wrap: anywhere }}
section {{ display: flex; flex-wrap: wrap; gap: 1em }}
figure {{ margin: 0; width: {2 * SIDE + 8}px; content-visibility: auto;
 contain-intrinsic-size: {2 * SIDE + 8}px {SIDE + 44}px }}
img {{ width: {SIDE}px; height: {SIDE}px; object-fit: contain; background: #8884 }}
figcaption {{ font-size: 12px }}
.failed b {{ color: #c33 }}
</style></head><body>
"""
_GENERATOR = _HEAD.partition("\n<meta")[0].encode()
"""The first bytes of every report."""


class HtmlReport:
    """A report that grows as pictures are done.

    Until it is finished it is a file without a name: it takes no memory, and of a run that is
    killed nothing stays.
    """

    def __init__(self, path: Path, title: str) -> None:
        """Raises OutputError if the page cannot be written there, or something else is there."""
        self._path = path
        self._title = title
        try:
            if path.exists() and not _is_report(path):
                raise OutputError(f"{path}: exists already, and is no report: choose another name")
            self._rows = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        except OSError as error:
            raise OutputError(f"{path}: cannot write: {reason(error)}") from error
        self._error: OSError | None = None

    def add(self, outcome: Outcome) -> None:
        """Adds a picture that is done."""
        if self._error is None and outcome.status in ("done", "copied"):
            try:
                self._rows.write(self._row(outcome).encode())
            except OSError as error:
                self._error = error  # the pictures are worth more

    def finish(self, summary: Iterable[str], failed: Iterable[Outcome]) -> None:
        """Writes the page, with lines for its top, and what failed.

        Raises OutputError if it cannot be written.
        """
        try:
            with self._rows, writing(self._path) as file:
                if self._error is not None:
                    raise self._error
                self._rows.seek(0)
                file.write(self._top(summary, failed).encode())
                shutil.copyfileobj(self._rows, file)
                file.write(b"</section></body></html>\n")
        except OSError as error:
            raise OutputError(f"{self._path}: cannot write: {reason(error)}") from error

    def _top(self, summary: Iterable[str], failed: Iterable[Outcome]) -> str:
        title = _text(self._title)
        lines = [_HEAD % title, f"<h1>{title}</h1>", *(f"<p>{_text(line)}</p>" for line in summary)]
        rows = [
            f"<li><b>{self._link(each.job.source)}</b> {_text(each.error)}</li>" for each in failed
        ]
        if rows:
            lines += ["<h2>Failed</h2>", '<ul class="failed">', *rows, "</ul>"]
        return "\n".join([*lines, "<h2>Done</h2>", "<section>", ""])

    def _row(self, outcome: Outcome) -> str:
        images = "".join(
            '<img loading="lazy" decoding="async" alt="" '
            f'src="data:image/jpeg;base64,{base64.b64encode(data).decode()}"> '
            for data in outcome.previews
        )
        kept = ", as it is" if outcome.status == "copied" else f", {outcome.seconds:.2f} s"
        return (
            f"<figure>{images}<figcaption>{self._link(outcome.job.source)} &rarr; "
            f"{self._link(outcome.job.target)}<br>"
            f"{outcome.width}x{outcome.height}{kept}</figcaption></figure>\n"
        )

    def _link(self, path: Path) -> str:
        """A file's name, which leads to it from where the page is."""
        try:
            relative = Path(os.path.relpath(path, self._path.parent)).as_posix()
        except ValueError:  # on another drive
            return _text(str(path))
        # Also what would be a scheme: quoted, a colon is none.
        return f'<a href="{quote_from_bytes(os.fsencode(relative))}">{_text(str(path))}</a>'


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_GENERATOR)) == _GENERATOR


def _text(text: str) -> str:
    """Text as HTML. What is no character, as bytes in names may be, is shown as an escape."""
    return escape(text.encode("utf-8", "backslashreplace").decode())
