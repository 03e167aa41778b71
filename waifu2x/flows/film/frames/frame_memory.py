"""Memory for the planes of results: a network writes into it, and an encoder reads from it."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Pin
from waifu2x.formats.film.description import PixelFormat

_ALIGNED = 64
"""Bytes that planes begin at a multiple of: the widest registers of a processor. As many follow
the last one, since encoders may read beyond a row. Nothing else lies between planes: those of most
sizes come from a device in one copy."""


class FrameMemory:
    """Planes of frames of one size, page-locked for a device. Threads may share it.

    The memory of a frame is used again once nobody holds any of its planes: neither here nor an
    encoder, which keeps some for as long as it needs them.
    """

    def __init__(
        self,
        pixels: PixelFormat,
        height: int,
        width: int,
        pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
    ) -> None:
        """`pin` is the device's, `Backend.pin`."""
        dtype = np.dtype(pixels.dtype)
        self._dtype, self._pin = dtype, pin
        self._places: list[tuple[int, tuple[int, int]]] = []
        """Where each plane begins, and its shape."""
        begin = 0
        for shape in pixels.shapes(height, width):
            self._places.append((begin, shape))
            nbytes = shape[0] * shape[1] * dtype.itemsize
            begin += -(-nbytes // _ALIGNED) * _ALIGNED
        self._size = begin + _ALIGNED
        self._lock = threading.Lock()
        self._pins: list[Pin] = []
        self._free: deque[mmap.mmap] = deque()
        """The garbage collector puts memory here, at any time."""

    def planes(self) -> list[NDArray[Any]]:
        """Planes of a frame, uninitialised: (rows, columns) each, C-contiguous."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = mmap.mmap(-1, self._size)
            with self._lock:
                self._pins.append(self._pin(np.frombuffer(memory, np.uint8)))
        whole = np.frombuffer(memory, np.uint8)
        # Views of it keep `whole` alive, and with it the memory.
        weakref.finalize(whole, self._free.append, memory).atexit = False
        size = self._dtype.itemsize
        return [
            whole[begin : begin + rows * columns * size].view(self._dtype).reshape(rows, columns)
            for begin, (rows, columns) in self._places
        ]

    def close(self) -> None:
        """Ends the registration of its memory with the device: no call uses it any more."""
        with self._lock:
            for pin in self._pins:
                pin.close()
            self._pins.clear()
