"""What MkDocs does to a page before it is rendered: help texts stand where a comment asks for one.

`<!-- help: batch -->` becomes what `waifu2x batch --help` prints; without a name it is what
`waifu2x --help` prints.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from waifu2x.cli import cli

WIDTH = 88


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's Markdown with the help texts in it. MkDocs calls this for each page."""
    return re.sub(r"<!-- help(?:: ([\w ]+))? -->", lambda found: _block(found[1] or ""), markdown)


def _block(words: str) -> str:
    return f"```text\n{help_of(words.split())}\n```"


def help_of(words: list[str]) -> str:
    """What a command's `--help` prints, on a terminal of 88 columns."""
    printed = StringIO()
    with redirect_stdout(printed):
        cli.main(
            [*words, "--help"],
            prog_name="waifu2x",
            standalone_mode=False,
            terminal_width=WIDTH,
            max_content_width=WIDTH,
        )
    return printed.getvalue().rstrip()
