"""Places the maps of undivided pictures in one block of memory.

Each map is alive from the step that writes it first to the last one that reads it, across phases. A
map may overwrite, in place, one that its steps read for the last time: see `Executor.in_place`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from waifu2x.backends.gpu.executor import Executor
from waifu2x.lowering.plan import liveness
from waifu2x.lowering.plan.box import Box, hull
from waifu2x.lowering.plan.geometry import Work
from waifu2x.lowering.plan.liveness import Span
from waifu2x.system.lazy_dataclass import dataclass

Name = tuple[int, int]
"""A map: its value, and the phase that makes it, or -1 if it is kept from phase to phase."""


@dataclass(frozen=True)
class MapPlace:
    """The place of a map before its buffer is known; see BufferPlace."""

    is_kept: bool
    """Whether it is kept from phase to phase. Unless pictures are computed undivided, such maps
    have a block of memory of their own."""
    offset: int
    box: Box


@dataclass(frozen=True)
class Pass:
    """One phase on one tile; see PassWork."""

    work: Work
    places: Mapping[int, MapPlace]
    sums: Mapping[int, Box]
    tile: Box


def together(
    executor: Executor, passes: Sequence[Pass], pictures: int
) -> tuple[list[Pass], int, bool]:
    """Returns `passes`, one of each phase, with all maps placed in one block; the bytes of the
    block; and whether kernels can index all maps."""
    found = Lifetimes(executor, passes)
    found.take_places()
    spans = {
        name: Span(
            found.first[name],
            found.ends[name],
            executor.map_bytes(name[0], found.extents[name], pictures),
        )
        for name in found.boxes
        if name not in found.beneath
    }
    offsets, total = liveness.places(spans, executor.alignment)
    made = []
    for index, one in enumerate(passes):
        places = {}
        for value, place in one.places.items():
            name = _name(value, place, index)
            if name in found.boxes:
                root = found.root(name)
                places[value] = MapPlace(place.is_kept, offsets[root], found.extents[root])
        made.append(replace(one, places=places))
    return made, total, all(span.size <= executor.map_limit for span in spans.values())


def _name(value: int, place: MapPlace, index: int) -> Name:
    return value, -1 if place.is_kept else index


class Lifetimes:
    """Computes the lifetimes of maps, in steps counted through all phases."""

    def __init__(self, executor: Executor, passes: Sequence[Pass]) -> None:
        self._executor = executor
        self.boxes: dict[Name, Box] = {}
        self.first: dict[Name, int] = {}
        self.last: dict[Name, int] = {}
        self.index: dict[Name, int] = {}
        """The phase that writes each map first."""
        self.numbers: dict[int, int] = {}
        """The step that runs at each point in time."""
        self.beneath: dict[Name, Name] = {}
        """The map that each map overwrites in place, if any."""
        self.ends: dict[Name, int] = {}
        """For the first map of each place, the end of the last map there."""
        self.extents: dict[Name, Box] = {}
        """For the first map of each place, the box that the place holds."""
        self._written: dict[Name, int] = {}
        """The last write of each map."""
        self._beside: dict[Name, dict[int, Name]] = {}
        """For each map, all maps of the phase that writes it, by value."""
        read: dict[Name, Box] = {}
        steps, time = executor.program.steps, 0
        for index, one in enumerate(passes):
            names = {value: _name(value, place, index) for value, place in one.places.items()}
            sums = {number: box for number, box in one.sums.items() if box.height and box.width}
            for number in sorted({*one.work.steps, *sums}):
                time += 1
                self.numbers[time] = number
                for value in steps[number].touched & names.keys():
                    self.first.setdefault(names[value], time)
                    self.index.setdefault(names[value], index)
                    self.last[names[value]] = time
                if steps[number].writes in names:
                    name = names[steps[number].writes]
                    self._written[name] = time
                    self._beside[name] = names
            for number, box in sums.items():
                for value in steps[number].touched & names.keys():
                    read[names[value]] = hull(box, read.get(names[value]))
            for value, name in names.items():
                if value in one.work.read:
                    read[name] = hull(one.work.read[value], read.get(name))
                if value in one.work.whole:
                    read[name] = hull(one.places[value].box, read.get(name))
                if name in self.first:
                    self.boxes[name] = one.places[value].box
        for name in self.boxes.keys() & read.keys():
            if name[0] in executor.clipped:
                self.boxes[name] = read[name]

    def take_places(self) -> None:
        """Lets maps overwrite, in place, others that are read for the last time."""
        self.ends, self.extents = dict(self.last), dict(self.boxes)
        taken = set[Name]()
        for name in sorted(self.boxes, key=self.first.__getitem__):
            for value in self._executor.in_place.get(name[0], ()):
                other = self._beside.get(name, {}).get(value)
                if other is None or other in taken or other not in self.boxes:
                    continue
                is_last = self.first[other] < self.first[name] <= self.last[other]
                if not is_last or self.last[other] > self._written[name]:
                    continue
                self.beneath[name] = other
                taken.add(other)
                root = self.root(name)
                self.ends[root] = max(self.ends[root], self.last[name])
                self.extents[root] = hull(self.extents[root], self.boxes[name])
                break

    def root(self, name: Name) -> Name:
        """Returns the first map in the place of a map."""
        while name in self.beneath:
            name = self.beneath[name]
        return name
