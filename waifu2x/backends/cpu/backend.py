"""Defines the backend of this machine's processor."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from waifu2x.backends import Backend, Device, Measurement, Pin, Precision, Trial, pick_device
from waifu2x.backends.cpu.arithmetic import Arithmetic, arithmetics
from waifu2x.backends.cpu.compile import isa
from waifu2x.backends.cpu.compile.host import package_version
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.network import CpuNetwork
from waifu2x.backends.cpu.pack import kept_programs
from waifu2x.backends.cpu.run import kernels
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.backends.engine.open_objects import OpenObjects
from waifu2x.errors import LESS_MEMORY, BackendError, DeviceMemoryError, printable
from waifu2x.networks.model import Model
from waifu2x.system.machine import core_count

_LOG = logging.getLogger(__name__)


# Keys of compiled code hold their versions, though few runs import them: `auto` passes over this
# backend where one is missing.
for _library in ("llvmlite", "numba"):
    package_version(_library)


def create(device: int) -> Backend:
    """Opens the processor. Raises UnavailableError for any device but 0."""
    pick_device("cpu", devices(), device)
    return CpuBackend()


def devices() -> list[Device]:
    """Returns the backend's one device: all cores."""
    cores = core_count()
    return [
        Device(
            isa.processor_name(),
            f"{cores} core{'s' if cores > 1 else ''}, {isa.VECTOR.name},"
            f" {isa.l2_bytes() // 1024} KiB L2",
            architecture=isa.VECTOR.name,
        )
    ]


class CpuBackend:
    """Runs models on all cores that this process may use."""

    name = "cpu"
    calls_at_once = 1

    def __init__(self) -> None:
        (self.device,) = devices()
        self._workers = Workers(core_count())
        self._networks = OpenObjects[CpuNetwork]()

    def compile(self, models: Sequence[Model], precision: Precision) -> CpuNetwork:
        """Packs models for this processor; `auto` is the fastest that keeps 60 dB: bf16 on tiles,
        int16, fp32."""
        found = arithmetics()
        offered = found if precision == "auto" else [name for name in found if name == precision]
        if not offered:
            raise BackendError(
                f"backend cpu has no precision {precision} on this processor",
                f"use auto or {' or '.join(found)}, or another backend",
            )
        try:
            kernels.begin_common()
            packed: dict[int, CpuModel] = {}
            for model in models:
                if id(model) not in packed:
                    packed[id(model)] = _packed(model, offered, self._workers)
            for each in packed.values():
                kernels.load_for(each.packed)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"backend cpu: memory is short ({error})", LESS_MEMORY
            ) from error
        chain = [packed[id(model)] for model in models]
        network = CpuNetwork(chain, self._workers, self._closed_network)
        self._networks.add(network)
        return network

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """Measures the time of a picture and of each layer."""
        from waifu2x.backends.cpu.measuring import measure

        return measure(self.compile([model], precision), pixels, self._workers.cores)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """Yields nothing: no layer has options."""
        yield from ()

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: kernels access pixels where they are."""
        return Pin()

    @property
    def bytes(self) -> int:
        """The bytes of packed weights of all open networks, and of memory kept for further calls.

        A model of two networks counts twice: each has packed its own weights.
        """
        models = {model for network in self._networks for model in network.models}
        packed = [model.packed for model in models]
        weights = sum(one.weights.nbytes + one.constants.nbytes for one in packed)
        return weights + self._workers.bytes

    def close(self) -> None:
        """Ends the threads, after the calls that are under way."""
        self._workers.close()
        for network in self._networks:
            network.close()
        self._workers.release()

    def _closed_network(self) -> None:
        """Frees the memory kept for further calls if no network is open."""
        if not any(network.models for network in self._networks):
            self._workers.release()


def _packed(model: Model, offered: Sequence[Arithmetic], workers: Workers) -> CpuModel:
    """Returns the model in the first of these arithmetics that keeps the promise of `auto`, or in
    the last one; it is loaded from the cache, or chosen and packed now."""
    key = kept_programs.key(model, offered)
    packed = kept_programs.load(key)
    if packed is None:
        from waifu2x.backends.cpu.pack.choosing import choose

        packed = choose(model, offered, workers)
        kept_programs.store(key, packed)
    if packed.passed_over:
        _LOG.warning(
            "%s: %s %s too coarse, using %s (slower)",
            printable(model.name),
            " and ".join(packed.passed_over),
            "is" if len(packed.passed_over) == 1 else "are",
            packed.arithmetic,
        )
    return CpuModel(model, packed, workers)
