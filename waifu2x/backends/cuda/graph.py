"""CUDA graphs: kernels recorded once and replayed together, with shorter gaps between them.

pycuda has no interface to them, hence the driver's own (CUDA Driver API, "Graph Management").
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

_OWN_THREAD = 1
"""Capture mode: what other threads do meanwhile is their own matter."""


class Graph:
    """Recorded kernels. The context of its stream must be current in every call."""

    def __init__(self, driver: ctypes.CDLL, executable: ctypes.c_void_p) -> None:
        self._driver = driver
        self._executable = executable

    def launch(self, stream: Any) -> bool:
        """Queues them on a stream; False if the driver refuses."""
        return not self._driver.cuGraphLaunch(self._executable, ctypes.c_void_p(stream.handle))

    def close(self) -> None:
        """Frees it."""
        self._driver.cuGraphExecDestroy(self._executable)


def capture(stream: Any, queue: Callable[[], None]) -> Graph | None:
    """What `queue` queues on a stream, which does not run meanwhile; None if that cannot be."""
    driver = _driver()
    if driver is None:
        return None
    handle = ctypes.c_void_p(stream.handle)
    if driver.cuStreamBeginCapture_v2(handle, _OWN_THREAD):
        return None
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        try:
            queue()
        finally:
            # Whatever happened, the stream is to run again what is queued on it.
            failed = driver.cuStreamEndCapture(handle, ctypes.byref(graph))
        failed = failed or driver.cuGraphInstantiateWithFlags(
            ctypes.byref(executable), graph, ctypes.c_ulonglong(0)
        )
    finally:
        # A capture that has failed leaves none.
        if graph:
            driver.cuGraphDestroy(graph)
    return None if failed else Graph(driver, executable)


@functools.cache
def _driver() -> ctypes.CDLL | None:
    """The driver, if it is new enough for graphs (CUDA 11.4)."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
        _ = driver.cuGraphInstantiateWithFlags, driver.cuStreamBeginCapture_v2
    except (OSError, AttributeError):
        return None
    return driver
