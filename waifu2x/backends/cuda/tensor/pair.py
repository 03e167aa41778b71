"""Runs the last two convolutions of a network in one kernel, `kernels/tensor_pair.cu`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda.tensor.activation import activation_macro, has_plane_slopes
from waifu2x.backends.cuda.tensor.conv import PASSING, TensorConvStep
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapLayout
from waifu2x.backends.cuda.tensor.pack import pack_epilogue, pack_rows, swizzled
from waifu2x.backends.cuda.tensor.step import (
    LayerExtent,
    Range,
    TensorContext,
    TensorStep,
    TensorTask,
)
from waifu2x.backends.gpu.device.launch import KernelSpec, Launch
from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.plan.geometry import read_by
from waifu2x.lowering.plan.symbols import smaller
from waifu2x.lowering.program import Program

_PLANES = 64
_MOST_RESULTS = 3
_SIDE = 5
"""The side of the receptive field of both together."""
_COLUMNS = 128
_RESULTS = _COLUMNS - 2
_PITCH = _COLUMNS + 16
_RING = 5
_PARTS = 32
"""The columns of the second matrix product: its taps times its planes, padded."""
_WARPGROUPS = 2
_THREADS = (_WARPGROUPS + 1) * 128
_PIXEL_BYTES = _PLANES * 2
_SHARED = (_WARPGROUPS * (_RING * _PITCH + _COLUMNS) + _PARTS) * _PIXEL_BYTES + _WARPGROUPS * (
    2 * _RING + 1
) * 8
_KEPT_BYTES = _WARPGROUPS * 128 * 2 * 4
"""The bytes of shared memory for partial sums of each plane of the result."""


def has_pair(program: Program, layouts: Sequence[MapLayout | FewLayout]) -> bool:
    """Returns whether a program ends with two convolutions that one kernel can run."""
    number = len(program.steps) - 1
    if number < 1:
        return False
    first, last = program.steps[number - 1 :]
    if not isinstance(first, Conv) or not isinstance(last, Conv):
        return False
    value, source = first.target.value, layouts[first.source.value]
    between = layouts[value]
    return (
        # The source's memory may be reused from the first one on, so the pair may write only
        # pixels.
        last.target.value == program.result
        and last.source.value == value
        and last.source.parts == first.source.parts == 1
        and read_by(program)[value] == [number]
        and first.source.value != 0
        and isinstance(source, MapLayout)
        and isinstance(between, MapLayout)
        and (source.group, source.parts[first.source.first]) == (_PLANES, _PLANES)
        and between.parts == (_PLANES,)
        and source.space_to_depth == between.space_to_depth == 1
        and _is_plain(first)
        and first.residual is None
        and first.activation.function in PASSING
        and _is_plain(last)
        and last.out_planes <= _MOST_RESULTS
        and (last.residual is None or last.residual.value != value)
        and bisect_right(program.cuts, number - 1) == bisect_right(program.cuts, number)
    )


def _is_plain(conv: Conv) -> bool:
    return (
        conv.taps == 3
        and conv.depth_to_space == 1
        and conv.factors is None
        and conv.adds
        and not conv.resized
        and (conv.factor == 1 or conv.residual is not None)
    )


class TensorPairStep(TensorStep[Conv]):
    """Runs the first by the method of `tensor_rows.cu`, and the last, which makes pixels."""

    def __init__(self, context: TensorContext, last: TensorConvStep) -> None:
        super().__init__(context, last.number - 1)
        self._second, self._last = last.step, last

    def launch(self, task: TensorTask) -> Launch:
        """Returns the launch for the results of the last one that a task computes."""
        first, source, last = self.step, self.layout(self.step.source.value), self._last
        held, box = task.places[first.source.value].box, last.computed(task)
        offset = first.source.offset + self._second.source.offset
        read = source.arguments(
            held, task.grid, box.top + offset - held.top, box.left + offset - held.left
        )
        rows, columns = box.height, box.width
        across, down, pictures = task.grid
        if pictures > 1:
            rows = down * read.rows - (_SIDE - 1)
            columns = across * read.columns - (_SIDE - 1)
        strips = -(-columns // _RESULTS)
        extent = LayerExtent(box.height, box.width, strips, rows, across, pictures)
        sizes = task.batch.sizes[first.target.value]
        top, left = box.top + self._second.source.offset, box.left + self._second.source.offset
        between = box.height + 2, box.width + 2
        valid = Range(-top, -left, sizes[0] - top, sizes[1] - left)
        shared = _SHARED + _KEPT_BYTES * self._second.out_planes
        planes = self.program.values[first.source.value].parts[first.source.first]
        activation = activation_macro(first.activation, 1)["ACTIVATE(x, slope)"]
        chosen: Macros = {
            "IN_PLANES": _PLANES,
            "GROUP": _PLANES,
            "USED": planes,
            "STORED_GROUPS": source.stored // _PLANES,
            "FIRST_GROUP": source.start(first.source.first) // _PLANES,
            "SIDE": _SIDE,
            "WIDTH": _PLANES,
            "DEPTH": 1,
            "TERMS": 1,
            "LAST": 1,
            "TAP_COLUMNS": 0,
            "SPARSE_TAPS": 1,
            "TILE_COLUMNS": _COLUMNS,
            "TILE_RESULTS": _RESULTS,
            "ROWS": 1,
            "RING": _RING,
            "THREADS": _THREADS,
            "SHARED": shared,
            "REGISTERS": 240,
            "SPARE_REGISTERS": 24,
            "MID_ZERO": int(self.reaches_out(first.target.value, Box(top, left, *between), task)),
            "MID_PLANE_SLOPES": int(has_plane_slopes(first.activation)),
            "MID_ACTIVATE(x, slope)": activation,
            **last.store_macros(task, box),
        }

        fields = {
            "in": task.address(first.source.value),
            "weights": self.uploaded("first", self._first_weights),
            "epilogue": self.uploaded("first epilogue", self._first_epilogue),
            **last.stores(task, box, read, extent),
        }
        second = {
            "weights": self.uploaded("second", self._second_weights),
            "epilogue": self.uploaded("second epilogue", self._second_epilogue),
            "valid": valid,
            "slope": first.activation.slopes[0],
        }
        blocks = smaller(-(-strips * rows // _WARPGROUPS), self.runtime.limits.compute_units)
        spec = KernelSpec("tensor_pair", chosen, _THREADS, shared=shared)
        return self.launch_with(spec, (blocks, 1, 1), fields, second)

    def _first_weights(self) -> NDArray[np.float16]:
        weight: NDArray[np.float32] = np.zeros((_PLANES, _PLANES, 3, 3), np.float32)
        made, read = self.step.weight.shape[:2]
        weight[:made, :read] = self.step.weight
        return pack_rows(weight, _PLANES, _PLANES, 1)

    def _first_epilogue(self) -> NDArray[np.float32]:
        first = self.step
        return pack_epilogue(first.bias, first.activation, range(first.out_planes), _PLANES)

    def _second_weights(self) -> NDArray[np.float16]:
        """Returns weights (32, 64), by rows [ky][kx][plane], with vectors swizzled as in a map."""
        made, read = self._second.weight.shape[:2]
        columns: NDArray[np.float32] = np.zeros((_PARTS, _PLANES), np.float32)
        taps = self._second.weight.transpose(2, 3, 0, 1).reshape(-1, read)
        columns[: 9 * made, :read] = taps
        return swizzled(columns.astype(np.float16), _PLANES)

    def _second_epilogue(self) -> NDArray[np.float32]:
        second = self._second
        places: range = range(second.out_planes)
        return pack_epilogue(second.bias, second.activation, places, second.out_planes)
