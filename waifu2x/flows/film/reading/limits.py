"""The memory that the process may take that reads a film.

What a damaged header claims must not take the machine's; a film of large pictures must not fail on
a machine whose many cores each decode one of them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from waifu2x.system.machine import available_memory

if TYPE_CHECKING:
    from av.container import InputContainer

OPENING = 4 << 30
"""Bytes until the size of pictures is known: the header, all fonts, and what FFmpeg decodes, with
one thread, to know more."""
_REFERENCES = 17
"""Pictures that a decoder may keep, and the one that it makes."""
_MOST_THREADS = 17
"""Threads of which each decodes a picture: FFmpeg starts no more, and dav1d has fewer of them."""
_WAITING = 12
"""Pictures on their way out of a decoder, and in filters behind it."""
_BESIDE = 1.5
"""Bytes that decoders take for a byte of pictures: motion vectors, and edges around them."""
_STACK = 8 << 20
"""Bytes of a thread's stack. Decoders have a thread for each core, and so have filters."""
_UNKNOWN_BITS = 64
"""Bits of a pixel, where that is not known yet: the most that there are."""


def limit_memory(size: int) -> None:
    """Lets this process take so many bytes from now on, but no more than three quarters of what
    this machine has left: then the decoder fails, and not another program. Only on Linux."""
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    left = available_memory()
    limits = [size, *([] if left is None else [left * 3 // 4])]
    limits += [] if most == resource.RLIM_INFINITY else [most]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), most))


def needed_memory(container: InputContainer, cores: int | None = None) -> int:
    """Bytes that reading a film may take where as many cores decode; None: all of this machine."""
    cores = cores or os.cpu_count() or 1
    largest = 0
    for stream in container.streams.video:
        context = stream.codec_context
        if context is None:  # of a codec that FFmpeg does not know
            continue
        bits = _UNKNOWN_BITS if context.format is None else context.format.padded_bits_per_pixel
        largest = max(largest, context.width * context.height * bits // 8)
    pictures = _REFERENCES + _WAITING + min(cores + 1, _MOST_THREADS)
    return OPENING + int(largest * pictures * _BESIDE) + 2 * cores * _STACK
