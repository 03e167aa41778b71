"""Errors of decoders as ImageErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from waifu2x.errors import ImageError


@contextmanager
def in_words(name: str, otherwise: str) -> Iterator[None]:
    """Makes an ImageError of what decoders raise in its block.

    `name` stands for the file; `otherwise` says what most errors mean, as in "damaged".
    """
    try:
        yield
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(
            f"{name}: too large for this machine's memory: cut it into parts"
        ) from error
    except Exception as error:
        # Decoders meet damage in many ways, and say so with as many kinds of exception.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{name}: {otherwise}: {reason}") from error
