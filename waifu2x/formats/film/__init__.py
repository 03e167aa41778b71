"""Films: containers, streams, decoders and encoders, by PyAV (FFmpeg)."""

from __future__ import annotations

from pathlib import Path

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


def is_film(path: Path) -> bool:
    """Returns whether the name of a file has the extension of a film."""
    return path.suffix[1:].lower() in READABLE


def is_animation(path: Path) -> bool:
    """Returns whether the name of a file has the extension of a picture that may be animated."""
    return path.suffix[1:].lower() in ANIMATED
