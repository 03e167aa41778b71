"""Several devices as one backend: each picture goes to one that is free."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Backend, Device, Network, Precision, Progress, open_backend
from waifu2x.model import Model
from waifu2x.tiling import Box


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
    return opened[0] if len(opened) == 1 else Spread(opened)


class Spread:
    """See Backend. Calls of its networks from several threads run at the same time."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.name = backends[0].name
        first = backends[0].device
        names = ", ".join(backend.device.name for backend in backends)
        self.device = Device(names, f"{len(backends)} devices, {first.detail}", first.is_gpu)
        self._backends = tuple(backends)

    def compile(self, models: Sequence[Model], precision: Precision) -> Network:
        """See Backend."""
        return SpreadNetwork([backend.compile(models, precision) for backend in self._backends])

    def close(self) -> None:
        """See Backend."""
        for backend in self._backends:
            backend.close()


class SpreadNetwork:
    """See Network. A call takes the device that has been idle longest, or waits for one."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._idle: queue.SimpleQueue[Network] = queue.SimpleQueue()
        for network in networks:
            self._idle.put(network)

    def __call__(
        self, pixels: NDArray[Any], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """See Network."""
        network = self._idle.get()
        try:
            return network(pixels, box, out_dtype, on_progress)
        finally:
            self._idle.put(network)
