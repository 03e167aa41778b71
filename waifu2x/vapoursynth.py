"""A filter for VapourSynth, which enlarges and denoises clips as `waifu2x video` does films.

from waifu2x.vapoursynth import upscale

upscale(clip, scale=2, model="upconv_7/art").set_output()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Unpack

import numpy as np
import vapoursynth as vs
from numpy.typing import NDArray

from waifu2x.api.options import UpscalerOptions
from waifu2x.api.upscaler import Upscaler
from waifu2x.errors import ImageError
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger
from waifu2x.formats.film.description import (
    BT709,
    BT2020,
    CHROMAS,
    MATRICES,
    RGB,
    SMPTE170M,
    UNSPECIFIED,
    FilmColours,
    PixelFormat,
)
from waifu2x.formats.film.reading.describe import HD_LINES
from waifu2x.imaging.dtypes import from_unit
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.planar import DEPTHS
from waifu2x.networks import catalogue

_SITINGS = {0: "left", 1: "center", 2: "topleft"}
"""By the numbers of `_ChromaLocation`; others are rare, and taken as if there were none."""
_GBR = (1, 2, 0)
"""Planes of RGB in the order of films."""

_Enlarge = Callable[[vs.VideoFrame, vs.VideoFrame], None]
"""Makes the planes of the second frame of those of the first."""


def upscale(
    clip: vs.VideoNode,
    scale: float | Fraction | None = None,
    noise: int | None = None,
    **options: Unpack[UpscalerOptions],
) -> vs.VideoNode:
    """Enlarges and denoises the frames of a clip.

    Frames of RGB, YUV and grey of 8 to 16 bits go through the networks as planes, and have the
    bits that `waifu2x video` gives them. Matrix, range and place of chroma are read from the
    properties of the first frame; without them they are BT.709, or BT.601 below 720 lines, limited
    range and left, or top left for BT.2020. RGBS and GRAYS are floats in [0, 1]. VapourSynth may
    ask for several frames at once.

    Args:
        clip: A clip of one format and one size.
        scale: Output pixels per input pixel in each direction, above 0 and up to 32; without it and
            any other size, 2.
        noise: The level of noise to remove, from 0 to 3, or None.
        options: Further keyword arguments of an `Upscaler`: model, device, precision and others.
            The model is that of films by default.

    Returns:
        A clip of the same format, length and properties.

    Raises:
        ImageError: The clip has a format that is not supported, or would grow more than 32 times.
        ModelError: The model is not there, takes several frames, or lacks what is asked for.
        BackendError: The device cannot be used.
        ValueError: An argument makes no sense.
    """
    form = _checked(clip)
    if options.get("model") is None and options.get("best_for") is None:
        options["model"] = catalogue.FILM_DEFAULT
    upscaler = Upscaler(scale, noise, **options)
    try:
        height, width = upscaler.enlarger.result_size(clip.height, clip.width)
        if height % (1 << form.subsampling_h) or width % (1 << form.subsampling_w):
            raise ImageError(
                f"clip: {form.name} has no frames of {width}x{height}",
                "choose an even size, or convert it to 4:4:4",
            )
        if upscaler.enlarger.frames(clip.height, clip.width) > 1:
            raise ImageError(
                "clip: the model takes several frames of a film", "use waifu2x video for it"
            )
        is_float = form.sample_type == vs.FLOAT
        enlarge = _of_floats(upscaler) if is_float else _of_planes(upscaler, clip, height, width)
    except BaseException:
        upscaler.close()
        raise

    def made(n: int, f: Sequence[vs.VideoFrame]) -> vs.VideoFrame:
        result = f[0].copy()
        enlarge(f[1], result)
        return result

    empty = clip.std.BlankClip(width=width, height=height, keep=True)
    return empty.std.ModifyFrame([empty, clip], made).std.CopyFrameProps(clip)


def _checked(clip: vs.VideoNode) -> Any:
    """Returns the format of a clip. Raises ImageError for one that is not supported."""
    form = clip.format
    if form is None or not (clip.width and clip.height):
        raise ImageError("clip: its format or size changes", "convert it first, by resize.Bicubic")
    steps = (1 << form.subsampling_w, 1 << form.subsampling_h)
    if form.sample_type == vs.FLOAT:
        is_known = form.bits_per_sample == 32 and form.color_family in (vs.RGB, vs.GRAY)
    else:
        is_known = form.bits_per_sample in DEPTHS and steps in CHROMAS
    if not is_known:
        raise ImageError(
            f"clip: {form.name} is not supported",
            "convert it to RGBS, or to YUV of 4:2:0, 4:2:2 or 4:4:4 with up to 16 bits",
        )
    return form


def _of_floats(upscaler: Upscaler) -> _Enlarge:
    def enlarge(source: vs.VideoFrame, result: vs.VideoFrame) -> None:
        pixels = np.stack(_planes(source), axis=-1).clip(0, 1)
        made = upscaler.enlarger.picture(Picture(from_unit(pixels, np.float32))).pixels
        for number, plane in enumerate(_planes(result)):
            plane[...] = made[..., number]

    return enlarge


def _of_planes(upscaler: Upscaler, clip: vs.VideoNode, height: int, width: int) -> _Enlarge:
    form = clip.format
    is_rgb = form.color_family == vs.RGB
    pixels = PixelFormat(
        form.name,
        form.bits_per_sample,
        1 << form.subsampling_w,
        1 << form.subsampling_h,
        form.num_planes,
        is_rgb,
    )
    colours = _colours(clip, is_rgb=is_rgb)
    size = {"height": clip.height, "width": clip.width}
    pictures: Any = SimpleNamespace(pixels=pixels, colours=colours, hdr=None, **size)
    encoding = SimpleNamespace(pixels=pixels)
    shape: Any = SimpleNamespace(encoding=encoding, colours=colours, height=height, width=width)
    enlarger = FrameEnlarger(upscaler, pictures, shape)
    order = _GBR if is_rgb else range(form.num_planes)

    def enlarge(source: vs.VideoFrame, result: vs.VideoFrame) -> None:
        given, made = ([_planes(each)[place] for place in order] for each in (source, result))
        enlarger([given], [made])

    return enlarge


def _colours(clip: vs.VideoNode, *, is_rgb: bool) -> FilmColours:
    """Returns the meaning of samples by the first frame. Raises ImageError for a matrix that is
    more than one."""
    with clip.get_frame(0) as frame:
        told = dict(frame.props)
    matrix = int(told.get("_Matrix", UNSPECIFIED))
    if is_rgb:
        matrix = RGB
    elif matrix in (UNSPECIFIED, RGB):
        matrix = BT709 if clip.height >= HD_LINES else SMPTE170M
    elif matrix not in MATRICES:
        raise ImageError(
            f"clip: its matrix, number {matrix} of ITU-T H.273, is not supported",
            "convert it, by resize.Bicubic(matrix=1)",
        )
    # Older versions of VapourSynth have another name, and 0 for full range.
    is_full = told["_Range"] == 1 if "_Range" in told else told.get("_ColorRange", not is_rgb) == 0
    usual = "topleft" if matrix == BT2020 and clip.format.subsampling_h else "left"
    siting: Any = _SITINGS.get(int(told.get("_ChromaLocation", -1)), usual)
    return FilmColours(matrix, "full" if is_full else "limited", UNSPECIFIED, UNSPECIFIED, siting)


def _planes(frame: vs.VideoFrame) -> list[NDArray[Any]]:
    """Returns views of a frame's planes, (rows, columns) each."""
    return [np.asarray(frame[number]) for number in range(frame.format.num_planes)]
