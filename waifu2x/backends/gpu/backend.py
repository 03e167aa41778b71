"""Defines a Backend on any Runtime, which chooses executors and measures their steps."""

from __future__ import annotations

import logging
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import LayerTime, Measurement, Pin, Precision, Trial
from waifu2x.backends.call import Call
from waifu2x.backends.engine.open_objects import OpenObjects
from waifu2x.backends.gpu.compiled_model import CompiledModel
from waifu2x.backends.gpu.device.memory_pool import MemoryPool
from waifu2x.backends.gpu.device.runtime import OutOfMemoryError, Runtime
from waifu2x.backends.gpu.executor import Executor
from waifu2x.backends.gpu.network import FlaggedError, GpuNetwork
from waifu2x.backends.gpu.plan import cuts, tuning
from waifu2x.backends.gpu.plan.tuning import Choose
from waifu2x.errors import BackendError, DeviceMemoryError, printable
from waifu2x.lowering.lower import lower
from waifu2x.lowering.passes.rematerialization import rematerialized
from waifu2x.lowering.passes.segments import segmented
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import Convolution, TransposedConvolution

_RUNS = 5
_APART = 2
"""A value is recomputed for readers at least this many attention steps behind it. One that is read
just behind the next attention is a residual stream, which is kept anyway."""
_CALLS_AT_ONCE = 3
"""One call sends its pictures, one computes, one fetches its results."""

_Made = TypeVar("_Made")
Maker = Callable[[Program, Choose], Executor]
"""Makes an executor of a program; raises BackendError and OutOfMemoryError as Executor does."""
OnTrial = Callable[[Maker], AbstractContextManager[GpuNetwork]]
"""Opens a model's network with a maker's executor for the time of the context; the network raises
FlaggedError for flagged pictures."""
Decide = Callable[[Model, OnTrial], Maker]
"""Chooses the maker of a model's executor, by trials or an earlier answer. Raises BackendError."""
_LOG = logging.getLogger(__name__)


class GpuBackend:
    """Runs models on one device."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        makers: Mapping[Precision, Sequence[Maker]],
        decide: Decide | None = None,
    ) -> None:
        """`makers` lists the makers of each precision, including `auto`: the first for all
        pictures, each further one for pictures with values too large for the one before. `decide`
        chooses the first one of `auto`."""
        self.name = name
        self.device = runtime.device
        self.calls_at_once = 1 if runtime.limits.is_cpu else _CALLS_AT_ONCE
        self.runtime = runtime
        self._makers = makers
        self._decide = decide
        self._pool = MemoryPool(runtime)
        self._open = OpenObjects[GpuNetwork]()
        self._telling = threading.Lock()
        self._told: set[str] = set()
        """Names of networks for which flagged pictures have been logged."""

    def compile(self, models: Sequence[Model], precision: Precision) -> GpuNetwork:
        """Uploads the weights of models and builds the kernels for 8-bit pictures.

        It builds the usual kernels: for large single pictures, with floats between models. Kernels
        for other dtypes and stacks, and on some units for small pictures, are built at the first
        call that needs them.
        """
        _, *others = self._makers_of(precision)
        wider = partial(self._wider, models, others) if others else None
        on_flagged = partial(self._note_flagged, [model.name for model in models])
        return self._compile(models, partial(self._first, precision), wider, on_flagged)

    def _compile(
        self,
        models: Sequence[Model],
        first: Callable[[Model], Maker],
        wider: Callable[[], GpuNetwork] | None,
        on_flagged: Callable[[], None] = lambda: None,
    ) -> GpuNetwork:
        """Returns the network of models with the executors of the makers that `first` returns; for
        the other arguments see GpuNetwork."""
        with self._pool.compiling():
            compiled: dict[int, CompiledModel] = {}
            try:
                for model in models:
                    if id(model) not in compiled:
                        compiled[id(model)] = self._compiled(first(model), model)
                chain = [compiled[id(model)] for model in models]
                dtypes = [np.uint8, *[np.float32] * (len(models) - 1), np.uint8]
                for one, ends in dict.fromkeys(zip(chain, pairwise(dtypes), strict=True)):
                    self._with_room(partial(one.build, *map(np.dtype, ends)), one.model)
            except BaseException:
                for one in compiled.values():
                    one.close()
                raise
            network = GpuNetwork(chain, self._pool, wider, on_flagged)
            self._open.add(network)
            return network

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Page-locks memory where the library can copy from and to it directly."""
        return self.runtime.pin(memory)

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Returns the median seconds of each step by the device's clock."""
        maker = self._first(precision, model)
        executor = self._executor(maker, model, tuning.StoredChoices(self.device))
        try:
            seconds = self._step_seconds(model, executor, pixels)
            peak = executor.peak()
            shares = [executor.share(number) for number in range(len(seconds))]
        finally:
            executor.close()
        found: dict[int, float] = {}
        least: dict[int, float] = {}
        for step, time, share in zip(executor.program.steps, seconds, shares, strict=True):
            found[step.node] = found.get(step.node, 0.0) + time
            least[step.node] = min(least.get(step.node, 1.0), share)
        pictures = int(np.prod(pixels.shape[:-3], dtype=np.int64))
        area = pictures * pixels.shape[-3] * pixels.shape[-2] * model.scale**2
        lowered = executor.program.model
        layers = tuple(
            LayerTime(
                node_name(lowered, node),
                time,
                float(lowered.node_multiply_adds(node) * area),
                peak,
                least[node],
            )
            for node, time in sorted(found.items())
        )
        return Measurement(sum(seconds), layers)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        maker = self._first(precision, model)
        names: list[str] = []

        def measure(executor: Executor) -> Sequence[float]:
            return self._step_seconds(model, executor, pixels)

        def make(choose: Choose) -> Executor:
            executor = self._executor(maker, model, choose)
            program = executor.program
            names[:] = [node_name(program.model, step.node) for step in program.steps]
            return executor

        yield from tuning.tune(tuning.StoredChoices(self.device), make, measure, names)

    @property
    def bytes(self) -> int:
        """Bytes of all buffers on the device: weights, maps, and those kept for further calls."""
        return self.runtime.allocated

    def close(self) -> None:
        """Frees everything, when the calls under way are done."""
        for network in self._open:
            network.close()
        self._pool.close()

    def _wider(self, models: Sequence[Model], makers: Sequence[Maker]) -> GpuNetwork:
        """Returns the network for pictures with values too large for the executors before."""
        maker, *others = makers
        wider = partial(self._wider, models, others) if others else None
        return self._compile(models, lambda model: maker, wider)

    def _note_flagged(self, names: Sequence[str]) -> None:
        """Logs once for each network that a picture's values are too large for 16 bits."""
        with self._telling:
            name = ", ".join(dict.fromkeys(map(printable, names)))
            if name not in self._told:
                self._told.add(name)
                _LOG.warning(
                    "%s: a picture's values exceed 16 bits: such pictures are computed again, in"
                    " 32 bits",
                    name,
                )

    def _first(self, precision: Precision, model: Model) -> Maker:
        """Returns the maker of a model's executor for all pictures. Raises BackendError."""
        maker, *_ = self._makers_of(precision)
        if precision == "auto" and self._decide is not None:
            return self._decide(model, partial(self._on_trial, model))
        return maker

    @contextmanager
    def _on_trial(self, model: Model, maker: Maker) -> Iterator[GpuNetwork]:
        """Yields a model's network with a maker's executor, which raises FlaggedError for flagged
        pictures."""

        def refuse() -> GpuNetwork:
            raise FlaggedError

        network = self._compile([model], lambda model: maker, refuse)
        try:
            yield network
        finally:
            network.close()

    def _makers_of(self, precision: Precision) -> Sequence[Maker]:
        """Returns the makers of a precision. Raises BackendError for one that the backend lacks."""
        if precision not in self._makers:
            raise BackendError(
                f"backend {self.name} has no precision {precision} on {self.device.name}",
                f"use {' or '.join(self._makers)}, or another backend",
            )
        return self._makers[precision]

    def _compiled(self, maker: Maker, model: Model) -> CompiledModel:
        executor = self._executor(maker, model, tuning.StoredChoices(self.device))
        divided = partial(self._divided, maker, model)
        return CompiledModel(model, executor, self._pool, divided)

    def _executor(self, maker: Maker, model: Model, choose: Choose) -> Executor:
        """Returns an executor of a model. Raises BackendError."""
        return self._with_room(partial(maker, lowered(model), choose), model)

    def _with_room(self, make: Callable[[], _Made], model: Model) -> _Made:
        """Calls `make`, which allocates weights, and returns its result. Where memory is short, it
        tries again once nothing else computes. Raises DeviceMemoryError."""
        try:
            return make()
        except OutOfMemoryError:
            self._pool.release()
        try:
            with self._pool.working():
                self._pool.release()
                return make()
        except OutOfMemoryError as error:
            raise DeviceMemoryError(
                f"{self.device.name}: no memory for the weights of {model.name}",
                "close other programs that use this device, or use another backend or -m upconv_7",
            ) from error

    def _divided(self, maker: Maker, model: Model) -> Executor | None:
        """Returns an executor of the model's program with cuts; None if it has none. May raise
        OutOfMemoryError."""
        divided = segmented(lowered(model), cuts.TILE)
        return maker(divided, tuning.StoredChoices(self.device)) if divided.cuts else None

    def _step_seconds(self, model: Model, executor: Executor, pixels: NDArray[Any]) -> list[float]:
        """Returns the median seconds of each step over several runs, after a warm-up."""
        network = GpuNetwork([CompiledModel(model, executor, self._pool)], self._pool)
        runs = []
        for _ in range(_RUNS + 1):
            with self.runtime.timed() as launches:
                network.run(Call(pixels))
            seconds = [0.0] * len(executor.program.steps)
            for kernel, time in launches:
                seconds[executor.step(kernel)] += time
            runs.append(seconds)
        network.close()
        return [statistics.median(step) for step in zip(*runs[1:], strict=True)]


def lowered(model: Model) -> Program:
    """Returns a model's program, with an order and recomputed values that keep few maps alive."""
    return rematerialized(lower(model), _APART)


def node_name(model: Model, value: int) -> str:
    """Returns a display name for the node of a value: its planes, or its kind."""
    node = model.nodes[value - 1]
    if not isinstance(node, Convolution | TransposedConvolution):
        return type(node).__name__.lower()
    planes = f"{node.weight.shape[1]} > {node.weight.shape[0]}"
    if isinstance(node, TransposedConvolution):
        return f"{planes} up"
    return planes if node.stride == 1 else f"{planes} down"
