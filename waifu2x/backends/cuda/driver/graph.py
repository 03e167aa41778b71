"""Records kernels as CUDA graphs, which replay them with shorter gaps between them.

pycuda has no interface to graphs, so this calls the driver (CUDA Driver API, "Graph Management")
with handles of streams.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from waifu2x.backends.cuda.driver.library import library

_OWN_THREAD = 1
"""The capture mode that leaves other threads' calls unrestricted."""


class Graph:
    """A graph of recorded kernels. The context of its stream must be current in every call."""

    def __init__(self, driver: ctypes.CDLL, executable: ctypes.c_void_p) -> None:
        self._driver = driver
        self._executable = executable

    def launch(self, stream: int) -> bool:
        """Queues its kernels on a stream; returns False if the driver refuses."""
        return not self._driver.cuGraphLaunch(self._executable, stream)

    def close(self) -> None:
        """Frees the graph."""
        self._driver.cuGraphExecDestroy(self._executable)


def capture(stream: int, queue: Callable[[], None]) -> Graph | None:
    """Records the kernels that `queue` queues on a stream, without running them; returns their
    graph, or None if that fails."""
    try:
        driver = library()
    except OSError:  # a driver too old for graphs, with which pycuda still works
        return None
    if driver.cuStreamBeginCapture_v2(stream, _OWN_THREAD):
        return None
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        try:
            queue()
        finally:
            # Ends the capture after errors, too: the stream must run queued work again.
            failed = driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        failed = failed or driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, 0)
    finally:
        # A capture that has failed leaves none.
        if graph:
            driver.cuGraphDestroy(graph)
    return None if failed else Graph(driver, executable)
