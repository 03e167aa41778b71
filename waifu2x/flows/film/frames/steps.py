"""What passes through the flow of a film: its frames, each with its place in a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.reading.client import DecodedFrame

Planes = Sequence[NDArray[Any]]
"""The samples of a frame: (rows, columns) of each plane, uint8, or uint16 above 8 bits."""


class PartBegin(NamedTuple):
    """What is known of a part with its first frame."""

    before: str
    """A hash of the frame before it; empty for the first part that has frames."""
    is_sought: bool


class PartEnd(NamedTuple):
    """What is known of a part with its last frame."""

    last: str
    """A hash of that frame."""
    following: int | None
    """The time of the frame after it, in ticks; None at the end of the film."""
    damaged: int
    moved: int
    is_short: bool


@dataclass(frozen=True, eq=False)
class Step:
    """A frame of the film that is made."""

    part: int
    """The number of its part."""
    frame: DecodedFrame
    is_held: bool
    """Whether it shows what the one before shows, whose result is used again."""
    begin: PartBegin | None
    """None: it is not the first of its part."""
    end: PartEnd | None
    """None: it is not the last."""


@dataclass(frozen=True, eq=False)
class EnlargedFrame:
    """A frame of the film that is made, enlarged."""

    step: Step
    planes: Planes | None
    """None: as the one before."""
