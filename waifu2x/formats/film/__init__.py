"""Films: containers, streams, decoders and encoders, by PyAV (FFmpeg)."""

from __future__ import annotations

from pathlib import Path

from waifu2x.system import stores
from waifu2x.system.files import open_regular

READABLE = (
    "mkv", "mp4", "m4v", "mov", "webm", "avi", "ts", "m2ts", "mts", "mpg", "mpeg", "vob", "flv",
    "wmv", "asf", "ogv", "y4m", "mxf", "nut", "ivf", "3gp",
)  # fmt: skip
"""Extensions of films that can be read."""
WRITABLE = ("mkv", "mp4", "mov", "webm")
"""Extensions of films that are made."""
HARDWARE = (
    *(f"{coded}_{maker}" for maker in ("nvenc", "qsv", "amf") for coded in ("h264", "hevc", "av1")),
    "h264_videotoolbox", "hevc_videotoolbox", "h264_vaapi", "hevc_vaapi", "av1_vaapi",
)  # fmt: skip
"""Encoders in hardware, by FFmpeg's names: codec and maker."""
ANIMATED = ("gif", "apng", "png", "webp", "avif")
"""Extensions of pictures that may be animated, which are read as films, too."""
PARTS = ".parts"
"""The end of the name of a folder for the parts of an unfinished film."""
_ALSO_TEXT = ("ts", "mts")
"""Extensions that programs in TypeScript have as well."""
_LOOKED_AT = 1 << 12
"""Bytes of such a file; no recording goes that far without a null byte."""


def is_film(path: Path | str) -> bool:
    """Returns whether the name of a file has the extension of a film."""
    name = path if isinstance(path, str) else path.name
    # Folders hold many thousands of names, and most need no Path of their own.
    return name.rpartition(".")[2].lower() in READABLE and bool(Path(name).suffix)


def is_text(path: Path) -> bool:
    """Returns whether a file that is a film by its name is a text by its first bytes, such
    as one in TypeScript; False also where it cannot be read."""
    if path.suffix[1:].lower() not in _ALSO_TEXT or stores.is_url(path):
        return False
    try:
        with open_regular(path) as file:
            begin = file.read(_LOOKED_AT)
    except OSError:
        return False
    return bool(begin) and b"\0" not in begin


def result_extension(suffix: str) -> str:
    """Returns the extension of a film's result by that of the film, both without dots: its own, if
    such films can be written."""
    return suffix if suffix in WRITABLE else "mkv"


def holds_parts(name: str) -> bool:
    """Returns whether a folder's name is that of the parts of an unfinished film."""
    return name.endswith(PARTS) and is_film(name.removesuffix(PARTS))


def is_animation(path: Path) -> bool:
    """Returns whether the name of a file has the extension of a picture that may be animated."""
    return path.suffix[1:].lower() in ANIMATED
