"""Where maps lie in one block of memory: two that are needed at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from waifu2x.system.lazy_dataclass import dataclass

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Span:
    """From when to when so many bytes are needed."""

    first: int
    """The step that writes them first."""
    last: int
    """The last one that reads them, or writes them to no use."""
    size: int

    def meets(self, other: Span) -> bool:
        """Whether there is a step at which both are needed."""
        return self.first <= other.last and other.first <= self.last


def places(spans: Mapping[Name, Span], alignment: int) -> tuple[dict[Name, int], int]:
    """The offset of each, a multiple of `alignment`, and the bytes of the whole.

    Large ones first, each at the lowest place that is free: a chain takes about as much as its two
    largest neighbours.
    """
    offsets: dict[Name, int] = {}
    total = 0
    for name, span in sorted(spans.items(), key=lambda item: -item[1].size):
        neighbours = sorted(
            (offsets[other], offsets[other] + spans[other].size)
            for other in offsets
            if span.meets(spans[other])
        )
        offset = 0
        for start, stop in neighbours:
            if offset + span.size <= start:
                break
            offset = max(offset, -(-stop // alignment) * alignment)
        offsets[name] = offset
        total = max(total, offset + span.size)
    return offsets, total
