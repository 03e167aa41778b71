"""Defines the `numpy` backend, in float64, slow and obvious: the reference for all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import (
    Device,
    LayerTime,
    Measurement,
    Pin,
    Precision,
    Progress,
    Trial,
    pick_device,
    scaled,
)
from waifu2x.backends.call import (
    Call,
    Pictures,
    closed_network,
    is_grey,
    run_grey,
    run_windows,
    with_out,
)
from waifu2x.backends.reference.attention import attended, cross_sums, mixed, planes_attended
from waifu2x.backends.reference.steps import MapPart, Planes, StepArithmetic, beyond, padded
from waifu2x.backends.tta import Execute, run_chain
from waifu2x.errors import BackendError
from waifu2x.imaging.dtypes import from_unit
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.attention import (
    AttendPlanes,
    AttendWindows,
    CrossSums,
    MixPlanes,
)
from waifu2x.lowering.ops.base import InnerVectorStep, MapStep, PictureSum
from waifu2x.lowering.ops.conv import Conv, Depthwise
from waifu2x.lowering.ops.norm import NormPlanes
from waifu2x.lowering.ops.planewise import PlanewiseStep, Rearrange
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.plan import box as boxes
from waifu2x.lowering.plan import geometry, phases
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.costs import cost_of_pixel
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import evaluate
from waifu2x.networks.model import Model

if TYPE_CHECKING:
    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.lowering.plan.support import Support

TILE_PIXELS = 1 << 16
"""The output pixels of a tile: each takes up to 4 KiB, for the feature maps of two layers."""
_TILE_ROWS = 16
"""The fewest rows of a tile: every tile recomputes its halo."""


def create(device: int) -> NumpyBackend:
    """Returns the backend; it works wherever NumPy does."""
    pick_device(NumpyBackend.name, devices(), device)
    return NumpyBackend()


def devices() -> list[Device]:
    """Returns the backend's one device."""
    return [NumpyBackend.device]


class NumpyBackend:
    """Runs models in float64 on one core."""

    name = "numpy"
    calls_at_once = 1
    device = Device("NumPy", f"{np.__version__}, float64, for reference: slow")

    def compile(self, models: Sequence[Model], precision: Precision) -> NumpyNetwork:
        """Compiles models for float64, which serves `auto` and `fp32`."""
        if precision not in ("auto", "fp32"):
            raise BackendError(
                f"backend numpy has no precision {precision}",
                "use auto or fp32, or another backend",
            )
        return NumpyNetwork([segmented(lower(model)) for model in models])

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: NumPy accesses pixels where they are."""
        return Pin()

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Measures the seconds of each step, without a peak."""
        network = self.compile([model], precision)
        seconds: dict[int, float] = {}

        def note(step: int, spent: float) -> None:
            seconds[step] = seconds.get(step, 0.0) + spent

        network.on_step = note
        start = time.perf_counter()
        result = network.run(Call(pixels))
        total = time.perf_counter() - start
        layers = []
        for number, spent in sorted(seconds.items()):
            step = network.programs[0].steps[number]
            lowered = network.programs[0].model
            work = float(lowered.node_multiply_adds(step.node) * result.shape[0] * result.shape[1])
            layers.append(LayerTime(step.label, spent, work, float("inf")))
        return Measurement(total, tuple(layers))

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Yields nothing: no step has options."""
        return iter(())

    @property
    def bytes(self) -> int:
        """Always 0: it computes with the models' own weights, and keeps no memory."""
        return 0

    def close(self) -> None:
        """Does nothing: it holds no memory."""


class NumpyNetwork:
    """Runs programs one after the other in float64."""

    arithmetic = "fp64"
    support: Support | None = None
    """NumPy's sums may depend on the shape of what is added up."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = tuple(programs)
        self.on_step: Callable[[int, float], None] = lambda step, seconds: None
        """Called with the number of each step that has run, and its seconds."""
        self.on_made: Callable[[Planes], None] = lambda made: None
        """Called with the values of each map made, the result's before clipping."""
        self.kept_bytes = float("inf")
        """The memory for maps between phases; maps that do not fit are recomputed."""
        self._is_closed = False

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs whole pictures, each by itself, with intermediate results in float32."""
        if self._is_closed:
            raise closed_network()
        models = [program.model for program in self.programs]
        call = with_out(call, models)
        if isinstance(call.source, np.ndarray) and is_grey(models, call.source.shape):
            return run_grey(self, call)
        if not isinstance(call.source, np.ndarray) and models[0].frames > 1:
            from waifu2x.backends.reference.planar import from_rgb, to_rgb

            run_windows(self, call, models[0], to_rgb, from_rgb)
            return call.results
        stack = call.stacked()
        for number in range(call.count):
            one = stack.part(number, number + 1)
            if isinstance(one.source, np.ndarray):
                self._pixels(one)
            else:
                self._planes(one)
        return call.results

    def close(self) -> None:
        """Makes later calls raise BackendError; there is no memory to free."""
        self._is_closed = True

    def _planes(self, call: Call[Sequence[PlanarPicture]]) -> None:
        """Runs one picture as planes, converted in float64."""
        from waifu2x.backends.reference.planar import from_rgb, to_rgb

        (picture,), (made,) = call.source, call.results
        result = np.empty((1, *made.size, 3), np.float32)
        self._pixels(call.with_pixels(to_rgb(picture)[np.newaxis], result))
        from_rgb(result[0], made)

    def _pixels(self, call: Call[NDArray[Any]]) -> None:
        """Runs a stack of one picture."""

        def execute(program: Program) -> Execute:
            return lambda stack, out, on_progress: _Execution(program, stack[0], out[0], self)(
                call.tile, on_progress
            )

        costs = [1 + p.model.multiply_adds * p.model.scale**2 for p in self.programs]
        run_chain(call, [(p.model, execute(p)) for p in self.programs], costs)


class _Execution:
    """Runs a program on a picture (H, W, planes), and writes the results into another."""

    def __init__(
        self, program: Program, pixels: NDArray[Any], out: NDArray[Any], network: NumpyNetwork
    ) -> None:
        self._program = program
        self._network = network
        self._picture = pixels
        self._sizes = geometry.sizes(program, *pixels.shape[:2])
        self._kept: dict[int, Planes] = {}
        self._vectors: dict[int, Planes] = {}
        self._arithmetic = StepArithmetic(program, pixels, self._sizes, self._vectors)
        self._result = out

    def __call__(self, tile: int | None, on_progress: Progress) -> None:
        program = self._program
        rows, columns = self._sizes[program.result]
        # Tiles are as wide as the picture, since the rounding of a row's matrix product depends on
        # its length.
        down = -(-rows // max(_TILE_ROWS, TILE_PIXELS // columns if tile is None else tile))
        plan = phases.plan(program, self._cost, self._bytes, self._network.kept_bytes)
        total = sum(sum(map(self._cost, phase.steps)) for phase in plan)
        for phase in plan:
            self._phase(phase, down, scaled(on_progress, sum(map(self._cost, phase.steps)) / total))

    def _phase(self, phase: phases.Phase, down: int, on_progress: Progress) -> None:
        program = self._program
        roots = phase.roots(program)
        for value in phase.kept:
            planes = program.values[value].planes
            self._kept[value] = np.zeros((*self._sizes[value], planes))
        averages = [program.steps[number] for number in phase.averages]
        sums: dict[int, Any] = {s.vector: 0.0 for s in averages if isinstance(s, PictureSum)}
        boxes = zip(*(geometry.tiles(self._sizes[v], down, 1, 4) for v in roots), strict=True)
        for tiles in boxes:
            parts = {v: box for v, box in zip(roots, tiles, strict=True) if box.height}
            # Values that must not matter are NaN, so that results would show them.
            with np.errstate(invalid="ignore"):
                maps = self._tile(phase, parts)
            for value, box in parts.items():
                found = maps[value].read(box)
                if value in phase.kept:
                    self._kept[value][box.top : box.bottom, box.left : box.right] = found
                elif value == program.result:
                    target = self._result[box.top : box.bottom, box.left : box.right]
                    target[:] = from_unit(found, target.dtype)
            for step in averages:
                assert isinstance(step, PictureSum)
                if step.source.value in parts:
                    part = parts[step.source.value]
                    found = maps[step.source.value].read(part)
                    if isinstance(step, GlobalAvgPool):
                        made = (found**2 if step.squared else found).sum(axis=(0, 1))
                    else:
                        assert isinstance(step, CrossSums)
                        made = cross_sums(step, part, found)
                    sums[step.vector] = sums[step.vector] + made
            on_progress(1 / down)
        for step in averages:
            assert isinstance(step, PictureSum)
            size = self._sizes[step.source.value]
            count = size[0] * size[1] if isinstance(step, GlobalAvgPool) else 1
            self._vectors[step.vector] = np.asarray(sums[step.vector] / count)
        for number in phase.dense:
            step = program.steps[number]
            assert isinstance(step, InnerVectorStep)
            self._vectors[step.vector] = step.made(
                *map(self._vectors.__getitem__, step.vectors_read)
            )
        self._kept = {value: kept for value, kept in self._kept.items() if value in phase.live}

    def _tile(self, phase: phases.Phase, parts: Mapping[int, Box]) -> dict[int, MapPart]:
        """Returns all maps of a phase for the boxes `parts` of its roots."""
        program = self._program
        work = geometry.work(program, phase.steps, parts, sizes=self._sizes)
        maps: dict[int, MapPart] = {}
        last_use = {
            view.value: number for number in work.steps for view in program.steps[number].reads
        }
        for number, box in work.steps.items():
            start = time.perf_counter()
            step = program.steps[number]
            assert isinstance(step, MapStep)
            near = {view.value for view in step.reads if view not in step.read_whole}
            for value in near | {step.target.value}:
                if value not in maps:
                    maps[value] = self._map(value, phase, work.values[value])
            place = boxes.scaled(box, step.stored_block)
            if isinstance(step, Depthwise):
                made = self._arithmetic.depthwise(step, box, maps)
            elif isinstance(step, Conv):
                made = self._arithmetic.conv(step, box, maps)
            elif isinstance(step, NormPlanes):
                made = self._arithmetic.norm(step, box, maps)
            elif isinstance(step, MixPlanes):
                made = mixed(step, box, self._vectors[step.vector], maps)
            elif isinstance(step, AttendWindows):
                made = attended(step, box, self._sizes, maps)
            elif isinstance(step, AttendPlanes):
                made = planes_attended(step, box, self._sizes, maps)
            elif isinstance(step, Rearrange):
                whole = self._kept[step.source.value]
                made = self._arithmetic.rearranged(step, box, whole, maps)
            else:
                assert isinstance(step, PlanewiseStep)
                made = self._arithmetic.planewise(step, box, maps)
            if step.residual and not isinstance(step, Rearrange):
                added = self._arithmetic.added(step, step.residual, place, maps)
                scaled_by = step.residual_factors if isinstance(step, Conv) else None
                if scaled_by is not None:
                    added = added * self._vectors[scaled_by]
                sums = evaluate(step.join, made, operand=added)
                gate = step.own_gate if isinstance(step, Conv) else None
                if gate:
                    sums = sums * gate.activation(made @ gate.weight.T + gate.bias)
                made = sums
            self._network.on_made(self._arithmetic.store(step, made, place, maps))
            for value in {view.value for view in step.reads} & maps.keys() - set(parts):
                if last_use[value] == number:
                    del maps[value]
            self._network.on_step(number, time.perf_counter() - start)
        return maps

    def _map(self, value: int, phase: phases.Phase, box: Box) -> MapPart:
        """Returns a map that the phase reads, or memory for one that it makes."""
        if value == 0:
            return MapPart(padded(self._picture, self._program.model, box), box)
        if value in phase.given:
            return MapPart(beyond(self._kept[value], box), box)
        planes = self._program.values[value].planes
        return MapPart(np.full((box.height, box.width, planes), np.nan), box)

    def _cost(self, number: int) -> float:
        return cost_of_pixel(self._program, self._program.steps[number])

    def _bytes(self, value: int) -> float:
        rows, columns = self._sizes[value]
        return 8.0 * rows * columns * self._program.values[value].planes
