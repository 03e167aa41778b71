"""Convolutions on matrix units: what each reads and writes, its weights, its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address, address_of, structs
from waifu2x.backends.cuda.tensor.activation import activation_macro, has_plane_slopes
from waifu2x.backends.cuda.tensor.candidates import candidates, ranked
from waifu2x.backends.cuda.tensor.layout import (
    COLUMNS_BEYOND,
    PLANE_UNIT,
    ROWS_BEYOND,
    FewLayout,
    MapArguments,
    MapLayout,
)
from waifu2x.backends.cuda.tensor.pack import (
    pack_epilogue,
    pack_first,
    pack_last,
    pack_middle,
    placed,
    swizzled,
)
from waifu2x.backends.cuda.tensor.shape import (
    COLUMNS,
    ROWS_WIDTH,
    Shape,
    TensorJob,
    depth,
    grid,
    macros,
    results,
)
from waifu2x.backends.cuda.tensor.step import (
    BORDERS,
    LayerExtent,
    Range,
    SourceArguments,
    Task,
    TensorStep,
)
from waifu2x.backends.cuda.tensor.units import Units, is_sm75
from waifu2x.backends.gpu.device.launch import Arguments, Launch
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.lowering.program import Program
from waifu2x.networks.expressions import GATE, GELU, LEAKY, MISH, MULTIPLY, SILU
from waifu2x.networks.model import Size

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaRuntime

NOTHING = Box(0, 0, 0, 0)
_FIRST_ROWS = 4
_WARP = 32
_SPARSE_SIDE = 2
"""Taps in each direction, as `sparse_taps` has them."""
_PIXEL_UNITS = {8: 256 / 255, 16: 65536 / 65535, 32: 1.0, 0: 1.0}
"""What a pixel of 1 is worth, by the macro PIXEL: integers come as fractions of a power of two."""

PASSING = (LEAKY, SILU, MISH, GELU)
"""Activations of which infinite sums, and those that are no numbers, come as such."""


class TensorConvArguments(NamedTuple):
    """`Conv` in `kernels/tensor.cuh`."""

    source: Address
    weights: Address
    epilogue: Address
    target: Address
    residual: Address
    flags: Address
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    valid: Range
    stored: Range
    factor: np.float32
    slope: np.float32
    beyond: int
    factors: Address = Address(0)
    residual_factors: Address = Address(0)
    factors_each: int = 0
    margin: Range = Range()


class TensorConvStep(TensorStep):
    """A convolution: a first one, which reads pixels, a last one, which makes them, or any other.

    Pixels are also maps of few planes.
    """

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        units: Units,
        terms: int,
        choose: Choose,
        vector_places: Sequence[int],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, Conv)
        self._step = step
        self._layouts = layouts
        self._units = units
        self._terms = terms
        self._choose = choose
        self._vector_places = vector_places
        self._source = layouts[step.source.value]
        self._target = layouts[step.target.value]
        self._is_first = step.source.value == 0 or isinstance(self._source, FewLayout)
        self._job: TensorJob | None = None
        if not self._is_first:
            assert isinstance(self._source, MapLayout)
            last = self._map_target is None
            parts = self._source.parts[step.source.first : step.source.first + step.source.parts]
            inputs = sum(parts) * self._source.space_to_depth**2
            outputs = step.out_planes if last else self._outputs
            group = self._source.group
            padding = group - 1 - int((self.input_places % group).max())
            scales = step.residual_factors is not None
            folds = self._map_target is not None and self._map_target.space_to_depth > 1
            self._job = TensorJob(
                inputs,
                group,
                outputs,
                step.taps,
                terms,
                last,
                padding=padding,
                scales=scales,
                folds=folds,
                hides=step.activation.function not in PASSING,
                own_gate=step.own_gate is not None,
            )
            if not last and has_sparse_taps(step):
                self._job = replace(
                    self._job, side=_SPARSE_SIDE, sparse_taps=step.depth_to_space**2
                )
            self._candidates = candidates(
                self._job, units, runtime.capability, runtime.shared_bytes
            )
        self._shapes: dict[tuple[str, Shape], Shape] = {}
        """By the class of sizes and the usual one for it."""

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        return self._first(task) if self._is_first else self._conv(task)

    @property
    def makes_own_pixels(self) -> bool:
        """Whether each block makes all planes of some pixels, of nothing but these pixels."""
        job = self._job
        return (
            job is not None
            and job.side == 1
            and not job.last
            and all(depth(job, shape) == 1 for shape in self._candidates)
        )

    @property
    def resizes(self) -> bool:
        """Whether pixels at the edges of the result are for another kernel."""
        return self._step.resized is not None

    @property
    def _map_target(self) -> MapLayout | None:
        """The target's layout if it is a map of many planes."""
        is_map = self._step.target.value != self.program.result
        return self._target if is_map and isinstance(self._target, MapLayout) else None

    @property
    def _each(self) -> int:
        """Planes of a pixel of the target's part, padded."""
        assert isinstance(self._target, MapLayout)
        return self._target.parts[self._step.target.part]

    @property
    def _outputs(self) -> int:
        """Planes of the result, padded for a map, or for what a first one makes."""
        return self._each * self._step.depth_to_space**2 if self._map_target else PLANE_UNIT

    @cached_property
    def _output_places(self) -> NDArray[np.intp]:
        """Where the planes of the result stand among the padded ones."""
        pixels = self._step.depth_to_space**2
        if self._map_target is None:
            return np.arange(self._step.out_planes)
        planes = np.arange(self._step.out_planes // pixels)
        places: NDArray[np.intp] = np.arange(pixels)[:, np.newaxis] * self._each + planes
        return places.ravel()

    # A first one.

    def _first(self, task: Task) -> Launch:
        step, pixels = self._step, self._pixels_read(task)
        box = self.computed(task)
        bits, geometry = pixels
        rows, columns = box.height, box.width
        across, down, pictures = task.grid
        extent = LayerExtent(rows, columns, across=across, pictures=pictures)
        beyond = step.taps - 1
        cell = MapArguments(rows=rows + beyond, columns=columns + beyond)
        if pictures > 1:
            rows, columns = down * cell.rows - beyond, across * cell.columns - beyond
        is_picture = step.source.value == 0
        chosen: Macros = {
            "COLUMNS": COLUMNS,
            "ROWS": _FIRST_ROWS,
            "KERNEL": step.taps,
            "IN_PLANES": step.in_planes,
            "IN_PIXEL": bits,
            "ENLARGE": step.source.enlarge,
            "BORDER": BORDERS[self.program.model.border] if is_picture else 0,
            "OUT_PLANES": self._outputs,
            "TERMS": self._terms,
            "SM75": int(is_sm75(self.runtime.capability)),
            "LAST": int(self._map_target is None),
            **self.store_macros(task, box),
        }

        def arguments() -> Arguments:
            def weights() -> NDArray[Any]:
                weight = placed(step.weight, 0, self._output_places, self._outputs)
                return pack_first(weight, _PIXEL_UNITS[bits], self._map_target is None)

            source = task.batch.source
            address = address_of(source.buffer) if is_picture else task.address(step.source.value)
            conv = TensorConvArguments(
                address,
                self.uploaded(bits, weights),
                self._epilogue(self._outputs),
                self.target_address(task),
                *self.stores(task, box, cell, extent),
            )
            return structs(conv, geometry)

        blocks = (-(-columns // COLUMNS), -(-rows // _FIRST_ROWS), self._outputs // 32)
        return self.launch_of(("tensor_first", chosen), _FIRST_ROWS * _WARP, 0, blocks, arguments)

    def _pixels_read(self, task: Task) -> tuple[int, SourceArguments]:
        """The macro PIXEL, and where a first one reads."""
        view, box = self._step.source, self.computed(task)
        top, left = box.top + view.offset, box.left + view.offset
        if view.value == 0:
            source = task.batch.source
            size = source.shape[1:3]
            bits = 8 * source.dtype.itemsize
            return bits, SourceArguments(*size, top, left, self.program.model.padding)
        held = task.places[view.value].box
        return 0, SourceArguments(held.height, held.width, top - held.top, left - held.left, 0)

    # Any other.

    def _conv(self, task: Task) -> Launch:
        step, job, source = self._step, self._job, self._source
        assert job is not None
        assert isinstance(source, MapLayout)
        held = task.places[step.source.value].box
        whole = self.computed(task)
        box = self._without_margin(task, whole)
        top = box.top + step.source.offset - held.top // source.space_to_depth
        left = box.left + step.source.offset - held.left // source.space_to_depth
        read = source.arguments(held, task.grid, top, left)
        rows, columns = box.height, box.width
        across, down, pictures = task.grid
        if pictures > 1:
            rows = down * read.rows - (job.side - 1)
            columns = across * read.columns - (job.side - 1)
        shape = self._shape((rows, columns))
        tiles_across = -(-columns // results(job, shape))
        tiles_down = -(-rows // shape.rows)
        tiles = tiles_across * tiles_down
        counted = tiles_down if shape.is_row_by_row else tiles
        extent = LayerExtent(box.height, box.width, tiles_across, counted, across, pictures)
        width = shape.width(job)
        chosen: Macros = {
            **macros(job, shape),
            "ROWS_BEYOND": ROWS_BEYOND,
            "COLUMNS_BEYOND": COLUMNS_BEYOND,
            "STORED_GROUPS": source.stored // source.group,
            "FIRST_GROUP": source.start(step.source.first) // source.group,
            "SCALED": int(step.factors is not None),
            "IN_EACH": source.parts[step.source.first],
            "MARGIN": int(box is not whole),
            **self._gate_macros(),
            **self.store_macros(task, box),
        }

        def arguments() -> Arguments:
            pack = pack_last if job.tap_columns else pack_middle if job.last else shape.pack
            planes = width if job.last else job.outputs
            return structs(
                TensorConvArguments(
                    task.address(step.source.value),
                    self.uploaded(
                        (shape.stem, width),
                        lambda: self._with_gate(pack(self._weight, width, job.group, job.terms)),
                    ),
                    self._epilogue(planes),
                    self.target_address(task),
                    *self.stores(task, box, read, extent, whole),
                )
            )

        blocks = (
            grid(job, shape, tiles, self.runtime.limits.compute_units),
            1,
            1,
        )
        return self.launch_of(
            (shape.stem, chosen), shape.threads(job), shape.shared(job), blocks, arguments
        )

    def _shape(self, size: Size) -> Shape:
        """How work of so many rows and columns is cut."""
        job = self._job
        assert job is not None
        best_first, size_class = ranked(
            job, self._candidates, *size, self.runtime.limits.compute_units
        )
        key = size_class, best_first[0]
        if key not in self._shapes:
            self._shapes[key] = self._choose(self.number, best_first, f"{job} {size_class}")
        return self._shapes[key]

    @cached_property
    def _weight(self) -> NDArray[Any]:
        """(outputs, inputs, side, side), padded as maps are."""
        step, job = self._step, self._job
        assert job is not None
        outputs = job.outputs if job.tap_columns or not job.last else job.width
        taps = sparse_taps(step) if job.sparse_taps > 1 else step.weight
        weight = placed(taps, 0, self._output_places, outputs)
        return placed(weight, 1, self.input_places, job.inputs)

    def _gate_macros(self) -> Macros:
        gate = self._step.own_gate
        if gate is None:
            return {}
        text = activation_macro(gate.activation, self._terms)["ACTIVATE(x, slope)"]
        return {"GATE_ACTIVATE(x)": text}

    def _with_gate(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Packed weights, and behind them those of its own gate, if it has one."""
        gate = self._step.own_gate
        if gate is None:
            return weights
        weight = gate.weight
        for axis in (0, 1):
            weight = placed(weight, axis, self._output_places, ROWS_WIDTH)
        behind = swizzled(weight.astype(np.float16), ROWS_WIDTH)
        return np.concatenate([weights.ravel(), behind.ravel()])

    @cached_property
    def input_places(self) -> NDArray[np.intp]:
        """Where the planes that it reads stand among the stored ones."""
        view, source = self._step.source, self._source
        assert isinstance(source, MapLayout)
        planes = self.program.values[view.value].parts[view.first : view.first + view.parts]
        return source.planes(view.first, planes)

    # What they share.

    def _epilogue(self, planes: int) -> Address:
        step, places = self._step, self._output_places

        def packed() -> NDArray[np.float32]:
            epilogue = pack_epilogue(step.bias, step.activation, places, planes)
            if step.own_gate is None:
                return epilogue
            return np.vstack([epilogue, placed(step.own_gate.bias, 0, places, planes)])

        return self.uploaded("epilogue", packed)

    def computed(self, task: Task) -> Box:
        """The results that are computed: those of the target's part that is in memory."""
        box, d2s = task.boxes[self.number], self._step.depth_to_space
        if self._map_target is None:
            return box
        held = task.places[self._step.target.value].box
        top, left = larger(box.top, -(-held.top // d2s)), larger(box.left, -(-held.left // d2s))
        bottom = smaller(box.bottom, held.bottom // d2s)
        right = smaller(box.right, held.right // d2s)
        return Box(top, left, bottom - top, right - left)

    def _without_margin(self, task: Task, box: Box) -> Box:
        """The results of a box that are not zeros around the picture; the very box if all are, or
        if the kernel makes zeros of what it computes there."""
        value, d2s = self._step.target.value, self._step.depth_to_space
        clears = (
            self._map_target is not None
            and self._units == "wgmma"
            and task.grid.pictures == 1
            and self.reaches_out(value, self._made(box), task)
        )
        if not clears:
            return box
        rows, columns = task.batch.sizes[value]
        top, left = larger(box.top, 0), larger(box.left, 0)
        bottom, right = smaller(box.bottom, -(-rows // d2s)), smaller(box.right, -(-columns // d2s))
        return Box(top, left, bottom - top, right - left)

    def _made(self, box: Box) -> Box:
        """The target's pixels."""
        return Box(*(number * self._step.depth_to_space for number in box))

    def store_macros(self, task: Task, box: Box) -> dict[str, str | int]:
        """The macros of a kernel's epilogue and store."""
        step, target = self._step, self._map_target
        result: dict[str, str | int] = {
            "D2S": step.depth_to_space,
            "ZERO": int(self.reaches_out(step.target.value, self._made(box), task)),
            "PLANE_SLOPES": int(has_plane_slopes(step.activation)),
            "RESIDUAL": int(step.residual is not None),
            "GATED": int(step.join == GATE),
            "MULTIPLIED": int(step.join == MULTIPLY),
            "SCALED_RESIDUAL": int(step.residual_factors is not None),
            "STACK": int(task.grid.pictures > 1),
            "BOUNDED": int(task.check.is_bounded),
            **activation_macro(step.activation, self._terms),
        }
        if target is None:
            is_result = step.target.value == self.program.result
            pixels = task.batch.target.dtype.itemsize if is_result else 0
            result["PLANES"] = step.out_planes // step.depth_to_space**2
            result["PIXEL"] = 8 * pixels
        else:
            result["OUT_GROUP"] = target.group
            result["OUT_STORED"] = target.stored
            result["EACH"] = self._each
            result["PART"] = target.start(step.target.part)
            result["S2D"] = target.space_to_depth
        if step.residual and step.residual.value == 0:
            result |= self.picture_macros(task)
        elif target and step.residual:
            added = self._layouts[step.residual.value]
            assert isinstance(added, MapLayout)
            result["RESIDUAL_GROUP"] = added.group
            result["RESIDUAL_STORED"] = added.stored
            result["RESIDUAL_PART"] = added.start(step.residual.first)
        return result

    def picture_macros(self, task: Task) -> dict[str, str | int]:
        """The macros of a kernel that adds the picture, if it does."""
        step, result = self._step, dict[str, str | int]()
        if step.residual is None:
            return result
        result["RESIDUAL_PIXEL"] = 8 * task.batch.source.dtype.itemsize
        result["RESIDUAL_ENLARGE"] = step.residual.enlarge
        result["BORDER"] = BORDERS[self.program.model.border]
        if step.resized:
            result["RESIDUAL_BLEND"] = f"{step.resized.blend!r}f"
        return result

    def target_address(self, task: Task) -> Address:
        """Where what it makes begins."""
        if self._step.target.value == self.program.result:
            return address_of(task.batch.target.buffer)
        return task.address(self._step.target.value)

    def stores(
        self,
        task: Task,
        box: Box,
        read: MapArguments,
        extent: LayerExtent,
        whole: Box = NOTHING,
    ) -> tuple[Any, ...]:
        """TensorConvArguments from `residual` on."""
        step, grid, d2s = self._step, task.grid, self._step.depth_to_space
        made = self._made(box)
        rows, columns = task.batch.sizes[step.target.value]
        valid = Range(-made.top, -made.left, rows - made.top, columns - made.left)
        stored = Range()
        if self._map_target:
            held = task.places[step.target.value].box
            top, left = made.top - held.top, made.left - held.left
            write = self._map_target.arguments(held, grid, top, left)
        else:
            held, wanted, pixels = self._pixels_written(task)
            top, left = made.top - held.top, made.left - held.left
            write = MapArguments(
                pitch=pixels[1], top=top, left=left, rows=pixels[0], columns=pixels[1]
            )
            stored = Range(
                wanted.top - held.top,
                wanted.left - held.left,
                wanted.bottom - held.top,
                wanted.right - held.left,
            )
        residual, added = Address(0), MapArguments()
        if step.residual and step.residual.value == 0:
            source, enlarge = task.batch.source, step.residual.enlarge
            residual = address_of(source.buffer)
            first = step.residual.offset - self.program.model.padding * enlarge
            top, left = made.top + first, made.left + first
            added = MapArguments(0, 0, top, left, *source.shape[1:3])
        elif step.residual:
            residual = task.address(step.residual.value)
            layout, held = (
                self._layouts[step.residual.value],
                task.places[step.residual.value].box,
            )
            offset = step.residual.offset // d2s
            top = box.top + offset - held.top // d2s
            left = box.left + offset - held.left // d2s
            if isinstance(layout, MapLayout):
                added = layout.arguments(held, grid, top, left)
            else:
                added = MapArguments(
                    pitch=held.width, top=top, left=left, rows=held.height, columns=held.width
                )
        slope = np.float32(step.activation.slopes[0])
        factor, check = np.float32(step.factor), task.check
        margin = Range(
            whole.top - box.top,
            whole.left - box.left,
            whole.bottom - box.top,
            whole.right - box.left,
        )
        places = read, write, added, extent, valid, stored
        factors = self._factors(task, step.factors), self._factors(task, step.residual_factors)
        scaled = *factors, task.vectors.vectors_each, margin
        return residual, check.flags, *places, factor, slope, check.beyond, *scaled

    def _factors(self, task: Task, vector: int | None) -> Address:
        """The address of the elements of a vector, if there is one."""
        if vector is None:
            return Address(0)
        return Address(task.vectors.vectors + 4 * self._vector_places[vector])

    def _pixels_written(self, task: Task) -> tuple[Box, Box, Size]:
        """The box of each picture that there is memory for, what of it is wanted, its rows and
        columns."""
        value = self._step.target.value
        if value == self.program.result:
            held = task.batch.target_box
            return held, task.batch.tile, task.batch.target.shape[1:3]
        held = task.places[value].box
        return held, held, (held.height, held.width)


def sparse_taps(step: Conv) -> NDArray[np.float32]:
    """The weight (out, in, 2, 2) of the taps that are not zero, where `has_sparse_taps`.

    Of each pixel [dy][dx] that a result becomes by depth-to-space (D2S), those are the taps from
    [dy * 2 / D2S][dx * 2 / D2S] on.
    """
    d2s = step.depth_to_space
    made, read = step.out_planes // d2s**2, step.in_planes
    pixels = step.weight.reshape(d2s, d2s, made, read, step.taps, step.taps)
    taps = np.empty((d2s, d2s, made, read, _SPARSE_SIDE, _SPARSE_SIDE), np.float32)
    for dy, dx in np.ndindex(d2s, d2s):
        y, x = dy * _SPARSE_SIDE // d2s, dx * _SPARSE_SIDE // d2s
        taps[dy, dx] = pixels[dy, dx, :, :, y : y + _SPARSE_SIDE, x : x + _SPARSE_SIDE]
    return taps.reshape(-1, read, _SPARSE_SIDE, _SPARSE_SIDE)


def has_sparse_taps(step: Conv) -> bool:
    """Whether all other taps are zero: behind an enlargement, and of transposed convolutions."""
    if step.taps != 3 or step.depth_to_space == 1:
        return False
    return bool(np.count_nonzero(sparse_taps(step)) == np.count_nonzero(step.weight))
