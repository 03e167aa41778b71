"""Places maps in one block of memory, so that maps alive at the same step do not overlap."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.plan.symbols import example, larger
from waifu2x.system.lazy_dataclass import dataclass

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Span:
    """The size of a map in bytes, and the steps during which it is alive."""

    first: int
    """The first step that writes it."""
    last: int
    """The last step that reads it, or writes it to no use."""
    size: int

    def meets(self, other: Span) -> bool:
        """Returns whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def places(spans: Mapping[Name, Span], alignment: int) -> tuple[dict[Name, int], int]:
    """Returns the offset of each map, a multiple of `alignment`, and the bytes of the block.

    Each map gets the lowest free offset, in the better of two orders: largest first, by which a
    chain takes about as much as its two largest neighbours, or by first step. Where sizes are
    symbols, their examples decide which map lies below which; this is right for any sizes, since
    each map begins behind all maps below it that are alive with it.
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
    """Returns the lowest free offset of each map, placed in that order."""
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
    """Returns the maps directly below each map; keys are in an order for placing them."""
    found: dict[Name, list[Name]] = {}
    for name in sorted(sizes, key=lambda name: (starts[name], sizes[name])):
        lower = [other for other in found if spans[name].meets(spans[other])]
        # Maps below one of the others need no check of their own.
        covered = {far for other in lower for far in found[other]}
        found[name] = [other for other in lower if other not in covered]
    return found
