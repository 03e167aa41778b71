"""Makes sentences of the command line fit for the page."""

from __future__ import annotations

import re
from collections.abc import Iterable

from waifu2x.errors import printable

_MOST = 20
"""Sentences of a kind that a job keeps: a stranger's file may cause any number."""
_LONGEST = 400
"""Characters of a sentence that are kept."""
_OPTION = r"(?<!\w)--(?!max-)[a-z]"
"""An option that the page has not; --max-pixels and --max-bytes are options of its server."""
_HINT = re.compile(rf" \([^()]*{_OPTION}[^()]*\)")
_REMEDY = re.compile(
    rf": (?:(?:begin|choose|do|give|leave|make|use)\b[^:`]*)?{_OPTION}[^:]*$"
)  # fmt: skip
_MODEL = re.compile(r"(?<!\w)-m (?=\w)")
_STRETCH = " between --start and --end"
"""The page makes whole films."""


def notice(sentence: str) -> str:
    """Returns a notice without remedies that need options of the command line."""
    return _plain(_REMEDY.sub("", sentence))


def error(sentence: str) -> str:
    """Returns an error with a remedy that works from the page, in place of options."""
    return _plain(_REMEDY.sub(": use the command line, whose options can do more", sentence))


def few(sentences: Iterable[str]) -> tuple[str, ...]:
    """Returns notices, each once, not too many and not too long."""
    found = list(dict.fromkeys(notice(one) for one in sentences))
    more = len(found) - _MOST
    kept = [one if len(one) <= _LONGEST else f"{one[:_LONGEST]}…" for one in found[:_MOST]]
    return (*kept, f"There are {more} more notices.") if more > 0 else tuple(kept)


def _plain(sentence: str) -> str:
    told = _MODEL.sub("the model ", _HINT.sub("", sentence).replace(_STRETCH, ""))
    return printable(told)
