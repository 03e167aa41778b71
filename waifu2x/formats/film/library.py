"""PyAV, loaded when a film is first asked for."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from waifu2x.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
            "films need PyAV: install it with `pip install 'waifu2x-kernels[video]'`"
        ) from error
    av.logging.set_level(av.logging.PANIC)
    av.logging.set_skip_repeated(False)  # each reader counts all messages
    return av


def versions() -> Mapping[str, str]:
    """Returns the versions of PyAV and of FFmpeg's libraries, which decide an encoder's bytes."""
    av = library()
    numbers = {name: ".".join(map(str, number)) for name, number in av.library_versions.items()}
    return {"PyAV": av.__version__, **numbers}
