"""What MkDocs does to a page before it is rendered: help texts stand where a comment asks for one.

`<!-- help: batch -->` becomes the text of `waifu2x batch --help`; without a name it is that of
`waifu2x` itself.
"""

from __future__ import annotations

import re
from typing import Any

import click

from waifu2x.cli import cli

WIDTH = 88


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's Markdown with the help texts in it. MkDocs calls this for each page."""
    return re.sub(r"<!-- help(?:: ([\w ]+))? -->", lambda found: _block(found[1] or ""), markdown)


def _block(words: str) -> str:
    return f"```text\n{help_of(words.split())}\n```"


def help_of(words: list[str]) -> str:
    """The help text of a command, as a terminal of 88 columns shows it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="waifu2x", max_content_width=WIDTH, terminal_width=WIDTH)
    for word in words:
        assert isinstance(command, click.Group), words
        found = command.get_command(context, word)
        assert found is not None, words
        command = found
        context = click.Context(
            command, context, word, max_content_width=WIDTH, terminal_width=WIDTH
        )
    return command.get_help(context)
