"""The documents and what they hold: fenced blocks, commands, headings and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "models/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]

_OPENING = re.compile(r" *```([\w-]*)$")
_NOT_RUN = re.compile(r" *<!-- not run: (.+) -->$")
_FILE = re.compile(r" *<!-- file: ([\w.-]+) -->$")
_TEST_COMMAND = "<!-- test command -->"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Number of the line of its opening fence."""
    language: str
    text: str
    not_run: str | None
    """Why no test runs it, as the comment `<!-- not run: REASON -->` before it says."""
    file: str | None = None
    """The file that it is the content of, as the comment `<!-- file: NAME -->` before it says."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    before = ""
    opened: tuple[int, str, str | None, str | None] | None = None
    lines: list[str] = []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if opened is not None:
            if line.strip() == "```":
                first, language, reason, file = opened
                yield Block(page, first, language, "\n".join(lines) + "\n", reason, file)
                opened, lines, before = None, [], ""
            else:
                lines.append(line)
        elif found := _OPENING.match(line):
            comment = _NOT_RUN.match(before)
            not_run = comment[1] if comment else None
            if before == _TEST_COMMAND:
                not_run = "the test command"
            name = _FILE.match(before)
            opened = number, found[1], not_run, name[1] if name else None
        elif line.strip():
            before = line
    assert opened is None, f"{page}: a block is not closed"


def text_of(page: str) -> str:
    """The page without its fenced blocks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands_in(page: str) -> Iterator[tuple[str, list[str]]]:
    """Where each `waifu2x` command of a page stands, in blocks and in running text, and its
    arguments."""
    for block in blocks(page):
        if block.language == "sh":
            for arguments in _commands(block.text):
                yield str(block), arguments
    for span in re.findall(r"`(waifu2x [^`]+)`", text_of(page)):
        for arguments in _commands(span):
            yield f"{page}: `{span}`", arguments


def _commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found: list[str] | None = None
        skip = False
        for token in (*lexer, ";"):
            if skip:  # the file of a redirection
                skip = False
            elif re.fullmatch(r"[;|&()]+", token):
                if found is not None:
                    yield found
                found = None
            elif re.fullmatch(r"[<>]+&?", token):
                skip = True
            elif found is not None:
                found.append(token)
            elif token.rpartition("/")[2] == "waifu2x":
                found = []


def anchors(page: str) -> set[str]:
    """The names by which links reach the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: str) -> Iterator[str]:
    """The targets of a page's links and pictures."""
    text = re.sub(r"`[^`\n]*`", "", text_of(page))
    yield from re.findall(r"\]\(([^)\s]+)\)", text)
    yield from re.findall(r"<(https?://[^>]+)>", text)
    yield from re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
