"""PyAV, loaded when a film is first asked for, and its messages."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from waifu2x.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@cache
def library() -> Any:
    """Imports the module `av` and silences its log. Raises UnavailableError where it is not
    installed."""
    os.environ.setdefault("SVT_LOG", "1")  # that encoder writes to stderr by itself
    try:
        import av
        import av.logging
    except ImportError as error:
        raise UnavailableError(
            "films need PyAV", "install it with `pip install 'waifu2x-kernels[video]'`"
        ) from error
    av.logging.set_level(av.logging.PANIC)
    av.logging.set_skip_repeated(False)  # each reader counts all messages
    return av


def versions() -> Mapping[str, str]:
    """Returns the versions of PyAV and of FFmpeg's libraries, which decide an encoder's bytes."""
    av = library()
    numbers = {name: ".".join(map(str, number)) for name, number in av.library_versions.items()}
    return {"PyAV": av.__version__, **numbers}


def in_short(error: BaseException) -> str:
    """Returns FFmpeg's message without its number and function."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split()).lower()


@contextmanager
def complaints(demuxer: str) -> Iterator[Callable[[], int]]:
    """Counts the error messages of a demuxer while the context lasts. Decoders complain in their
    own threads; their failures show in their results."""
    log = library().logging
    quiet = log.get_level()
    with log.Capture(local=False) as messages:
        log.set_level(log.ERROR)
        try:
            yield lambda: sum(demuxer in name.split(",") for _, name, _ in messages)
        finally:
            log.set_level(quiet)
