"""A CUDA device that is emulated: whole networks by the kernels of `mma` units, on the processor.

It is slow: pictures of some hundred pixels, networks of a few steps.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tests.helpers.emulated_kernels import compiled
from waifu2x.backends import Device
from waifu2x.backends.cuda.tensor import executor
from waifu2x.backends.gpu.backend import GpuBackend
from waifu2x.backends.gpu.device.runtime import Limits, Macros, ReadyLaunch

_BEYOND = 4096
"""Bytes around a buffer that are no numbers."""


def emulated_backend(
    folder: Path, capability: tuple[int, int] = (8, 6), shared_bytes: int = 99 << 10
) -> GpuBackend:
    """A backend on an emulated device; compiled kernels are kept in a folder."""
    runtime: Any = EmulatedRuntime(folder, capability, shared_bytes)
    return GpuBackend("cuda", runtime, executor.makers(runtime, "mma"))


class EmulatedBuffer:
    """Memory, at first of no numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = np.full(size + 2 * _BEYOND, 0xFF, np.uint8)
        start = self.bytes.ctypes.data + _BEYOND
        self.offset = _BEYOND + -start % 256
        self.address = self.bytes.ctypes.data + self.offset

    def view(self, count: int) -> NDArray[np.uint8]:
        """Its first bytes."""
        return self.bytes[self.offset : self.offset + count]

    def release(self) -> None:
        """Python frees it."""


class EmulatedKernel:
    """A kernel, compiled when it is first launched."""

    def __init__(self, name: str, group: int, make: Callable[[], ctypes.CDLL]) -> None:
        self.name = name
        self.group = group
        self._make = make
        self._library: ctypes.CDLL | None = None

    def __call__(self, groups: tuple[int, int, int], packed: bytes, seed: int) -> None:
        if self._library is None:
            self._library = self._make()
        self._library.launch(packed, *map(int, groups), seed % 2, seed)


class EmulatedModule:
    """A file of `kernels/` with its macros."""

    def __init__(self, folder: Path, stem: str, macros: Macros) -> None:
        self._folder, self._stem, self._macros = folder, stem, macros

    def kernel(self, name: str, group: int, shared: int = 0) -> EmulatedKernel:
        """Its one entry."""
        return EmulatedKernel(
            name, group, lambda: compiled(self._stem, self._macros, group, shared, self._folder)
        )


class EmulatedRuntime:
    """Stands for CudaRuntime, as far as networks use it."""

    def __init__(self, folder: Path, capability: tuple[int, int], shared_bytes: int) -> None:
        self.device = Device("emulated", "")
        self.capability, self.shared_bytes = capability, shared_bytes
        self.limits = Limits(False, 2, 1024, 48 << 10, 32, 1 << 30)
        self.allocated = 0
        self.launched: list[str] = []
        """The names of kernels."""
        self._folder = folder
        self._modules: dict[object, EmulatedModule] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def free_memory(self) -> int:
        return 1 << 30

    def allocate(self, size: int, *, for_maps: bool = False) -> EmulatedBuffer:
        return EmulatedBuffer(size)

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def is_locked(self, array: NDArray[Any]) -> bool:
        return True

    def upload(self, buffer: EmulatedBuffer, array: NDArray[Any]) -> None:
        buffer.view(array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def download(self, buffer: EmulatedBuffer, array: NDArray[Any]) -> None:
        array.reshape(-1).view(np.uint8)[:] = buffer.view(array.nbytes)

    def build(self, stem: str, macros: Macros) -> EmulatedModule:
        key = (stem, *macros.items())
        return self._modules.setdefault(key, EmulatedModule(self._folder, stem, macros))

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Kernels are compiled when they are launched."""

    def handle(self, buffer: Any) -> int:
        return int(buffer.address)

    def packer(self, codes: str) -> Callable[..., bytes]:
        return struct.Struct(codes).pack

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        for kernel, groups, packed in launches:
            self.launched.append(kernel.name)
            kernel(groups, packed, len(self.launched))

    def replay(self, owner: object, key: object, make: Callable[[], Sequence[ReadyLaunch]]) -> None:
        self.queue(make())

    def forget(self, owner: object) -> None:
        """Nothing is kept."""

    def send(
        self, buffer: EmulatedBuffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        self.upload(buffer, np.concatenate([array.reshape(-1) for array in arrays]))
        return None

    def follow(self) -> None:
        """All is there at once."""

    def fetch(
        self, buffer: EmulatedBuffer, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        at = 0
        for array in arrays:
            array.reshape(-1).view(np.uint8)[:] = buffer.view(at + array.nbytes)[at:]
            at += array.nbytes
        return None

    def wait(self, event: object) -> None:
        """All is there at once."""

    def synchronize(self) -> None:
        """All is there at once."""

    def close(self) -> None:
        """Python frees it."""
