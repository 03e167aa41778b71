"""CUDA graphs: kernels recorded once and replayed together, with shorter gaps between them.

pycuda has no interface to them, hence the driver's own (CUDA Driver API, "Graph Management"), on
handles of streams.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from waifu2x.backends.cuda.driver.library import library

_OWN_THREAD = 1
"""Capture mode: what other threads do meanwhile is their own matter."""


class Graph:
    """Recorded kernels. The context of its stream must be current in every call."""

    def __init__(self, driver: ctypes.CDLL, executable: ctypes.c_void_p) -> None:
        self._driver = driver
        self._executable = executable

    def launch(self, stream: int) -> bool:
        """Queues them on a stream; False if the driver refuses."""
        return not self._driver.cuGraphLaunch(self._executable, stream)

    def close(self) -> None:
        """Frees it."""
        self._driver.cuGraphExecDestroy(self._executable)


def capture(stream: int, queue: Callable[[], None]) -> Graph | None:
    """Returns a graph of the kernels that `queue` queues on a stream, which do not run meanwhile;
    None if that fails."""
    try:
        driver = library()
    except OSError:  # too old for graphs: pycuda still works
        return None
    if driver.cuStreamBeginCapture_v2(stream, _OWN_THREAD):
        return None
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        try:
            queue()
        finally:
            # After any error, too, the stream must run queued work again.
            failed = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        failed = failed or driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, 0)
    finally:
        # A capture that has failed leaves none.
        if graph:
            driver.cuGraphDestroy(graph)
    return None if failed else Graph(driver, executable)
