"""Places maps in one block of memory: two that are needed at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.symbols import example, larger
from waifu2x.system.lazy_dataclass import dataclass

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Span:
    """A number of bytes, and the steps between which they are needed."""

    first: int
    """The step that writes them first."""
    last: int
    """The last one that reads them, or writes them to no use."""
    size: int

    def meets(self, other: Span) -> bool:
        """Returns whether there is a step at which both are needed."""
        return self.first <= other.last and other.first <= self.last


def places(spans: Mapping[Name, Span], alignment: int) -> tuple[dict[Name, int], int]:
    """Returns the offset of each map, a multiple of `alignment`, and the bytes of the whole.

    Each is put at the lowest place that is free, in the order of two that takes less: large ones
    first, so that a chain takes about as much as its two largest neighbours, or as they are needed.
    Where sizes are symbols, what lies below what is decided by their examples, and is right for any
    sizes: each lies behind all that are below it and needed when it is.
    """
    sizes = {name: round_up(example(span.size), alignment) for name, span in spans.items()}
    orders = (
        sorted(sizes, key=lambda name: -sizes[name]),
        sorted(sizes, key=lambda name: (spans[name].first, -sizes[name])),
    )
    tried = [_starts(order, sizes, spans) for order in orders]
    totals = [max((starts[n] + sizes[n] for n in starts), default=0) for starts in tried]
    below = _below(tried[totals.index(min(totals))], sizes, spans)
    ends: dict[Name, int] = {}
    offsets: dict[Name, int] = {}
    total = 0
    for name, others in below.items():
        offset = 0
        for other in others:
            offset = larger(offset, ends[other])
        offsets[name] = offset
        end = offset + spans[name].size
        ends[name] = round_up(end, alignment)
        total = larger(total, end)
    return offsets, total


def _starts(
    order: Sequence[Name], sizes: Mapping[Name, int], spans: Mapping[Name, Span]
) -> dict[Name, int]:
    """Returns the lowest free place of each, taken in an order."""
    starts: dict[Name, int] = {}
    for name in order:
        start = 0
        met = [other for other in starts if spans[name].meets(spans[other])]
        for other in sorted(met, key=starts.__getitem__):
            if start + sizes[name] <= starts[other]:
                break
            start = max(start, starts[other] + sizes[other])
        starts[name] = start
    return starts


def _below(
    starts: Mapping[Name, int], sizes: Mapping[Name, int], spans: Mapping[Name, Span]
) -> dict[Name, list[Name]]:
    """Returns, for each in an order in which they can be placed, those that lie right below it."""
    found: dict[Name, list[Name]] = {}
    for name in sorted(sizes, key=lambda name: (starts[name], sizes[name])):
        lower = [other for other in found if spans[name].meets(spans[other])]
        # Those below one of the others are behind it anyway.
        covered = {far for other in lower for far in found[other]}
        found[name] = [other for other in lower if other not in covered]
    return found
