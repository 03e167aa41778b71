"""Finds the parts of a file that none of its pictures has, whatever its format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from waifu2x.formats.headers import heif, jpeg_parts, jxl, psd


def parts(data: bytes, form: str) -> dict[str, int]:
    """Returns the numbers of a file's parts that are not read, by their kinds in the table.

    `form` is Pillow's name of the format; TIFF is for `headers.tiff`. Raises OverBudgetError.
    """
    find = _FINDERS.get(form)
    return {} if find is None else find(data)


def _of_icon(data: bytes) -> dict[str, int]:
    (count,) = struct.unpack_from("<H", data, 4)
    return {"further sizes": count - 1} if count > 1 else {}


def _of_jxl(data: bytes) -> dict[str, int]:
    found = {}
    if jxl.is_animated(data):
        found["animation"] = 1
    if jxl.has_gain_map(data):
        found["gain map"] = 1
    return found


def _of_psd(data: bytes) -> dict[str, int]:
    header = psd.read(data)
    if header is None:
        return {}
    layers = header.layers if header.layers > 1 else 0
    # Pillow reads it of RGB without other channels.
    lost = header.transparent and (header.mode != psd.RGB or header.channels > 0)
    found = {"layers": layers, "further channels": header.channels, "transparency": int(lost)}
    return {kind: count for kind, count in found.items() if count}


_FINDERS: Mapping[str, Callable[[bytes], dict[str, int]]] = {
    "JPEG": jpeg_parts.parts,
    "MPO": jpeg_parts.parts,
    "HEIF": heif.parts,
    "AVIF": heif.parts,
    "JXL": _of_jxl,
    "ICO": _of_icon,
    "PSD": _of_psd,
}
