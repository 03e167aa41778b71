"""A chain of models on the processor, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import OnRecomputed, Progress, ignore, scaled
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.run.plans import check_result
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.backends.results import check_out, closed_network, result_shape
from waifu2x.backends.tta import mean
from waifu2x.errors import LESS_MEMORY, DeviceMemoryError

if TYPE_CHECKING:
    from waifu2x.imaging.planar import PlanarPicture


class CpuNetwork:
    """Models one after the other, on all cores."""

    def __init__(
        self, models: Sequence[CpuModel], workers: Workers, on_close: Callable[[], None]
    ) -> None:
        """`on_close` is told when it is closed, and again after calls that were under way then."""
        self._on_close = on_close
        self.models = tuple(models)
        """Empty once it is closed."""
        self._workers = workers

    @property
    def arithmetic(self) -> str:
        """What its models compute in: int16, bf16 or fp32."""
        return ", ".join(dict.fromkeys(model.packed.arithmetic for model in self.models))

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
        """Runs whole pictures on all cores."""
        with self._call() as models:
            shape = result_shape([model.model for model in models], pixels.shape)
            check_result(shape)
            check_out(out, shape, out_dtype, pixels)
            result = np.empty(shape, out_dtype) if out is None else out
            _run(models, pixels, result, tile, tta, on_progress)
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
        """Runs pictures as planes on all cores, one after the other."""
        from waifu2x.backends.cpu.run.planar import read_planes, write_planes
        from waifu2x.backends.planar import check_planes

        with self._call() as models:
            check_planes([model.model for model in models], pictures, out)
            share = scaled(on_progress, 1 / max(1, len(pictures)))
            for picture, made in zip(pictures, out, strict=True):
                shapes = (*picture.size, 3), (*made.size, 3)
                check_result(shapes[1])
                with self._workers.pixels(shapes, models[0].packed.weights) as (pixels, result):
                    read_planes(picture, pixels, self._workers.cores)
                    _run(models, pixels, result, tile, tta, share)
                    write_planes(result, made, self._workers.cores)

    @contextmanager
    def _call(self) -> Iterator[Sequence[CpuModel]]:
        """Yields the models, for one call. Raises BackendError once closed, DeviceMemoryError."""
        with self._workers.working():
            models = self.models  # `close` may empty it meanwhile
            if not models:
                raise closed_network()
            try:
                yield models
            except MemoryError as error:
                raise DeviceMemoryError(
                    f"backend cpu: memory is short ({error}): {LESS_MEMORY}"
                ) from error
        if not self.models:
            self._on_close()

    def close(self) -> None:
        """Lets go of the packed weights; calls under way end with what they hold."""
        if self.models:
            self.models = ()
            self._on_close()


def _run(
    models: Sequence[CpuModel],
    pixels: NDArray[Any],
    result: NDArray[Any],
    tile: int | None,
    tta: int,
    on_progress: Progress,
) -> None:
    """Runs a picture, or a stack of them, through all models; between them in float32."""
    stack = pixels if pixels.ndim == 4 else pixels[np.newaxis]
    last = result if pixels.ndim == 4 else result[np.newaxis]
    costs, area = [], 1.0
    for model in models:
        costs.append(area * model.cost)
        area *= model.model.scale**2
    for index, model in enumerate(models):
        report = scaled(on_progress, costs[index] / sum(costs))
        made = last
        if index < len(models) - 1:
            *front, height, width, _ = stack.shape
            sides = height * model.model.scale, width * model.model.scale
            made = np.empty((*front, *sides, model.model.out_planes), np.float32)
        mean(partial(model.run, tile), stack, made, tta, report)
        stack = made
