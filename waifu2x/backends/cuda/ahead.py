"""A device's context, made while the program still imports and reads.

The driver takes a third of a second for the first one of a process, and needs no Python meanwhile:
about as long as it takes to import NumPy and to decode a picture.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress

from waifu2x.backends.cuda.driver.library import library


class ContextAhead:
    """The primary context of a device, held until `close`. Who opens the device meanwhile, or
    later, gets the same one.

    Whatever fails is not told: it fails again for who opens the device.
    """

    def __init__(self, number: int) -> None:
        """`number` is that of the device, in the driver's order."""
        self._number = number
        self._held: ctypes.c_int | None = None
        self._thread = threading.Thread(target=self._retain, name="waifu2x-context", daemon=True)
        self._thread.start()

    def _retain(self) -> None:
        with suppress(OSError):  # there is no driver
            driver = library()
            device, context = ctypes.c_int(), ctypes.c_void_p()
            if (
                driver.cuInit(0) == 0
                and driver.cuDeviceGet(ctypes.byref(device), self._number) == 0
                and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
            ):
                self._held = device

    def close(self) -> None:
        """Waits for the driver, which must not be at work when the process ends."""
        self._thread.join()
        held, self._held = self._held, None
        if held is not None:
            library().cuDevicePrimaryCtxRelease_v2(held)
