"""Flags of pictures (`gpu/flags.py`) in memory that a GPU writes and the processor reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from waifu2x.backends.cuda.arguments import Address, address_of

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaBuffer, CudaRuntime


class CudaFlags:
    """In page-locked memory, which kernels reach at the address that it has here: then nothing has
    to be copied. Where no more pages can be locked, in memory of the device."""

    def __init__(self, runtime: CudaRuntime, pictures: int) -> None:
        """May raise OutOfMemoryError."""
        self._runtime = runtime
        self._words = runtime.host_array((pictures,), np.uint32)
        self._words[:] = 0
        self._buffer: CudaBuffer | None = None
        if runtime.is_locked(self._words):
            self.address = Address(self._words.ctypes.data)
        else:
            self._buffer = runtime.allocate(self._words.nbytes)
            runtime.upload(self._buffer, self._words)
            self.address = address_of(self._buffer)

    def take(self, pictures: int) -> list[int]:
        """Which of the first pictures are flagged; then none is any more."""
        if self._buffer is not None:
            self._runtime.download(self._buffer, self._words)
        words = self._words[:pictures]
        if not words.any():
            return []
        found: list[int] = np.flatnonzero(words).tolist()
        words[:] = 0
        if self._buffer is not None:
            self._runtime.upload(self._buffer, self._words)
        return found
