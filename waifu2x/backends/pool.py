"""Several devices as one backend: each picture goes to one that is free, a stack to all of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import (
    Backend,
    Device,
    Measurement,
    Network,
    Precision,
    Progress,
    Trial,
    ignore,
    open_backend,
    scaled,
)
from waifu2x.model import Model


def open_devices(name: str, devices: Sequence[int], on_skip: Callable[[str], None]) -> Backend:
    """The backend of that name on the devices of those numbers; see `open_backend`."""
    opened: list[Backend] = []
    try:
        for device in devices:
            # What `auto` is, the first device has decided.
            chosen = opened[0].name if opened else name
            opened.append(open_backend(chosen, device, on_skip))
    except BaseException:
        for backend in opened:
            backend.close()
        raise
    return opened[0] if len(opened) == 1 else DevicePool(opened)


class DevicePool:
    """See Backend. Calls of its networks from several threads run at the same time."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.name = backends[0].name
        first = backends[0].device
        names = ", ".join(backend.device.name for backend in backends)
        self.device = Device(names, f"{len(backends)} devices, {first.detail}", first.is_gpu)
        self._backends = tuple(backends)

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        """See Backend."""
        return PooledNetwork([backend.compile(models, precision) for backend in self._backends])

    def measure(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Measurement:
        """See Backend: of the first device, since a picture is computed by one."""
        return self._backends[0].measure(model, precision, pixels)

    def tune(self, model: Model, precision: Precision, pixels: NDArray[Any]) -> Iterator[Trial]:
        """See Backend: once for devices that are alike."""
        unlike = {backend.device: backend for backend in self._backends}
        for backend in unlike.values():
            yield from backend.tune(model, precision, pixels)

    def close(self) -> None:
        """See Backend."""
        for backend in self._backends:
            backend.close()


class PooledNetwork:
    """See Network. A call takes the device that has been idle longest, or waits for one."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._count = len(networks)
        self._idle: queue.SimpleQueue[Network] = queue.SimpleQueue()
        for network in networks:
            self._idle.put(network)

    def __call__(
        self,
        pixels: NDArray[Any],
        out_dtype: DTypeLike,
        *,
        tile: int | None = None,
        turns: int = 1,
        on_progress: Progress = ignore,
    ) -> NDArray[Any]:
        """See Network. Each device gets a part of a stack, and one at a time tells of progress."""

        def on_one(stack: NDArray[Any], report: Progress) -> NDArray[Any]:
            network = self._idle.get()
            try:
                return network(stack, out_dtype, tile=tile, turns=turns, on_progress=report)
            finally:
                self._idle.put(network)

        parts = min(self._count, len(pixels)) if pixels.ndim == 4 else 1
        if parts <= 1:
            return on_one(pixels, on_progress)
        lock = threading.Lock()

        def told(part: float) -> None:
            with lock:
                on_progress(part)

        def compute(stack: NDArray[Any]) -> NDArray[Any]:
            share = scaled(told, len(stack) / len(pixels))
            return on_one(stack, share)

        with ThreadPoolExecutor(parts, thread_name_prefix="waifu2x-device") as pool:
            return np.concatenate(list(pool.map(compute, np.array_split(pixels, parts))))
