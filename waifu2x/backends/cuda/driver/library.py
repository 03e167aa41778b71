"""Loads the driver's library by ctypes, and makes the calls that no Driver has: it creates a
context early, and page-locks memory of callers."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from pathlib import Path

_ARGUMENTS: dict[str, tuple[type, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint),
    "cuMemHostUnregister": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, c_uint64),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphLaunch": (c_void_p, c_void_p),
}
"""The functions called, with their argument types (cuda.h). Each returns a CUresult, 0 if done."""
_PORTABLE = 1
"""CU_MEMHOSTREGISTER_PORTABLE: for all contexts."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NODE = re.compile(r"nvidia\d+")
"""The names of GPUs in /dev."""
_CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
_hidden_before = [0]
_lock = threading.Lock()
_users: dict[tuple[int, int], int] = {}
"""The number of current registrations of each range, (address, bytes)."""


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library once. Raises OSError if it is missing or older than CUDA 11.4."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    driver = ctypes.CDLL(name)
    for function, arguments in _ARGUMENTS.items():
        try:
            getattr(driver, function).argtypes = arguments
        except AttributeError:
            raise OSError(f"{name} is too old: it has no {function}") from None
    return driver


def show_only(number: int) -> None:
    """Hides all GPUs but the one of that number from the driver of this process.

    The driver opens every GPU that it sees when it is initialised, and maps the memory of all when
    it makes a context: with four, that takes a second. Only a process that is ours alone, and has
    not loaded the driver yet, may call this. It does nothing where that is not known to be safe:
    outside Linux, for numbers that may not be there, and for GPUs that are divided (MIG).
    """
    listed = os.environ.get(_VISIBLE)
    nodes = [each for each in _entries(Path("/dev")) if _NODE.fullmatch(each)]
    seen = [str(at) for at in range(len(nodes))] if listed is None else listed.split(",")
    if len(nodes) > 1 and number < len(seen) > 1 and not any(_CAPABILITIES.glob("gpu*/mig/gi*")):
        os.environ[_VISIBLE] = seen[number]
        _hidden_before[0] = number


def hidden_before() -> int:
    """Returns the number of GPUs that `show_only` has hidden before the driver's first one."""
    return _hidden_before[0]


def _entries(folder: Path) -> list[str]:
    """Returns the names of a folder's entries; none if it cannot be read."""
    with suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def retain_context(number: int) -> threading.Thread:
    """Starts and returns a thread that creates the primary context of the device of that number, as
    users count them.

    The driver takes a quarter of a second for the first context of a process, and runs no Python
    meanwhile: about as long as it takes to import NumPy and to decode a picture. The context stays
    until the process ends, and opening the device uses it. Errors are not reported: opening the
    device raises them again. Python waits for the thread before it exits, since the driver must not
    be interrupted.
    """
    thread = threading.Thread(target=_retain, args=(number,), name="waifu2x-context")
    thread.start()
    return thread


def _retain(number: int) -> None:
    number -= hidden_before()
    with suppress(OSError):  # there is no driver
        driver = library()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), number) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device.value)


def register(address: int, size: int) -> bool:
    """Page-locks a range of memory, so that GPUs copy from and to it without staging; returns False
    if the driver refuses. A context must be current.

    A range is registered once for all contexts of the process, with a count of registrations.
    pycuda's call would make a new owner of the array, so this calls the driver (CUDA Driver API,
    "Memory Management").
    """
    with _lock:
        users = _users.get((address, size), 0)
        if not users:
            try:
                refused = library().cuMemHostRegister_v2(address, size, _PORTABLE)
            except OSError:  # a driver too old for it, with which pycuda still works
                return False
            if refused:
                return False
        _users[address, size] = users + 1
        return True


def unregister(address: int, size: int) -> None:
    """Undoes one `register`; the last call unlocks the pages. A context must be current."""
    with _lock:
        users = _users.pop((address, size)) - 1
        if users:
            _users[address, size] = users
        else:
            # A broken context refuses this; the end of the process unlocks the pages.
            library().cuMemHostUnregister(address)
