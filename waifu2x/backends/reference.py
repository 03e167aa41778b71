"""The `numpy` backend: float64, slow and obvious. Every other backend is compared with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import (
    Device,
    LayerTime,
    Measurement,
    OnRecomputed,
    Pin,
    Precision,
    Progress,
    Trial,
    ignore,
    pick_device,
    scaled,
)
from waifu2x.backends.results import check_out, closed_network, grey, is_grey, result_shape
from waifu2x.backends.tta import mean
from waifu2x.errors import BackendError
from waifu2x.imaging.dtypes import from_unit, to_unit
from waifu2x.lowering import geometry, phases
from waifu2x.lowering.box import Box
from waifu2x.lowering.costs import cost_of_pixel
from waifu2x.lowering.lower import lower
from waifu2x.lowering.segments import segmented
from waifu2x.lowering.steps import (
    BicubicResize,
    Conv,
    DepthToSpace,
    GatedAdd,
    GlobalAvgPool,
    Linear,
    MapStep,
    PlanewiseStep,
    Program,
    Resized,
    Scale,
    SpaceToDepth,
    View,
    is_gated,
    label,
    reads,
    residual_of,
    stored_block,
)
from waifu2x.networks.expressions import sigmoid
from waifu2x.networks.model import Border, Model
from waifu2x.networks.nodes import cubic_taps

if TYPE_CHECKING:
    from waifu2x.imaging.planar import PlanarPicture

TILE_PIXELS = 1 << 16
"""Output pixels worked on at once: each takes up to 4 KiB, for the feature maps of two layers."""
_TILE_ROWS = 16
"""The fewest at once: every tile computes anew the rows beyond it that its result needs."""

Planes = NDArray[np.float64]
"""A map, (rows, columns, planes), or part of one."""


def create(device: int) -> NumpyBackend:
    """The backend; it works wherever NumPy does."""
    pick_device(NumpyBackend.name, devices(), device)
    return NumpyBackend()


def devices() -> list[Device]:
    """Its one device."""
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
                f"backend numpy has no precision {precision}: use auto or fp32, or another backend"
            )
        return NumpyNetwork([segmented(lower(model)) for model in models])

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: pixels are used where they are."""
        return Pin()

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Seconds of each step, without a peak to compare with."""
        network = self.compile([model], precision)
        seconds: dict[int, float] = {}

        def note(step: int, spent: float) -> None:
            seconds[step] = seconds.get(step, 0.0) + spent

        network.on_step = note
        start = time.perf_counter()
        result = network(pixels, pixels.dtype)
        total = time.perf_counter() - start
        layers = []
        for number, spent in sorted(seconds.items()):
            step = network.programs[0].steps[number]
            lowered = network.programs[0].model
            work = float(lowered.node_multiply_adds(step.node) * result.shape[0] * result.shape[1])
            layers.append(LayerTime(label(step), spent, work, float("inf")))
        return Measurement(total, tuple(layers))

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Nothing to tune."""
        return iter(())

    @property
    def bytes(self) -> int:
        """0: it computes with the models' own weights, and keeps nothing."""
        return 0

    def close(self) -> None:
        """Does nothing: there is nothing to free."""


class NumpyNetwork:
    """Programs in float64; see Network."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = tuple(programs)
        self.on_step: Callable[[int, float], None] = lambda step, seconds: None
        """Told the seconds of each step that has run."""
        self.on_made: Callable[[Planes], None] = lambda made: None
        """Told the values that each step has made, of maps and before the result is clipped."""
        self.kept_bytes = float("inf")
        """For maps that are kept between phases: where it is too small, they are computed again."""
        self._is_closed = False

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        out: NDArray[Any] | None = None,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
        on_recomputed: OnRecomputed = ignore,
    ) -> NDArray[Any]:
        """Runs whole pictures; each by itself, with intermediate results in float32."""
        if self._is_closed:
            raise closed_network()
        models = [program.model for program in self.programs]
        shape = result_shape(models, pixels.shape)
        check_out(out, shape, out_dtype, pixels)
        result = np.empty(shape, out_dtype) if out is None else out
        if is_grey(models, pixels.shape):
            grey(self, pixels, result, tile=tile, tta=tta, on_progress=on_progress)
            return result
        many = pixels.ndim == 4
        share = scaled(on_progress, 1 / max(1, len(pixels))) if many else on_progress
        for picture, made in zip(pixels, result, strict=True) if many else [(pixels, result)]:
            self._picture(picture, made, tile, tta, share)
        return result

    def run_planes(
        self,
        pictures: Sequence[PlanarPicture],
        out: Sequence[PlanarPicture],
        *,
        tile: int | None = None,
        tta: int = 1,
        on_progress: Progress = ignore,
    ) -> None:
        """Runs pictures as planes, converted in float64."""
        from waifu2x.backends import planar

        if self._is_closed:
            raise closed_network()
        planar.check_planes([program.model for program in self.programs], pictures, out)
        share = scaled(on_progress, 1 / max(1, len(pictures)))
        for picture, made in zip(pictures, out, strict=True):
            result = np.empty((*made.size, 3), np.float32)
            self._picture(planar.to_rgb(picture), result, tile, tta, share)
            planar.from_rgb(result, made)

    def close(self) -> None:
        """Refuses later calls; there is nothing to free."""
        self._is_closed = True

    def _picture(
        self,
        pixels: NDArray[Any],
        out: NDArray[Any],
        tile: int | None,
        tta: int,
        on_progress: Progress,
    ) -> None:
        costs = [1 + p.model.multiply_adds * p.model.scale**2 for p in self.programs]
        for index, program in enumerate(self.programs):
            share = scaled(on_progress, costs[index] / sum(costs))
            made = out
            if index < len(self.programs) - 1:
                made = np.empty(result_shape([program.model], pixels.shape), np.float32)
            execute = partial(self._execute, program, tile)
            mean(execute, pixels[np.newaxis], made[np.newaxis], tta, share)
            pixels = made

    def _execute(
        self,
        program: Program,
        tile: int | None,
        stack: NDArray[Any],
        out: NDArray[Any],
        on_progress: Progress,
    ) -> None:
        """A stack of one picture through a program."""
        _Execution(program, stack[0], out[0], self)(tile, on_progress)


class _Execution:
    """A program on a picture (H, W, planes), its results written into another."""

    def __init__(
        self, program: Program, pixels: NDArray[Any], out: NDArray[Any], network: NumpyNetwork
    ) -> None:
        self._program = program
        self._network = network
        self._picture = pixels
        self._sizes = geometry.sizes(program, *pixels.shape[:2])
        self._kept: dict[int, Planes] = {}
        self._vectors: dict[int, Planes] = {}
        self._result = out

    def __call__(self, tile: int | None, on_progress: Progress) -> None:
        program = self._program
        rows, columns = self._sizes[program.result]
        # Tiles are as wide as the picture: a product is made for each row, and rounds by its
        # length.
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
        sums = {step.vector: np.float64(0) for step in averages if isinstance(step, GlobalAvgPool)}
        boxes = zip(*(geometry.tiles(self._sizes[v], down, 1, 4) for v in roots), strict=True)
        for tiles in boxes:
            parts = {v: box for v, box in zip(roots, tiles, strict=True) if box.height}
            # What is read and has no effect is not a number, lest it has.
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
                assert isinstance(step, GlobalAvgPool)
                if step.source.value in parts:
                    found = maps[step.source.value].read(parts[step.source.value])
                    sums[step.vector] = sums[step.vector] + found.sum(axis=(0, 1))
            on_progress(1 / down)
        for step in averages:
            assert isinstance(step, GlobalAvgPool)
            size = self._sizes[step.source.value]
            self._vectors[step.vector] = np.asarray(sums[step.vector] / (size[0] * size[1]))
        for number in phase.dense:
            dense = program.steps[number]
            assert isinstance(dense, Linear)
            sums_ = dense.weight.astype(np.float64) @ self._vectors[dense.source] + dense.bias
            self._vectors[dense.vector] = dense.activation(sums_)
        self._kept = {value: kept for value, kept in self._kept.items() if value in phase.live}

    def _tile(self, phase: phases.Phase, parts: Mapping[int, Box]) -> dict[int, _Map]:
        """All maps of a phase that some parts of its roots need."""
        program = self._program
        work = geometry.work(program, phase.steps, parts, sizes=self._sizes)
        maps: dict[int, _Map] = {}
        last_use = {
            view.value: number for number in work.steps for view in reads(program.steps[number])
        }
        for number, box in work.steps.items():
            start = time.perf_counter()
            step = program.steps[number]
            assert isinstance(step, MapStep)
            for value in {view.value for view in reads(step)} | {step.target.value}:
                if value not in maps:
                    maps[value] = self._map(value, phase, work.values[value])
            place = geometry.scaled(box, stored_block(step))
            if isinstance(step, Conv):
                made = self._conv(step, box, maps)
            else:
                made = self._planewise(step, box, maps)
            residual = residual_of(step)
            sums = made
            if residual:
                scaled_by = step.residual_factors if isinstance(step, Conv) else None
                added = self._added(step, residual, place, maps)
                sums = made + (added if scaled_by is None else added * self._vectors[scaled_by])
            made = sums * (sigmoid(made) - 0.5) if is_gated(step) else sums
            self._network.on_made(self._store(step, made, place, maps))
            for value in {view.value for view in reads(step)} - set(parts):
                if last_use[value] == number:
                    del maps[value]
            self._network.on_step(number, time.perf_counter() - start)
        return maps

    def _map(self, value: int, phase: phases.Phase, box: Box) -> _Map:
        """A map that the phase reads, or room for one that it makes."""
        if value == 0:
            return _Map(_padded(self._picture, self._program.model, box), box)
        if value in phase.given:
            return _Map(_beyond(self._kept[value], box), box)
        planes = self._program.values[value].planes
        return _Map(np.full((box.height, box.width, planes), np.nan), box)

    def _conv(self, step: Conv, box: Box, maps: Mapping[int, _Map]) -> Planes:
        """Results in a box, (rows, columns, planes) as they are stored by depth-to-space, before
        the residual."""
        fold = self._program.values[step.source.value].space_to_depth
        reach = step.taps - 1
        read = Box(box.top, box.left, box.height + reach, box.width + reach)
        if fold > 1:
            value = self._program.values[step.source.value]
            moved = Box(read.top + step.source.offset, read.left + step.source.offset, *read[2:])
            pixels = maps[step.source.value].read(geometry.scaled(moved, fold))
            cells = pixels.reshape(read.height, fold, read.width, fold, value.planes)
            planes = cells.transpose(0, 2, 1, 3, 4).reshape(read.height, read.width, -1)
        else:
            planes = self._read(step.source, read, maps)
        if step.factors is not None:
            planes = planes * np.tile(self._vectors[step.factors], fold**2)
        sums = np.zeros((box.height, box.width, step.out_planes)) + step.bias
        for y in range(step.taps):
            for x in range(step.taps):
                # Contiguous, since NumPy hands nothing else to BLAS.
                taken = np.ascontiguousarray(planes[y : y + box.height, x : x + box.width])
                sums += taken @ step.weight[:, :, y, x].astype(np.float64).T
        made = step.activation(sums) * step.factor
        r = step.depth_to_space
        cells = made.reshape(box.height, box.width, r, r, -1).transpose(0, 2, 1, 3, 4)
        pixels = cells.reshape(box.height * r, box.width * r, -1)
        if step.resized:
            self._edges(step, step.resized, box, planes, pixels)
        return pixels

    def _edges(
        self, step: Conv, resized: Resized, box: Box, planes: Planes, pixels: Planes
    ) -> None:
        """Overwrites the pixels, of those made in a box, that have other weights than the rest."""
        rows, columns = (
            [_kind(first + i, size) for i in range(length)]
            for first, length, size in zip(
                (2 * box.top, 2 * box.left),
                pixels.shape,
                self._sizes[step.target.value],
                strict=False,
            )
        )
        for y, x in np.ndindex(*pixels.shape[:2]):
            kinds = rows[y], columns[x]
            if {0, 3} & {*kinds}:
                near = planes[y // 2 : y // 2 + step.taps, x // 2 : x // 2 + step.taps]
                weight = resized.weight[kinds].astype(np.float64)
                pixels[y, x] = np.einsum("yxi,oiyx->o", near, weight) + resized.bias[kinds]

    def _added(self, step: MapStep, residual: View, box: Box, maps: Mapping[int, _Map]) -> Planes:
        """The pixels that a step adds in a box."""
        if not isinstance(step, Conv) or not step.resized:
            return self._read(residual, box, maps)
        source, blend = maps[residual.value], step.resized.blend
        made = source.planes
        for axis, (first, length) in enumerate(((box.top, box.height), (box.left, box.width))):
            places = np.arange(first, first + length)
            near = places // 2
            most, start = self._picture.shape[axis] - 1, source.box[axis]
            both = [
                made.take(found.clip(0, most) - start, axis, mode="clip")
                for found in (near, near + places % 2 * 2 - 1)
            ]
            made = both[0] * (1 - blend) + both[1] * blend
        return made

    def _planewise(self, step: PlanewiseStep, box: Box, maps: Mapping[int, _Map]) -> Planes:
        """Results in a box, (rows, columns, planes), before the residual."""
        rows, columns = np.arange(box.top, box.bottom), np.arange(box.left, box.right)
        match step:
            case BicubicResize():
                return self._resize(step, rows, columns, maps[step.source.value])
            case SpaceToDepth(block=r):
                pixels = self._read(step.source, geometry.scaled(box, r), maps)
                cells = pixels.reshape(box.height, r, box.width, r, -1).transpose(0, 2, 4, 1, 3)
                return cells.reshape(box.height, box.width, -1)
            case DepthToSpace(block=r):
                cover = geometry.divided(box, r)
                pixels = self._read(step.source, cover, maps)
                count = pixels.shape[-1] // r**2
                repeated = pixels[np.ix_(rows // r - cover.top, columns // r - cover.left)]
                cells = repeated.reshape(box.height, box.width, count, r, r)
                y, x = np.ix_(rows % r, columns % r)
                planes = cells[np.arange(box.height)[:, None], np.arange(box.width), :, y, x]
                return planes * step.factor
            case Scale():
                planes = self._read(step.source, box, maps)
                return planes * self._vectors[step.vector] * step.factor
            case GatedAdd():
                return self._read(step.source, box, maps)
            case _:
                return self._read(step.source, box, maps) * step.factor

    def _resize(
        self, step: BicubicResize, rows: NDArray[np.int64], columns: NDArray[np.int64], source: _Map
    ) -> Planes:
        """Bicubic interpolation."""
        up, down, size = step.up, step.down, self._sizes[step.source.value]
        taps = cubic_taps(up, down)

        def near(places: NDArray[np.int64], tap: int, length: int, first: int) -> Any:
            found = ((2 * places + 1) * down - up) // (2 * up) - 1 + tap
            return found.clip(0, length - 1) - first

        made = np.zeros((len(rows), len(columns), source.planes.shape[-1]))
        for y, x in np.ndindex(4, 4):
            weight = taps[rows % up, y][:, np.newaxis] * taps[columns % up, x]
            index = np.ix_(
                near(rows, y, size[0], source.box.top), near(columns, x, size[1], source.box.left)
            )
            made += weight[..., np.newaxis] * source.planes[index]
        return made

    def _read(self, view: View, box: Box, maps: Mapping[int, _Map]) -> Planes:
        """The pixels of a view in a box."""
        rows = (np.arange(box.top, box.bottom) + view.offset) // view.enlarge
        columns = (np.arange(box.left, box.right) + view.offset) // view.enlarge
        parts = self._program.values[view.value].parts
        start, count = sum(parts[: view.first]), sum(parts[view.first : view.first + view.parts])
        source = maps[view.value]
        index = np.ix_(rows - source.box.top, columns - source.box.left)
        assert rows.min() >= source.box.top
        assert columns.min() >= source.box.left
        return source.planes[index][..., start : start + count]

    def _store(self, step: MapStep, made: Planes, box: Box, maps: Mapping[int, _Map]) -> Planes:
        """What is stored: zeros where the value has none, whatever they would be computed from."""
        value = self._program.values[step.target.value]
        target = maps[step.target.value]
        if value.zero_outside:
            height, width = self._sizes[step.target.value]
            rows, columns = np.arange(box.top, box.bottom), np.arange(box.left, box.right)
            inside = ((rows >= 0) & (rows < height))[:, None] & (columns >= 0) & (columns < width)
            made = np.where(inside[:, :, None], made, 0.0)
        start = sum(value.parts[: step.target.part]) + step.target.plane
        top, left = box.top - target.box.top, box.left - target.box.left
        target.planes[
            top : top + box.height, left : left + box.width, start : start + made.shape[-1]
        ] = made
        return made

    def _cost(self, number: int) -> float:
        return cost_of_pixel(self._program, self._program.steps[number])

    def _bytes(self, value: int) -> float:
        rows, columns = self._sizes[value]
        return 8.0 * rows * columns * self._program.values[value].planes


def _kind(place: int, length: int) -> int:
    """The kind of row or column: see Resized."""
    return 0 if place == 0 else 3 if place == length - 1 else 1 + place % 2


class _Map:
    """Part of a map."""

    def __init__(self, planes: Planes, box: Box) -> None:
        self.planes = planes
        self.box = box

    def read(self, box: Box) -> Planes:
        """A box of it."""
        top, left = box.top - self.box.top, box.left - self.box.left
        assert top >= 0
        assert left >= 0
        return self.planes[top : top + box.height, left : left + box.width]


def border_index(places: NDArray[np.int64], length: int, border: Border) -> NDArray[np.int64]:
    """Which pixel of a picture stands at each place beyond or inside it; -1 for zero."""
    if border == "zero":
        return np.where((places >= 0) & (places < length), places, -1)
    if border == "replicate" or length == 1:
        return places.clip(0, length - 1)
    period = 2 * (length - 1)
    turned = places % period
    return np.minimum(turned, period - turned)


def _padded(picture: NDArray[Any], model: Model, box: Box) -> Planes:
    """A box of the padded picture."""
    rows = border_index(np.arange(box.top, box.bottom) - model.padding, len(picture), model.border)
    columns = border_index(
        np.arange(box.left, box.right) - model.padding, picture.shape[1], model.border
    )
    pixels = to_unit(picture[np.ix_(rows, columns)], np.float64)
    pixels[rows < 0] = 0
    pixels[:, columns < 0] = 0
    return pixels


def _beyond(kept: Planes, box: Box) -> Planes:
    """A box of a map that is zero outside."""
    pads = [
        (max(0, -box.top), max(0, box.bottom - kept.shape[0])),
        (max(0, -box.left), max(0, box.right - kept.shape[1])),
        (0, 0),
    ]
    top, left = max(0, box.top), max(0, box.left)
    inner = kept[top : max(0, box.bottom), left : max(0, box.right)]
    return np.pad(inner, pads)
