"""Converts planes of film frames to RGB and back on the processor, in bands of rows by threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.pack.records import GREY, RGB, YUV
from waifu2x.imaging.planar import PlanarPicture


class _Conversion(NamedTuple):
    """Compiled code for both directions, and the dtype of its floats."""

    read: Compiled
    write: Compiled
    dtype: np.dtype[Any]


_FAST = _Conversion(
    Compiled("planar", "read_planes", is_told=False),
    Compiled("planar", "write_planes", is_told=False),
    np.dtype(np.float32),
)
_EXACT = _Conversion(
    Compiled("planar", "read_exactly", is_told=False),
    Compiled("planar", "write_exactly", is_told=False),
    np.dtype(np.float64),
)
_BAND_ROWS = 64
"""The rows that a thread takes at a time."""
_THREAD_PIXELS = 1 << 18
"""The pixels that take at least as long as starting a thread."""
_SCRATCH_ENDS = 16
"""The floats of scratch memory beside those of pixels."""


def read_planes(
    picture: PlanarPicture, pixels: NDArray[np.float32], cores: int, *, exactly: bool = False
) -> None:
    """Writes the RGB of a picture into pixels (H, W, 3), clipped to [0, 1]; `exactly` computes in
    float64."""
    height, _ = picture.size
    conversion = _EXACT if exactly else _FAST
    factors = np.array(picture.format.to_rgb(), conversion.dtype)
    bands = range(0, height, _BAND_ROWS)
    _run(conversion.read, picture, factors, pixels, bands, height, cores)


def write_planes(
    pixels: NDArray[np.float32], picture: PlanarPicture, cores: int, *, exactly: bool = False
) -> None:
    """Writes RGB (H, W, 3) in [0, 1] into a picture; `exactly` computes in float64."""
    rows, _ = picture.format.axes
    cells = rows.samples(picture.size[0])
    own = picture.format.from_rgb()
    conversion = _EXACT if exactly else _FAST
    factors = np.array(
        [*own.luma, own.luma_zero, *own.u, *own.v, own.chroma_zero, own.peak], conversion.dtype
    )
    bands = range(0, cells, _BAND_ROWS // rows.step)
    _run(conversion.write, picture, factors, pixels, bands, cells, cores)


def _run(
    convert: Compiled,
    picture: PlanarPicture,
    factors: NDArray[Any],
    pixels: NDArray[np.float32],
    starts: Sequence[int],
    end: int,
    cores: int,
) -> None:
    """Converts all bands, on the number of threads that is worthwhile."""
    record = _record(picture)
    assert pixels.flags.c_contiguous
    bands = [(start, min(start + (starts[1] if len(starts) > 1 else end), end)) for start in starts]

    def run(band: tuple[int, int]) -> None:
        scratch = np.empty(4 * picture.size[1] + _SCRATCH_ENDS, factors.dtype)
        convert(record, factors, pixels, scratch, *band)

    threads = min(cores, len(bands), 1 + picture.planes[0].size // _THREAD_PIXELS)
    if threads == 1:
        for band in bands:
            run(band)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="waifu2x-planes") as pool:
        for done in [pool.submit(run, band) for band in bands]:
            done.result()


def _record(picture: PlanarPicture) -> NDArray[np.int64]:
    """Returns a picture's record for compiled code: the addresses of its planes, their row strides
    in samples, the bytes of a sample, rows and columns, for both of these the pixels of a chroma
    sample and whether it is sited midway, and GREY, YUV or RGB. Grey has its plane three times."""
    planes = picture.planes if len(picture.planes) > 1 else picture.planes * 3
    addresses: list[Any] = [plane.ctypes.data for plane in planes]
    pitches = [plane.strides[0] // plane.itemsize for plane in planes]
    axes = [number for axis in picture.format.axes for number in axis]
    sample = picture.format.dtype.itemsize
    kind = GREY if picture.format.is_grey else RGB if picture.format.is_rgb else YUV
    return np.array([*addresses, *pitches, sample, *picture.size, *axes, kind], np.int64)
