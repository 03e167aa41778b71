"""Every map of the executor over matrix units against the definition: which step goes wrong, where.

python tests/by_hand/tensor_maps.py [MODEL ...]

Needs a device. Each value of a program gets memory of its own, so that all can be looked at when
the last step is done; a map is compared with the graph's value, in float64, as far as it is
computed. Prints the worst signal to noise ratio, in dB of a value's own size, and every value that
is wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers import obvious
from waifu2x.backends import open_backend
from waifu2x.backends.cuda.tensor.executor import TensorExecutor, scales
from waifu2x.backends.cuda.tensor.layout import FewLayout, MapLayout, batch_grid
from waifu2x.backends.cuda.tensor.pack import VECTOR_VALUES
from waifu2x.backends.cuda.tensor.units import available_units
from waifu2x.backends.gpu.device.runtime import Buffer, Runtime
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels
from waifu2x.backends.gpu.plan.tuning import StoredChoices
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.base import MapStep
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.passes.fusing import fused
from waifu2x.lowering.plan import geometry, phases
from waifu2x.lowering.plan.box import Box
from waifu2x.lowering.program import Program
from waifu2x.networks import model_set
from waifu2x.networks.model import Model

LEAST = {1: 20.0, 2: 75.0}
"""dB of every value, by the number of terms."""


def unpacked(
    raw: NDArray[np.uint8], layout: MapLayout | FewLayout, box: Box, pictures: int
) -> NDArray[np.float64]:
    """(pictures, rows, columns, planes) of a map's memory: single pixels, padding left in."""
    if isinstance(layout, FewLayout):
        shape = (pictures, box.height, box.width, layout.planes)
        return raw.view(np.float32)[: int(np.prod(shape))].reshape(shape).astype(np.float64)
    grid = batch_grid(pictures)
    arguments = layout.arguments(box, grid, 0, 0)
    pitch, rows = arguments.pitch, grid.down * arguments.rows
    groups, group, terms = layout.stored // layout.group, layout.group, layout.terms
    stored = (terms, groups, rows, pitch, group // VECTOR_VALUES, VECTOR_VALUES)
    terms_of = raw.view(np.float16)[: math.prod(stored)].reshape(stored).astype(np.float64)
    column = np.arange(pitch)
    phase = column % 8 if group == 64 else column // 2 % 4
    vector = np.arange(group // VECTOR_VALUES) ^ phase[:, np.newaxis]
    straight = terms_of[:, :, :, column[:, np.newaxis], vector].sum(0)
    planes = straight.transpose(1, 2, 0, 3, 4).reshape(rows, pitch, layout.stored)
    cells = planes[:, : grid.across * arguments.columns].reshape(
        grid.down, arguments.rows, grid.across, arguments.columns, layout.stored
    )
    each = cells.transpose(0, 2, 1, 3, 4).reshape(
        -1, arguments.rows, arguments.columns, layout.stored
    )[:pictures]
    s2d = layout.space_to_depth
    single = each.reshape(pictures, arguments.rows, arguments.columns, s2d, s2d, -1)
    planes_of: NDArray[np.float64] = single.transpose(0, 1, 3, 2, 4, 5).reshape(
        pictures, arguments.rows * s2d, arguments.columns * s2d, -1
    )
    return planes_of


class Bench:
    """A program whose maps all stay."""

    def __init__(self, runtime: Runtime, executor: Any, pixels: NDArray[Any]) -> None:
        """Runs it on (pictures, rows, columns, planes) of pixels."""
        self.program: Program = executor.program
        self._runtime = runtime
        self._executor = executor
        program, model = self.program, self.program.model
        self.pictures, height, width, _ = pixels.shape
        sizes = geometry.sizes(program, height, width)
        rows, columns = sizes[program.result]
        source = DevicePixels(runtime.allocate(pixels.nbytes), pixels.dtype, pixels.shape)
        runtime.upload(source.buffer, np.ascontiguousarray(pixels))
        shape = (self.pictures, rows, columns, model.out_planes)
        target = DevicePixels(
            runtime.allocate(int(np.prod(shape)) * 4), np.dtype(np.float32), shape
        )
        whole = Box(0, 0, rows, columns)
        everything = range(len(program.steps))
        roots = {program.result: whole}
        for step in program.steps:
            if isinstance(step, GlobalAvgPool):
                roots[step.source.value] = Box(0, 0, *sizes[step.source.value])
        work = geometry.work(program, everything, roots, executor.unit, sizes)
        self.places: dict[int, BufferPlace] = {}
        for value, box in work.values.items():
            if value not in (0, program.result):
                size = executor.map_bytes(value, box, self.pictures)
                buffer = runtime.allocate(size)
                # Bytes that nobody writes must reach no result: NaN.
                runtime.upload(buffer, np.full(size, 0xFF, np.uint8))
                self.places[value] = BufferPlace(buffer, 0, box)
        vectors = runtime.allocate(executor.vector_bytes(self.pictures) + 8)
        executor.clear(vectors, self.pictures)
        flags = executor.new_flags(self.pictures)
        batch = Batch(source, target, whole, whole, sizes, flags)
        for phase in phases.plan(program, lambda step: 1.0, lambda value: 1.0, float("inf")):
            steps = {number: work.steps[number] for number in phase.steps}
            sums = {}
            for number in phase.averages:
                step = program.steps[number]
                assert isinstance(step, GlobalAvgPool)
                sums[number] = Box(0, 0, *sizes[step.source.value])
            part = geometry.Work(work.values, steps, work.needed, work.read, work.whole)
            executor.run(batch, part, self.places, sums, vectors, phase)
        result = np.empty(shape, np.float32)
        runtime.synchronize()
        runtime.download(target.buffer, result)
        self.result = result
        self._buffers: list[Buffer] = [source.buffer, target.buffer, vectors]

    def values(self) -> Iterator[tuple[int, Box, NDArray[np.float64]]]:
        """The number, the box and the pixels of every map in memory."""
        for value, place in sorted(self.places.items()):
            layout = self._executor._layouts[value]
            raw = np.empty(place.buffer.size // 2 * 2, np.uint8)
            self._runtime.download(place.buffer, raw)
            planes = unpacked(raw, layout, place.box, self.pictures)
            yield value, place.box, planes

    def close(self) -> None:
        """Frees the maps."""
        for buffer in (*self._buffers, *(place.buffer for place in self.places.values())):
            buffer.release()


def decibels(found: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """Signal to noise ratio, in dB; NaN where any value is NaN."""
    error = float(np.mean((found - exact) ** 2))
    return float(10 * np.log10(float(np.mean(exact**2)) / (error or 1e-30)))


def check(
    runtime: Any, model: Model, units: Any, terms: int, pixels: NDArray[Any], choose: Any
) -> list[str]:
    """A line for each value that is wrong."""
    executor = TensorExecutor(
        runtime, fused(lower(model), scales=scales(units, terms)), units, terms, choose
    )
    bench = Bench(runtime, executor, pixels)
    peak: float = 1.0 if pixels.dtype.kind == "f" else float(np.iinfo(pixels.dtype).max)
    exact = [obvious.values(model, picture.astype(np.float64) / peak) for picture in pixels]
    figures, lines = [], []
    for value, box, found in bench.values():
        layout, stored = executor._layouts[value], bench.program.values[value]
        for picture, values in enumerate(exact):
            whole = values[stored.graph]
            top, left = max(box.top, 0), max(box.left, 0)
            part = whole[top : box.bottom, left : box.right]
            rows, columns = part.shape[:2]
            own = found[picture, top - box.top :, left - box.left :][:rows, :columns]
            planes = _without_padding(own, layout, stored.parts)
            figures.append(decibels(planes, part))
            if not figures[-1] > LEAST[terms]:
                bad = ~(abs(planes - part) < 0.05 * abs(part).max())
                lines.append(
                    f"  value {value} by steps {_makers(bench.program, value)}, picture {picture}:"
                    f" {figures[-1]:.1f} dB, {bad.mean():.3f} bad, from {np.argwhere(bad)[:1]}"
                )
    for picture, values in enumerate(exact):
        height, width = bench.result.shape[1:3]
        shown = values[-1][:height, :width].clip(0, 1)
        figures.append(obvious.psnr(bench.result[picture], shown))
        if not figures[-1] > LEAST[terms]:
            lines.append(f"  result, picture {picture}: {figures[-1]:.1f} dB")
    print(
        f"{model.name[-24:]:24} {units:5} terms {terms} {pixels.shape} {pixels.dtype}:"
        f" worst {np.min(figures):.1f} dB, result {figures[-1]:.1f} {'FAIL' if lines else 'PASS'}",
        *lines[:8],
        sep="\n",
        flush=True,
    )
    bench.close()
    executor.close()
    return lines


def _without_padding(
    planes: NDArray[np.float64], layout: MapLayout | FewLayout, parts: tuple[int, ...]
) -> NDArray[np.float64]:
    if isinstance(layout, FewLayout):
        return planes
    starts = [layout.start(part) for part in range(len(parts))]
    return np.concatenate(
        [planes[..., start : start + n] for start, n in zip(starts, parts, strict=True)], axis=-1
    )


def _makers(program: Program, value: int) -> list[int]:
    """The steps that write a value."""
    return [
        number
        for number, step in enumerate(program.steps)
        if isinstance(step, MapStep) and step.target.value == value
    ]


def main(names: list[str]) -> None:
    """Checks models on one picture and on three side by side."""
    backend: Any = open_backend("cuda")
    failed = 0
    for name in names:
        (model,) = model_set.find(name).models(2, None)
        for count, side in ((1, 52), (3, 36)):
            shape = (count, side, side + 18, model.in_planes)
            pixels = np.random.default_rng(count).integers(0, 256, shape, np.uint8)
            for units in available_units(backend.runtime.capability)[:-1]:
                for terms in (1, 2):
                    choose = StoredChoices(backend.device)
                    failed += bool(check(backend.runtime, model, units, terms, pixels, choose))
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:] or ["vgg_7/art", "upconv_7/art", "cunet/art"])
