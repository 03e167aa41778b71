"""Plans the launches for undivided pictures of any size.

The first few sizes are planned with their numbers. After that, planning uses symbols (see
`lowering.plan.symbols`), once for all sizes that take the same branches, which are nearly all; a
formula then plans a new size. Each launch has formulas of its own: the division of a kernel's work
depends on the size, and each division has another formula.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from waifu2x.backends.gpu.device import launch
from waifu2x.backends.gpu.device.flags import NO_FLAGS, Flags
from waifu2x.backends.gpu.device.launch import LaunchMaker
from waifu2x.backends.gpu.device.runtime import Buffer, Kernel, ReadyLaunch, Runtime
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels, Executor, PassWork
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.tile_plan import Schedule
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import Code, Formula, Trace, called
from waifu2x.networks.model import Size

_KEPT_SIZES = 256
_PLAIN_SIZES = 4
"""Plans with numbers before formulas are made, which takes about as long as these plans."""
_KEPT_FORMULAS = 16
"""The most recent formulas kept, for the whole plan and for each launch."""


class Ends(NamedTuple):
    """Describes the pictures and results of a stack, except for their rows and columns."""

    pictures: int
    source: np.dtype[Any]
    target: np.dtype[Any]


class Buffers(NamedTuple):
    """The device memory of a plan."""

    source: Buffer
    target: Buffer
    maps: Buffer
    vectors: Buffer


class LaunchPlan(Protocol):
    """A plan of the launches for pictures of one size."""

    pictures: int
    maps: int
    """The bytes of all maps."""

    def launches(self, buffers: Buffers, flags: Flags) -> Sequence[ReadyLaunch]:
        """Returns all launches, in order; only one thread may call it at a time. May raise
        BackendError for a kernel that is first built now, and OutOfMemoryError."""


class LaunchPlans:
    """Makes and caches the plans of one executor, for stacks of any number and size."""

    def __init__(self, runtime: Runtime, executor: Executor) -> None:
        self._runtime = runtime
        self._executor = executor
        self._lock = threading.Lock()
        self._plans: OrderedDict[tuple[Ends, Size], LaunchPlan] = OrderedDict()
        """The most recently used plans."""
        self._any_size: dict[Ends, list[_AnySize]] = {}
        self._seen: dict[Ends, int] = {}
        """The number of sizes planned with numbers, for each kind of stack."""

    def plan(self, ends: Ends, size: Size) -> LaunchPlan | None:
        """Returns the plan for pictures of that size; None if kernels cannot index their maps."""
        key = ends, size
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
                return found
            found = self._planned(ends, size)
            if found is not None:
                while len(self._plans) >= _KEPT_SIZES:
                    self._plans.popitem(last=False)
                self._plans[key] = found
            return found

    def build(self, ends: Ends, size: Size) -> bool:
        """Builds the kernels for pictures of that size, and uploads their weights; returns False if
        kernels cannot index the maps. Raises BackendError, OutOfMemoryError."""
        found = tile_plan.whole(self._executor, size, ends.pictures)
        if found is None:
            return False
        slots = Buffers(*(_Slot(0) for _ in Buffers._fields))
        makers = _makers(found, ends, size, slots, NO_FLAGS)
        launch.build(self._runtime, [make() for make in makers])
        return True

    def _planned(self, ends: Ends, size: Size) -> LaunchPlan | None:
        known = self._any_size.setdefault(ends, [])
        self._seen[ends] = seen = self._seen.get(ends, 0) + 1
        for any_size in reversed(known):
            plan = any_size.plan(size)
            if plan is not None:
                return plan
        found = tile_plan.whole(self._executor, size, ends.pictures)
        if found is None:
            return None
        if seen <= _PLAIN_SIZES:
            return _OneSize(self._runtime, ends, size, found)
        made = _AnySize(self._runtime, self._executor, ends, size)
        known.append(made)
        del known[:-_KEPT_FORMULAS]
        return made.plan(size)


class _OneSize:
    """A plan computed with numbers, for one size."""

    def __init__(self, runtime: Runtime, ends: Ends, size: Size, found: Schedule) -> None:
        self.pictures = ends.pictures
        self.maps = found.scratch
        self._runtime = runtime
        self._makers = partial(_makers, found, ends, size)

    def launches(self, buffers: Buffers, flags: Flags) -> Sequence[ReadyLaunch]:
        return launch.ready(self._runtime, self._makers(buffers, flags))


class _Slot:
    """Stands for a buffer, or for flags, while launches are traced."""

    size = 0

    def __init__(self, address: int) -> None:
        self.address = address

    def release(self) -> None:
        """Does nothing: it has no memory."""

    def take(self, pictures: int) -> list[int]:
        """Returns an empty list."""
        return []


class _AnySize:
    """Holds formulas for all sizes that take the same branches as the one they were traced with,
    and whose maps kernels can index."""

    def __init__(self, runtime: Runtime, executor: Executor, ends: Ends, size: Size) -> None:
        self._runtime = runtime
        self._pictures = ends.pictures
        self._trace = trace = Trace()
        slots = Buffers(*(_Slot(trace.given(0)) for _ in Buffers._fields))
        flags = _Slot(trace.given(0))
        with trace.common():
            symbols = trace.input(size[0]), trace.input(size[1])
            found = tile_plan.whole(executor, symbols, ends.pictures)
            assert found is not None
            self._makers = _makers(found, ends, symbols, slots, flags)
            self._formula = trace.common_formula((found.scratch,))
        self._formulas: list[list[tuple[Kernel, Formula]]] = [[] for _ in self._makers]
        """The formulas of each launch, with their kernels."""

    def plan(self, size: Size) -> LaunchPlan | None:
        """Returns the plan for a size; None if that takes other branches."""
        found = self._formula(*size)
        if found is None:
            return None
        terms, (maps,) = found
        return _SizeOfAny(self, self._pictures, terms, maps)

    def launches(
        self, terms: Sequence[int], buffers: Buffers, flags: Flags
    ) -> Sequence[ReadyLaunch]:
        """Returns the launches for a size, from the terms of the common formula."""
        handles = (*map(self._runtime.handle, buffers), flags.address)
        made: list[ReadyLaunch] = []
        missing: list[int] = []
        for number, formulas in enumerate(self._formulas):
            for kernel, formula in reversed(formulas):
                found = formula(terms, handles)
                if found is not None:
                    made.append(ReadyLaunch(kernel, *found))
                    break
            else:
                missing.append(number)
        if not missing:
            return made
        self._learn(missing, terms)
        return self.launches(terms, buffers, flags)

    def _learn(self, numbers: Sequence[int], terms: Sequence[int]) -> None:
        """Traces formulas of launches `numbers` that hold for the size of `terms`."""
        launches: list[launch.Launch] = []

        def traced(maker: LaunchMaker) -> tuple[Any, dict[str, Any]]:
            launches.append(maker())
            return self._traced(launches[-1])

        formulas = [self._trace.part(terms, partial(traced, self._makers[n])) for n in numbers]
        launch.build(self._runtime, launches)
        for number, formula, made in zip(numbers, formulas, launches, strict=True):
            self._formulas[number].append((made.kernel(), formula))
            del self._formulas[number][:-_KEPT_FORMULAS]

    def _traced(self, made: launch.Launch) -> tuple[Any, dict[str, Any]]:
        """Returns the groups and packed arguments of a launch, as `Trace.part` asks for them."""
        codes, values = made.arguments
        named: dict[str, Any] = {"pack": self._runtime.packer(codes)}
        texts: list[Any] = []
        for value in values:
            if isinstance(value, _Slot):
                texts.append(value.address)
            elif isinstance(value, launch.NUMBERS):
                texts.append(value)
            else:
                texts.append(Code(f"b{len(named)}"))
                named[texts[-1]] = self._runtime.handle(value)
        return (made.groups, called("pack", texts)), named


class _SizeOfAny:
    """A plan computed by formulas."""

    def __init__(self, any_size: _AnySize, pictures: int, terms: Sequence[int], maps: int) -> None:
        self._any_size = any_size
        self.pictures = pictures
        self._terms = terms
        self.maps = maps

    def launches(self, buffers: Buffers, flags: Flags) -> Sequence[ReadyLaunch]:
        return self._any_size.launches(self._terms, buffers, flags)


def _makers(
    found: Schedule, ends: Ends, size: Size, buffers: Buffers, flags: Flags
) -> list[LaunchMaker]:
    """Returns the makers of a schedule's launches, with all maps in one block of memory."""
    executor = found.executor
    model = executor.program.model
    result = found.sizes[executor.program.result]
    source = DevicePixels(buffers.source, ends.source, (ends.pictures, *size, model.in_planes))
    target = DevicePixels(buffers.target, ends.target, (ends.pictures, *result, model.out_planes))
    makers = [*executor.clearing(buffers.vectors, ends.pictures)]
    for phase, rows in zip(found.phases, found.passes, strict=True):
        for row in rows:
            for one in row:
                places = {
                    value: BufferPlace(buffers.maps, place.offset, place.box)
                    for value, place in one.places.items()
                }
                batch = Batch(source, target, Box(0, 0, *result), one.tile, found.sizes, flags)
                ending = phase if one is rows[-1][-1] else None
                makers += executor.launches(
                    PassWork(batch, one.work, places, one.sums, buffers.vectors, ending)
                )
    return makers
