"""What the C library does with memory that this process has freed."""

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
"""Bytes of a block from which on encoders' pictures are: they are few, and live as long as it."""


def keep_freed() -> None:
    """Lets this process keep what it has freed, some tens of MiB, where its library is glibc.

    Otherwise that goes back to the system with every picture, and to get it again takes a twentieth
    of the time of codecs: 740 page faults for 1080p.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # TypeError: Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def return_large() -> None:
    """Lets large blocks of this process go back to the system as soon as they are freed, where its
    library is glibc.

    It takes blocks of up to 32 MiB from its heaps once it has seen one like them freed. There those
    of an encoder that ends lie between those of the next one, and some 25 MiB are held by nobody.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


def give_back() -> None:
    """Gives the system all memory that this process has freed, where its library is glibc.

    What is made and freed by turns, in large blocks of many sizes, otherwise leaves gaps that are
    never given back, and a long run grows.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
