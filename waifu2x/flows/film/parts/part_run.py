"""Stretches of a film that are to be made, counted in parts.

A part is a stretch of the film's own time. Whoever makes it finds it by seeking, and it comes out
the same whoever makes it.
"""

from __future__ import annotations

from pathlib import Path

from waifu2x.flows.film.frames.held import Duplicates
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.reading.selection import Selection, tick_of
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class PartRun:
    """Parts that follow each other and are missing."""

    first: int
    """Number of the first one."""
    until: int | None
    """Number of the one after the last; None: up to the end of the film."""
    before: str | None = None
    """A hash of the frame before the first one, if it is known; empty where there is none."""
    is_sought: bool = True
    """Whether the first one is sought in the film, or come to by decoding all that is before."""


@dataclass(frozen=True)
class FilmWork:
    """What all parts of a film have in common. It can be sent to other processes and machines."""

    source: Path
    folder: Path
    """Where the parts go."""
    shape: Shape
    selection: Selection
    part_ticks: int
    """How long a part is, in ticks of the film."""
    duplicates: Duplicates


def first_part(film: Film, selection: Selection, part_ticks: int) -> int:
    """The number of the part in which a selection begins."""
    return int(selection.start // (part_ticks * tick_of(film, selection.deinterlacing)))


def expected_parts(film: Film, work: FilmWork) -> int:
    """The number of the part after the last, by what the film says of itself; 0 if nothing."""
    seconds = film.seconds or 0.0
    if work.selection.end is not None:
        seconds = min(seconds, float(work.selection.end))
    return -int(-seconds // float(work.part_ticks * work.shape.tick))
