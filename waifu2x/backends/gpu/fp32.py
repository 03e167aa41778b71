"""The fp32 road, on the multiply-add units of any device."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.backends.gpu import direct, winograd, winograd_vector
from waifu2x.backends.gpu.direct import DirectLayer
from waifu2x.backends.gpu.peak import multiply_add_peak
from waifu2x.backends.gpu.road import (
    DeviceWindow,
    Layer,
    Map,
    Region,
    Source,
    Target,
    reads,
    regions,
    whole,
)
from waifu2x.backends.gpu.runtime import Buffer, Kernel, Limits, Runtime
from waifu2x.backends.gpu.tuning import Choose, Kept
from waifu2x.backends.gpu.winograd import WinogradLayer
from waifu2x.backends.gpu.winograd_vector import VectorWinogradLayer
from waifu2x.model import Convolution, Model
from waifu2x.tiling import Box

_FLOAT_BYTES = 4

Shape = direct.Shape | winograd.Shape | winograd_vector.Shape


class Fp32Road:
    """See Road. Each layer's maps go from one of two scratch buffers to the other."""

    def __init__(self, runtime: Runtime, model: Model, choose: Choose | None = None) -> None:
        """Raises BackendError for kernels that cannot be built, OutOfMemoryError."""
        self._runtime = runtime
        self._scale = model.scale
        choose = choose or Kept(runtime.device, model)
        self._layers: list[Layer] = []
        for index, layer in enumerate(model.convolutions):
            shape = choose(index, candidates(runtime.limits, model, index))
            self._layers.append(_make(runtime, layer, shape))

    def reads(self, tile: Box) -> Box:
        """See Road."""
        return reads(tile, len(self._layers), self._scale)

    def scratch(self, tile: Box) -> Sequence[int]:
        """See Road."""
        sizes = [0, 0]
        for index, (rows, columns) in enumerate(self._allocated(tile)):
            size = rows * columns * self._layers[index].planes * _FLOAT_BYTES
            sizes[index % 2] = max(sizes[index % 2], size)
        return sizes

    def run(
        self, source: DeviceWindow, tile: Box, target: DeviceWindow, scratch: Sequence[Buffer]
    ) -> None:
        """See Road."""
        spans = regions(tile, len(self._layers))
        maps = [
            Map(scratch[index % 2], rows, columns)
            for index, (rows, columns) in enumerate(self._allocated(tile))
        ]
        inputs: list[Map | Source] = [Source(source, spans[0], self._scale), *maps]
        outputs: list[Map | Target] = [*maps, Target(target, spans[-1], tile)]
        for layer, before, after, span in zip(self._layers, inputs, outputs, spans, strict=True):
            layer.launch(before, after, span.rows, span.columns)

    def layer(self, kernel: Kernel) -> int:
        """See Road."""
        return next(i for i, layer in enumerate(self._layers) if layer.owns(kernel))

    def peak(self) -> float:
        """See Road."""
        return multiply_add_peak(self._runtime)

    def close(self) -> None:
        """See Road."""
        for layer in self._layers:
            layer.close()

    def _allocated(self, tile: Box) -> list[tuple[int, int]]:
        """Rows and columns of the maps of all layers but the last.

        Enough for the whole groups that write them and for those that read them, with the two rows
        and columns that a convolution loses.
        """
        spans = regions(tile, len(self._layers))
        sizes = []
        for index in range(len(self._layers) - 1):
            written = _whole_groups(self._layers[index], spans[index])
            read = _whole_groups(self._layers[index + 1], spans[index + 1])
            sizes.append((max(written[0], read[0] + 2), max(written[1], read[1] + 2)))
        return sizes


def candidates(limits: Limits, model: Model, index: int) -> list[Shape]:
    """Ways to cut a layer on a device, the usual one first. Any of them is right."""
    layer, last = model.convolutions[index], index == len(model.convolutions) - 1
    shapes: list[Shape] = []
    if index > 0 and not last:
        shapes += (winograd_vector if limits.is_cpu else winograd).candidates(limits, layer)
    return shapes or list(direct.candidates(limits, layer.out_planes, last))


def _make(runtime: Runtime, layer: Convolution, shape: Shape) -> Layer:
    match shape:
        case winograd.Shape():
            return WinogradLayer(runtime, layer, shape)
        case winograd_vector.Shape():
            return VectorWinogradLayer(runtime, layer, shape)
        case direct.Shape():
            limits = runtime.limits
            block = limits.vector if limits.is_cpu else winograd.MAP_BLOCK
            return DirectLayer(runtime, layer, block, block, shape)


def _whole_groups(layer: Layer, span: Region) -> tuple[int, int]:
    return whole(span.rows, layer.rows), whole(span.columns, layer.columns)
