"""Whether a result can fit on the disk that it goes to, before it is computed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from waifu2x.errors import OutputError
from waifu2x.flows.jobs import STANDARD
from waifu2x.formats.table import Format
from waifu2x.imaging.streams import Extent
from waifu2x.system import stores

_LEAST = 1 / 500
"""Bytes a pixel of a file in a format that compresses, at least: a plain area in one colour."""
_UNCOMPRESSED = ("BMP", "PNM", "TGA")
"""Formats with at least a byte a pixel."""


def check_disk(target: Path, form: Format, extents: Sequence[Extent]) -> None:
    """Raises OutputError, from an OSError, where results of such sizes surely do not fit.

    How well a picture can be compressed shows only later: what is refused here would not fit even
    if it were all of one colour.
    """
    if target == STANDARD or stores.is_url(target):
        return
    folder = next((each for each in target.parents if each.is_dir()), None)
    if folder is None:
        return  # it cannot be made, either: whoever makes it says why
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # some file systems do not tell
    pixels = sum(extent.height * extent.width for extent in extents)
    needed = pixels if form.name in _UNCOMPRESSED else pixels * _LEAST
    if free < needed:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        megabytes = f"{free / 2**20:.0f} MiB are" if free >= 2**20 else f"{free >> 10} KiB are"
        raise OutputError(
            f"{target}: no space on the disk for the result, {megabytes} free: make room, or"
            " choose another folder"
        ) from full
