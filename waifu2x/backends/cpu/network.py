"""Defines the network of the `cpu` backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.call import (
    Call,
    Pictures,
    check,
    closed_network,
    result_shape,
    run_windows,
    with_out,
)
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.run.plans import check_result
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.backends.tta import run_chain
from waifu2x.errors import LESS_MEMORY, DeviceMemoryError
from waifu2x.lowering.plan.box import scaled

if TYPE_CHECKING:
    from waifu2x.imaging.planar import PlanarPicture
    from waifu2x.lowering.plan.support import Support


class CpuNetwork:
    """Runs models one after the other, on all cores."""

    def __init__(
        self, models: Sequence[CpuModel], workers: Workers, on_close: Callable[[], None]
    ) -> None:
        """`on_close` is called when it is closed, and again when calls under way then are done."""
        self._on_close = on_close
        self.models = tuple(models)
        """Its models; empty once it is closed."""
        self._workers = workers

    @property
    def arithmetic(self) -> str:
        """The arithmetic of its models: int16, bf16 or fp32."""
        return ", ".join(dict.fromkeys(model.packed.arithmetic for model in self.models))

    @property
    def support(self) -> Support | None:
        """How far results depend on pixels; None for networks that need the whole picture."""
        from waifu2x.lowering.plan.support import chained, support_of

        with self._call() as models:
            found = [support_of(model.packed.program, model.packed.unit) for model in models]
            return chained(found, [model.model.scale for model in models])

    def run(self, call: Call[Pictures]) -> Pictures:
        """Runs pictures on all cores; pictures as planes run one after the other."""
        with self._call() as models:
            chain = [model.model for model in models]
            if isinstance(call.source, np.ndarray):
                check_result(result_shape(chain, call.source.shape))
                call = with_out(call, chain)
                _run(models, call.stacked())
            elif chain[0].frames > 1:
                check(call, chain)
                run_windows(self, call, chain[0], self._read, self._write)
            else:
                check(call, chain)
                for number in range(call.count):
                    self._run_planes(models, call.part(number, number + 1))
        return call.results

    def _run_planes(self, models: Sequence[CpuModel], call: Call[Sequence[PlanarPicture]]) -> None:
        """Runs a call of one picture as planes."""
        from waifu2x.backends.cpu.run.planar import read_planes, write_planes

        (picture,), (made,) = call.source, call.results
        shapes = (*picture.size, 3), (*made.size, 3)
        check_result(shapes[1])
        with self._workers.pixels(shapes, models[0].packed.weights) as (pixels, result):
            read_planes(picture, pixels, self._workers.cores)
            _run(models, call.with_pixels(pixels[np.newaxis], result[np.newaxis]))
            write_planes(result, made, self._workers.cores)

    def _read(self, picture: PlanarPicture) -> NDArray[np.float32]:
        from waifu2x.backends.cpu.run.planar import read_planes

        pixels = np.empty((*picture.size, 3), np.float32)
        read_planes(picture, pixels, self._workers.cores)
        return pixels

    def _write(self, pixels: NDArray[np.float32], made: PlanarPicture) -> None:
        from waifu2x.backends.cpu.run.planar import write_planes

        write_planes(np.ascontiguousarray(pixels), made, self._workers.cores)

    @contextmanager
    def _call(self) -> Iterator[Sequence[CpuModel]]:
        """Yields the models for the call within. Raises BackendError once closed, and turns errors
        of memory into DeviceMemoryError."""
        with self._workers.working():
            models = self.models  # a copy, since `close` may empty it
            if not models:
                raise closed_network()
            try:
                yield models
            except MemoryError as error:
                raise DeviceMemoryError(
                    f"backend cpu: memory is short ({error})", LESS_MEMORY
                ) from error
        if not self.models:
            self._on_close()

    def close(self) -> None:
        """Frees the packed weights once the calls under way, which still hold them, are done."""
        if self.models:
            self.models = ()
            self._on_close()


def _run(models: Sequence[CpuModel], call: Call[NDArray[Any]]) -> None:
    costs, area = [], 1.0
    for model in models:
        costs.append(area * model.cost)
        area *= model.model.scale**2
    *firsts, last = ((model.model, partial(model.run, call.tile)) for model in models)
    if call.inner is not None and call.tta == 1:
        # Models before the last one have to make more.
        inner = scaled(call.inner, math.prod(model.scale for model, _ in firsts))
        last = models[-1].model, partial(models[-1].run, call.tile, inner=inner)
    run_chain(call, [*firsts, last], costs)
