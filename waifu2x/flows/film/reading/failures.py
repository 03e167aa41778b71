"""What becomes of an error in the process that reads a film.

A film's own faults are sentences about the film. Anything else is a fault of this program: it must
not look like one of the film, or nobody would ever find it.
"""

from __future__ import annotations

import errno
import traceback

from waifu2x.errors import FaultError, ImageError, Waifu2xError
from waifu2x.flows.film.reading.messages import ReadingFailed
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.opening import in_short
from waifu2x.system.files import reason

_NO_MEMORY = (errno.ENOMEM, errno.ENOSPC, errno.EFBIG)
"""What shared memory fails with where there is no more."""


def failure_of(error: Exception, name: str) -> ReadingFailed:
    """What the process that asks is told. `name` stands for the film."""
    if isinstance(error, (Waifu2xError, BrokenPipeError)):
        return ReadingFailed(error)
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return ReadingFailed(
            ImageError(f"{name}: its pictures take more memory than there is for them")
        )
    if isinstance(error, library().FFmpegError):
        return ReadingFailed(ImageError(f"{name}: cannot be read: {in_short(error)}"))
    if isinstance(error, OSError):
        return ReadingFailed(ImageError(f"{name}: cannot be read: {reason(error)}"))
    kind = type(error).__name__
    return ReadingFailed(
        FaultError(f"{name}: cannot be read: {kind}: {error}"),
        "".join(traceback.format_exception(error)),
    )


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _NO_MEMORY
