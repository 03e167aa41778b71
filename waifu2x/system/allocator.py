"""Controls what the C library does with memory that this process has freed."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 1 << 25
"""Free memory at the heap's end beyond which it goes back to the system."""
_LARGEST_KEPT = 1 << 23
"""The largest block in bytes that is kept: larger ones are few, and always go back."""

_LARGE = 1 << 20
"""The least size in bytes of an encoder's pictures: they are few, and live as long as it does."""


def keep_freed() -> None:
    """Makes glibc keep some tens of MiB of freed memory in this process.

    Otherwise it goes back to the system with every picture, and getting it again takes a twentieth
    of the time of codecs: 740 page faults for 1080p.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def return_large() -> None:
    """Makes glibc return large blocks to the system as soon as they are freed.

    It takes blocks of up to 32 MiB from its heaps once it has seen one like them freed. There the
    blocks of an encoder that ends lie between those of the next one, and some 25 MiB stay unused.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Makes glibc return all freed memory to the system. Large blocks of many sizes, made and freed
    in turn, otherwise leave gaps that are never returned, and a long run grows."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
