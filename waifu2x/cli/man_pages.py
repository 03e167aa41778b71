"""Makes man pages from the texts of helps: `python -m waifu2x.cli.man_pages man`. They lie in the
folder `man`, from which they go into wheels. A test compares the two."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from waifu2x.cli import cli
from waifu2x.cli.options import settings

_FILES = (
    ("~/.config/waifu2x-kernels/config.toml", "Settings, unless --config names another file."),
    ("~/.local/share/waifu2x-kernels/models", "Models that `waifu2x models import` has read."),
    ("~/.cache/waifu2x-kernels", "Parsed weights and compiled code; see `waifu2x cache`."),
)
_WIDTH = 64
"""Characters of a line of source: escaped, some take several."""
_EXIT_CODES = (
    ("0", "All done."),
    ("1", "At least one file failed."),
    ("2", "The command line is wrong."),
    ("130", "Interrupted."),
)


class _Roff(click.HelpFormatter):
    """Writes the man page of a help."""

    def __init__(self, heading: str = "DESCRIPTION", level: str = "SH") -> None:
        """`heading` is for the texts, `level` the macro for it; options come one level below."""
        super().__init__()
        self._heading = heading
        self._level = level

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        if self._level == "SH":
            self.write(".SH SYNOPSIS\n")
        self.write(f"\\fB{_text(prog)}\\fR {_text(args)}\n")

    def write_paragraph(self) -> None:
        """Writes nothing: paragraphs have their own macros."""

    def write_text(self, text: str) -> None:
        """Writes paragraphs; one that begins with \\b keeps its lines."""
        if self._level == "SH":
            self.write(f".SH {self._heading}\n")
        for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
            if number or self._level != "SH":
                self.write(".PP\n")
            first, *rest = paragraph.splitlines()
            if first.strip() == "\b":
                lines = "".join(f"{_line(each)}\n" for each in rest)
                self.write(f".RS 2\n.nf\n{lines}.fi\n.RE\n")
            else:
                self.write(_filled(paragraph))

    def write_heading(self, heading: str) -> None:
        shown = heading.upper() if self._level == "SH" else heading
        self.write(f'.{self._level} "{_text(shown)}"\n')

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write_heading(name)
        yield

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        self.write("".join(_item(term, meaning) for term, meaning in rows))


def pages() -> dict[str, str]:
    """Returns all pages by file name: the program's, and one for each command."""
    root = click.Context(cli, info_name="waifu2x")
    names = cli.list_commands(root)
    found = {"waifu2x.1": _page(cli, root, names)}
    for name in names:
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        found[f"waifu2x-{name}.1"] = _page(command, context, names)
    return found


def _page(command: click.Command, context: click.Context, names: Sequence[str]) -> str:
    name = context.command_path.replace(" ", "-")
    summary = command.get_short_help_str(200) if context.parent else (command.help or "")
    summary = summary.strip().partition("\n")[0].rstrip(".")
    roff = _Roff()
    roff.write(f'.TH {name.upper()} 1 "" waifu2x "waifu2x manual"\n')
    roff.write(f".SH NAME\n{name} \\- {_text(summary)}\n")
    command.format_help(context, roff)
    if isinstance(command, click.Group) and context.parent:
        for inner in command.list_commands(context):
            each = command.get_command(context, inner)
            if each is not None:
                roff.write(f'.SH "{_text(f"{context.command_path} {inner}".upper())}"\n')
                below = _Roff(level="SS")
                each.format_help(click.Context(each, info_name=inner, parent=context), below)
                roff.write(below.getvalue())
    if context.parent is None:
        variables = [("WAIFU2X_MODEL, WAIFU2X_SCALE, ...", "The options of these names.")]
        _list(roff, "ENVIRONMENT", [*variables, *settings.OTHER_VARIABLES.items()])
        _list(roff, "FILES", _FILES)
        _list(roff, "EXIT STATUS", _EXIT_CODES)
    others = ["waifu2x", *(f"waifu2x-{each}" for each in names)]
    shown = [each for each in others if each != name]
    ends = [",", *[","] * (len(shown) - 2), ""][-len(shown) :]
    roff.write(".SH SEE ALSO\n")
    for other, end in zip(shown, ends, strict=True):
        roff.write(f".BR {_text(other)} (1){end}\n")
    return roff.getvalue()


def _list(roff: _Roff, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    roff.write(f".SH {heading}\n")
    roff.write_dl(rows)


def _item(term: str, meaning: str) -> str:
    broken = _text(term).replace("|", "|\\:")  # long lists of words may go on in the next line
    return f".TP\n\\fB{broken}\\fR\n{_filled(meaning)}"


def _filled(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{_line(line)}\n" for line in lines)


def _line(text: str) -> str:
    """Escapes a line of text, which must not look like a macro."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return escaped.replace("'", "\\(aq").replace('"', "\\(dq")


def main() -> None:
    """Writes all pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
