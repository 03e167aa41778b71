"""A job, as it is stored and as clients see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

from waifu2x.errors import Sentence
from waifu2x.serve.job_settings import JobSettings
from waifu2x.system.lazy_dataclass import dataclass

Kind = Literal["picture", "animation", "archive", "film"]
State = Literal["waiting", "working", "done", "failed", "cancelled"]
STATES: tuple[State, ...] = get_args(State)
FINISHED: tuple[State, ...] = ("done", "failed", "cancelled")
COMMAND_LINE = "use the command line, whose options can do more"
"""The page's own remedy for an error that options would remedy."""
_OPTION = re.compile(r"(?<![\w-])--?[a-z]|`")
"""Marks a remedy of the command line."""
_MOST = 20
"""Notices of a kind that a job keeps: a stranger's file may cause any number."""
_LONGEST = 400
"""Characters of a notice that are kept."""


@dataclass(frozen=True)
class SourceInfo:
    """The header of a file."""

    width: int
    height: int
    """Pixels of the first picture, upright."""
    bytes: int
    format: str
    """Its name in the table of formats; of an archive or a film, its extension."""
    pages: int
    """The number of pictures, of a film its frames; 0 if it is not known."""


@dataclass(frozen=True)
class ResultInfo:
    """The file that was made."""

    name: str
    """The name that it is downloaded under."""
    width: int
    height: int
    """Pixels of the first picture."""
    bytes: int
    format: str
    """Its extension."""
    seconds: float
    """Since its turn came, without compiling."""


@dataclass(frozen=True)
class Remarks:
    """Sentences about a job that people should know; most begin with the file's name."""

    lost: Sequence[str] = ()
    """Losses of the result: its sound, or what could not be read."""
    notices: Sequence[str] = ()
    """Other changes and decisions."""


def on_page(told: str, instead: str = "") -> str:
    """Returns a sentence for the page, where `instead` replaces a remedy by options."""
    found = Sentence(told)
    return Sentence(found.problem, instead if _OPTION.search(found.remedy) else found.remedy)


def few(told: Iterable[str]) -> tuple[str, ...]:
    """Returns notices for the page, each once, not too many and not too long."""
    found = list(dict.fromkeys(map(on_page, told)))
    more = len(found) - _MOST
    kept = [one if len(one) <= _LONGEST else f"{one[:_LONGEST]}…" for one in found[:_MOST]]
    return (*kept, f"There are {more} more notices.") if more > 0 else tuple(kept)


@dataclass(frozen=True)
class JobRecord:
    """A file that was sent, and its state."""

    id: str
    number: int
    """Its place in the list."""
    turn: int
    """Its place in the queue: the least comes first."""
    version: int
    kind: Kind
    state: State
    name: str
    """The file's name as it was sent: only to be shown."""
    settings: JobSettings
    created: float
    """Seconds since 1970."""
    attempt: int = 0
    """How often it was retried."""
    source: SourceInfo | None = None
    result: ResultInfo | None = None
    error: str | None = None
    size: int = 0
    """Bytes of its files on the disk."""
    remarks: Remarks | None = None


@dataclass(frozen=True)
class Progress:
    """How far a job under way is."""

    part: float
    """0 to 1."""
    rate: float | None
    """Megapixels of the result a second."""
    seconds_left: float | None
    version: int


def shown(
    record: JobRecord,
    progress: Progress | None,
    position: int | None,
    preparing: float | None = None,
) -> dict[str, Any]:
    """Returns a job as clients see it. `preparing` is for how many seconds networks have been
    compiled, while it waits for them."""
    settings, remarks = record.settings, record.remarks or Remarks()
    done = 1.0 if record.state == "done" else 0.0
    return {
        "id": record.id,
        "number": record.number,
        "name": record.name,
        "kind": record.kind,
        "state": record.state,
        "position": position,
        "source": fields(record.source),
        "settings": fields(settings),
        "progress": round(progress.part, 4) if progress else done,
        "preparing": None if preparing is None else round(preparing, 1),
        "rate": progress.rate if progress else None,
        "seconds_left": progress.seconds_left if progress else None,
        "error": record.error,
        "result": fields(record.result),
        "lost": list(remarks.lost),
        "notices": list(remarks.notices),
        "command": settings.command(record.name, is_film=record.kind == "film"),
        "created": record.created,
        "version": max(record.version, progress.version if progress else 0),
    }


def fields(value: SourceInfo | ResultInfo | Remarks | JobSettings | None) -> dict[str, Any] | None:
    """Returns the fields of a value by their names."""
    return None if value is None else {name: getattr(value, name) for name in _names(type(value))}


def _names(kind: type) -> tuple[str, ...]:
    return tuple(kind.__annotations__)
