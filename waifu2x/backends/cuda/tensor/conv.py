"""Runs convolutions on matrix units: packs their weights, and makes their launches."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.arguments import Address
from waifu2x.backends.cuda.tensor.activation import activation_macro, has_plane_slopes, join_macro
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
    TensorContext,
    TensorStep,
    TensorTask,
    within,
)
from waifu2x.backends.cuda.tensor.units import is_sm75
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.backends.gpu.device.runtime import Buffer, Macros
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.symbols import larger, smaller
from waifu2x.networks.expressions import GELU, LEAKY, MISH, SILU
from waifu2x.networks.model import Size

NOTHING = Box(0, 0, 0, 0)
_FIRST_ROWS = 4
_WARP = 32
_SPARSE_SIDE = 2
"""The side of the kernels of `sparse_taps`."""
_PIXEL_UNITS = {8: 256 / 255, 16: 65536 / 65535, 32: 1.0, 0: 1.0}
"""The number by which kernels read a pixel value of 1, by the macro PIXEL: integers become
fractions of a power of two."""

PASSING = (LEAKY, SILU, MISH, GELU)
"""Activations that preserve infinite sums and NaN."""


class TensorConvStep(TensorStep[Conv]):
    """A convolution: a first one, which reads pixels, a last one, which writes them, or any other.

    Pixels include maps of few planes.
    """

    def __init__(self, context: TensorContext, number: int) -> None:
        super().__init__(context, number)
        step = self.step
        self._source = self.layouts[step.source.value]
        self._target = self.layouts[step.target.value]
        self._is_first = step.source.value == 0 or isinstance(self._source, FewLayout)
        self._job = None if self._is_first else self._found_job()
        if self._job is not None:
            limits = context.runtime.capability, context.runtime.shared_bytes
            self._candidates = candidates(self._job, context.units, *limits)
            depths = {depth(self._job, shape) for shape in self._candidates}
            self.makes_own_pixels = self._job.side == 1 and not self._job.last and depths == {1}
        self._shapes: dict[tuple[str, Shape], Shape] = {}
        """The chosen shapes, by class of sizes and its default shape."""

    def _found_job(self) -> TensorJob:
        step, source, target = self.step, self.layout(self.step.source.value), self._map_target
        last = target is None
        parts = source.parts[step.source.first : step.source.first + step.source.parts]
        sparse = not last and has_sparse_taps(step)
        return TensorJob(
            inputs=sum(parts) * source.space_to_depth**2,
            group=source.group,
            outputs=step.out_planes if last else self._outputs,
            side=_SPARSE_SIDE if sparse else step.taps,
            terms=self.context.terms,
            last=last,
            sparse_taps=step.depth_to_space**2 if sparse else 1,
            padding=source.group - 1 - int((self.input_places % source.group).max()),
            scales=step.residual_factors is not None,
            folds=target is not None and target.space_to_depth > 1,
            hides=step.activation.function not in PASSING,
            own_gate=step.own_gate is not None,
        )

    def launch(self, task: TensorTask) -> Launch:
        return self._first(task) if self._is_first else self._conv(task)

    @property
    def resizes(self) -> bool:
        """Whether another kernel computes the pixels at the edges of the result."""
        return self.step.resized is not None

    @property
    def _map_target(self) -> MapLayout | None:
        """The target's layout if it is a map of many planes."""
        is_map = self.step.target.value != self.program.result
        return self._target if is_map and isinstance(self._target, MapLayout) else None

    @property
    def _each(self) -> int:
        """The planes of a pixel of the target's part, padded."""
        assert isinstance(self._target, MapLayout)
        return self._target.parts[self.step.target.part]

    @property
    def _outputs(self) -> int:
        """The planes of the result, padded for a map or for a first convolution."""
        return self._each * self.step.depth_to_space**2 if self._map_target else PLANE_UNIT

    @cached_property
    def _output_places(self) -> NDArray[np.intp]:
        """The index of each plane of the result among the padded ones."""
        pixels = self.step.depth_to_space**2
        if self._map_target is None:
            return np.arange(self.step.out_planes)
        planes = np.arange(self.step.out_planes // pixels)
        places: NDArray[np.intp] = np.arange(pixels)[:, np.newaxis] * self._each + planes
        return places.ravel()

    # A first convolution.

    def _first(self, task: TensorTask) -> Launch:
        step, box = self.step, self.computed(task)
        bits, geometry = self._pixels_read(task)
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
            "TERMS": self.context.terms,
            "SM75": int(is_sm75(self.runtime.capability)),
            "LAST": int(self._map_target is None),
            **self.store_macros(task, box),
        }

        def weights() -> NDArray[Any]:
            weight = placed(step.weight, 0, self._output_places, self._outputs)
            return pack_first(weight, _PIXEL_UNITS[bits], self._map_target is None)

        fields = {
            "in": task.batch.source.buffer if is_picture else task.address(step.source.value),
            "weights": self.uploaded(bits, weights),
            "epilogue": self._epilogue(self._outputs),
            **self.stores(task, box, cell, extent),
        }
        blocks = (-(-columns // COLUMNS), -(-rows // _FIRST_ROWS), self._outputs // 32)
        spec = KernelSpec("tensor_first", chosen, _FIRST_ROWS * _WARP)
        return self.launch_with(spec, blocks, fields, geometry)

    def _pixels_read(self, task: TensorTask) -> tuple[int, SourceArguments]:
        """Returns the macro PIXEL, and the source of a first convolution."""
        view, box = self.step.source, self.computed(task)
        top, left = box.top + view.offset, box.left + view.offset
        if view.value == 0:
            source = task.batch.source
            size = source.shape[1:3]
            bits = 8 * source.dtype.itemsize
            return bits, SourceArguments(*size, top, left, self.program.model.padding)
        held = task.places[view.value].box
        return 0, SourceArguments(held.height, held.width, top - held.top, left - held.left, 0)

    # Any other convolution.

    def _conv(self, task: TensorTask) -> Launch:
        step, job, source = self.step, self._job, self.layout(self.step.source.value)
        assert job is not None
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

        pack = pack_last if job.tap_columns else pack_middle if job.last else shape.pack
        fields = {
            "in": task.address(step.source.value),
            "weights": self.uploaded(
                (shape.stem, width),
                lambda: self._with_gate(pack(self._weight, width, job.group, job.terms)),
            ),
            "epilogue": self._epilogue(width if job.last else job.outputs),
            **self.stores(task, box, read, extent, whole),
        }
        blocks = grid(job, shape, tiles, self.runtime.limits.compute_units)
        spec = KernelSpec(shape.stem, chosen, shape.threads(job), shared=shape.shared(job))
        return self.launch_with(spec, (blocks, 1, 1), fields)

    def _shape(self, size: Size) -> Shape:
        """Returns the shape for results of that size."""
        job = self._job
        assert job is not None
        best_first, size_class = ranked(
            job, self._candidates, *size, self.runtime.limits.compute_units
        )
        key = size_class, best_first[0]
        if key not in self._shapes:
            self._shapes[key] = self.context.choose(self.number, best_first, f"{job} {size_class}")
        return self._shapes[key]

    @cached_property
    def _weight(self) -> NDArray[Any]:
        """Returns the weight (outputs, inputs, side, side), padded as maps are."""
        step, job = self.step, self._job
        assert job is not None
        outputs = job.outputs if job.tap_columns or not job.last else job.width
        taps = sparse_taps(step) if job.sparse_taps > 1 else step.weight
        weight = placed(taps, 0, self._output_places, outputs)
        return placed(weight, 1, self.input_places, job.inputs)

    def _gate_macros(self) -> Macros:
        gate = self.step.own_gate
        if gate is None:
            return {}
        text = activation_macro(gate.activation, self.context.terms)["ACTIVATE(x, slope)"]
        return {"GATE_ACTIVATE(x)": text}

    def _with_gate(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Returns the packed weights, followed by those of the step's own gate, if any."""
        gate = self.step.own_gate
        if gate is None:
            return weights
        weight = gate.weight
        for axis in (0, 1):
            weight = placed(weight, axis, self._output_places, ROWS_WIDTH)
        behind = swizzled(weight.astype(np.float16), ROWS_WIDTH)
        return np.concatenate([weights.ravel(), behind.ravel()])

    @cached_property
    def input_places(self) -> NDArray[np.intp]:
        """The index of each input plane among the stored ones."""
        view = self.step.source
        planes = self.program.values[view.value].parts[view.first : view.first + view.parts]
        return self.layout(view.value).planes(view.first, planes)

    # All convolutions.

    def _epilogue(self, planes: int) -> Buffer:
        step, places = self.step, self._output_places

        def packed() -> NDArray[np.float32]:
            epilogue = pack_epilogue(step.bias, step.activation, places, planes)
            if step.own_gate is None:
                return epilogue
            return np.vstack([epilogue, placed(step.own_gate.bias, 0, places, planes)])

        return self.uploaded("epilogue", packed)

    def computed(self, task: TensorTask) -> Box:
        """Returns the box of results to compute: those whose part of the target is in memory."""
        box, d2s = task.boxes[self.number], self.step.depth_to_space
        if self._map_target is None:
            return box
        held = task.places[self.step.target.value].box
        top, left = larger(box.top, -(-held.top // d2s)), larger(box.left, -(-held.left // d2s))
        bottom = smaller(box.bottom, held.bottom // d2s)
        right = smaller(box.right, held.right // d2s)
        return Box(top, left, bottom - top, right - left)

    def _without_margin(self, task: TensorTask, box: Box) -> Box:
        """Returns a box without its zeros outside the target's size; the same object if it has
        none, or if the kernel itself writes zeros there."""
        value, d2s = self.step.target.value, self.step.depth_to_space
        clears = (
            self._map_target is not None
            and self.context.units == "wgmma"
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
        """Returns the box of target pixels that a box of results becomes."""
        return Box(*(number * self.step.depth_to_space for number in box))

    def store_macros(self, task: TensorTask, box: Box) -> dict[str, str | int]:
        """Returns the macros of a kernel's epilogue and store."""
        step, target = self.step, self._map_target
        result: dict[str, str | int] = {
            "D2S": step.depth_to_space,
            "ZERO": int(self.reaches_out(step.target.value, self._made(box), task)),
            "PLANE_SLOPES": int(has_plane_slopes(step.activation)),
            "RESIDUAL": int(step.residual is not None),
            "SCALED_RESIDUAL": int(step.residual_factors is not None),
            "STACK": int(task.grid.pictures > 1),
            "BOUNDED": int(task.check.is_bounded),
            **activation_macro(step.activation, self.context.terms),
            **join_macro(step.join, self.context.terms),
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
            added = self.layout(step.residual.value)
            result["RESIDUAL_GROUP"] = added.group
            result["RESIDUAL_STORED"] = added.stored
            result["RESIDUAL_PART"] = added.start(step.residual.first)
        return result

    def picture_macros(self, task: TensorTask) -> dict[str, str | int]:
        """Returns the macros of the addition of the picture; none if the step does not add it."""
        step, result = self.step, dict[str, str | int]()
        if step.residual is None:
            return result
        result["RESIDUAL_PIXEL"] = 8 * task.batch.source.dtype.itemsize
        result["RESIDUAL_ENLARGE"] = step.residual.enlarge
        result["BORDER"] = BORDERS[self.program.model.border]
        if step.resized:
            result["RESIDUAL_BLEND"] = f"{step.resized.blend!r}f"
        return result

    def stores(
        self,
        task: TensorTask,
        box: Box,
        read: MapArguments,
        extent: LayerExtent,
        whole: Box = NOTHING,
    ) -> dict[str, Any]:
        """Returns the fields of `Conv` in `kernels/tensor.cuh` for a box of results, without
        source, weights and epilogue. `whole` is the box with the zeros to write around it."""
        step, made, check = self.step, self._made(box), task.check
        rows, columns = task.batch.sizes[step.target.value]
        return {
            **self._written(task, made),
            **self._added(task, box, made),
            "from": read,
            "extent": extent,
            "valid": Range(-made.top, -made.left, rows - made.top, columns - made.left),
            "flags": check.flags,
            "beyond": check.beyond,
            "factor": step.factor,
            "slope": step.activation.slopes[0],
            "factors": self.vector(task, step.factors),
            "added_factors": self.vector(task, step.residual_factors),
            "factors_each": task.vectors.vectors_each,
            "margin": within(whole, box),
        }

    def _written(self, task: TensorTask, made: Box) -> dict[str, Any]:
        """Returns the fields of the target, where the pixels `made` are computed."""
        value = self.step.target.value
        if self._map_target:
            held = task.places[value].box
            top, left = made.top - held.top, made.left - held.left
            to = self._map_target.arguments(held, task.grid, top, left)
            return {"out": task.address(value), "to": to, "stored": None}
        if value == self.program.result:
            batch = task.batch
            held, wanted, (rows, columns) = batch.target_box, batch.tile, batch.target.shape[1:3]
            out: Buffer | Address = batch.target.buffer
        else:
            held = wanted = task.places[value].box
            rows, columns, out = held.height, held.width, task.address(value)
        to = MapArguments(columns, 0, made.top - held.top, made.left - held.left, rows, columns)
        return {"out": out, "to": to, "stored": within(wanted, held)}

    def _added(self, task: TensorTask, box: Box, made: Box) -> dict[str, Any]:
        """Returns the fields of the map or picture that is added to a box of results."""
        view = self.step.residual
        if view is None:
            return {"residual": None, "added": None}
        if view.value == 0:
            source = task.batch.source
            first = view.offset - self.program.model.padding * view.enlarge
            size = source.shape[1:3]
            added = MapArguments(0, 0, made.top + first, made.left + first, *size)
            return {"residual": source.buffer, "added": added}
        layout, held = self.layouts[view.value], task.places[view.value].box
        d2s = self.step.depth_to_space
        offset = view.offset // d2s
        top = box.top + offset - held.top // d2s
        left = box.left + offset - held.left // d2s
        if isinstance(layout, MapLayout):
            added = layout.arguments(held, task.grid, top, left)
        else:
            added = MapArguments(held.width, 0, top, left, held.height, held.width)
        return {"residual": task.address(view.value), "added": added}


def sparse_taps(step: Conv) -> NDArray[np.float32]:
    """Returns the nonzero taps (out, in, 2, 2) of a step with `has_sparse_taps`.

    They are the taps from [dy * 2 / D2S][dx * 2 / D2S] on, for each pixel [dy][dx] that a result
    becomes by depth-to-space (D2S).
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
    """Returns whether all taps but those of `sparse_taps` are zero: behind an enlargement, and in
    transposed convolutions."""
    if step.taps != 3 or step.depth_to_space == 1:
        return False
    return bool(np.count_nonzero(sparse_taps(step)) == np.count_nonzero(step.weight))
