"""A device's context, made while the program still imports what it needs and reads.

The driver takes a quarter of a second for the first one of a process, and needs no Python
meanwhile: about as long as it takes to import NumPy and to decode a picture.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress

from waifu2x.backends.cuda.driver.library import library


def retain_context(number: int) -> threading.Thread:
    """The thread that makes the primary context of a device, by the driver's number of it.

    The context then stays until the process ends: who opens the device meanwhile, or later, gets
    the same one. Whatever fails is not told: it fails again for who opens the device. Python waits
    for the thread before it ends, as it must: the driver cannot be left while it is at work.
    """
    thread = threading.Thread(target=_retain, args=(number,), name="waifu2x-context")
    thread.start()
    return thread


def _retain(number: int) -> None:
    with suppress(OSError):  # there is no driver
        driver = library()
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), number) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
