"""Upscales one picture, or one file of pictures, by one call."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from waifu2x.api.files import UpscaledFile, upscaled
from waifu2x.api.options import FileOptions, FilePath, OnProgress, UpscalerOptions
from waifu2x.api.upscaler import Upscaler
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.table import Compression, Range
from waifu2x.imaging.arrays import ArrayLike

if TYPE_CHECKING:
    from PIL.Image import Image

_Pixel = TypeVar("_Pixel", np.uint8, np.uint16, np.float32)


@overload
def upscale(
    image: Image,
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = None,
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> Image: ...
@overload
def upscale(
    image: NDArray[_Pixel],
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = None,
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> NDArray[_Pixel]: ...
@overload
def upscale(
    image: ArrayLike,
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = None,
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> NDArray[np.uint8 | np.uint16 | np.float32]: ...
def upscale(
    image: Image | ArrayLike,
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = None,
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> Image | NDArray[Any]:
    """Enlarges and denoises one picture. For several, an Upscaler keeps its networks.

    Args:
        image: A PIL image, a NumPy array, or an array of another library, as an Upscaler takes it
            when it is called.
        scale: Output pixels per input pixel in each direction, above 0 and up to 32; without it and
            any other size, 2.
        noise: The level of noise to remove, from 0 (weak) to 3 (strong); None for no denoising;
            "auto" for a PIL image that was opened from a JPEG, by its quality.
        on_progress: Called with each further part of the work; the parts add up to 1. Raise an
            exception in it to stop the work.
        options: Further keyword arguments of an Upscaler.

    Returns:
        The result in the kind of the image, a PIL image for one, otherwise a NumPy array with the
        dimensions, planes and dtype of the image.

    Raises:
        Waifu2xError: ImageError, ModelError or BackendError, as an Upscaler and its calls do.
        ValueError: An argument makes no sense.

    Examples:
        >>> waifu2x.upscale(image, scale=2, noise=1).shape
        (18, 32, 3)
        >>> waifu2x.upscale(image, width=40).shape
        (23, 40, 3)
    """
    with Upscaler(scale, noise, **options) as upscaler:
        return upscaler(image, on_progress=on_progress)


def upscale_file(
    source: FilePath,
    target: FilePath,
    scale: float | Fraction | None = None,
    noise: int | Literal["auto"] | None = "auto",
    *,
    format: str | None = None,
    quality: int | Literal["like"] | None = None,
    compression: Compression = "default",
    depth: Literal["auto", 8, 10, 12, 16] = "auto",
    to: Range | None = None,
    background: tuple[int, int, int] = (255, 255, 255),
    strip: bool = False,
    copy_times: bool = False,
    overwrite: bool = False,
    max_pixels: int = MAX_PIXELS,
    on_progress: OnProgress | None = None,
    **options: Unpack[UpscalerOptions],
) -> UpscaledFile:
    """Enlarges and denoises one file of pictures into another, as `waifu2x upscale` does.

    The result keeps what its format can hold: transparency, bits per sample, colour profile, EXIF,
    XMP and other metadata, all frames of an animation with their timing, all pages of a TIFF. A CBZ
    or ZIP becomes another one, with its pages in their formats and all other files. The result
    appears under its name when it is complete; if the work fails, nothing is changed. For many
    files, the method `Upscaler.upscale_file` keeps the networks compiled.

    Args:
        source: The file to read, in any format that `waifu2x info` knows.
        target: The file to make. Its extension says the format. Folders on the way to it are made.
        scale: Output pixels per input pixel in each direction, above 0 and up to 32; without it and
            any other size, 2.
        noise: "auto" removes noise from a JPEG by its quality, where that makes it better; else the
            level of noise to remove, from 0 (weak) to 3 (strong), or None for none.
        format: The format of the target by its usual extension, such as "png", where the name of
            the target has none; or that of the pages of an archive.
        quality: 1 to 100 for JPEG (default 95), AVIF and HEIC (90), WebP, JPEG XL and JPEG 2000
            (default: lossless); "like" is for a JPEG coded as finely as the source, if that is one.
        compression: How much time may make the file smaller: "fast", "default" or "best", for PNG,
            TIFF, WebP and JPEG XL.
        depth: Bits per sample: 8, 10, 12 or 16; "auto": as many as the source has, where the
            format holds them.
        to: "sdr" turns pictures of HDR (PQ or HLG) into sRGB; others stay as they are.
        background: Red, green and blue, 0 to 255 each, under transparent pixels where the format
            has no transparency.
        strip: Whether to drop metadata; the colour profile stays.
        copy_times: Whether the target gets the dates of the source.
        overwrite: Whether to replace a target that exists. The source is never replaced.
        max_pixels: The most pixels that the source may hold, all its frames together.
        on_progress: Called with each further part of the work; the parts add up to 1 if the source
            tells how many pictures it holds. It may be called by other threads, one at a time. To
            stop the work, raise an exception in it, which comes out of this call.
        options: Further keyword arguments of an Upscaler.

    Returns:
        The size of the result, how long it took, the noise level, and what there is to say.

    Raises:
        ImageError: The source is not there, is damaged or too large, or is no picture.
        ExistsError: The target exists, and `overwrite` is false.
        OutputError: The target cannot be written, or its format cannot hold the result.
        ModelError: The model is not there, is damaged, or lacks what is asked for.
        BackendError: The device cannot be used, fails, or its memory is too small.
        MemoryError: The machine's memory is too small for the result.
        ValueError: An argument makes no sense, or the format does not have it.

    Examples:
        >>> made = waifu2x.upscale_file("photo.jpg", "large.webp", scale=2, quality=90)
        >>> made.path.name, made.width, made.height
        ('large.webp', 32, 18)
    """
    how: FileOptions = {
        "format": format,
        "quality": quality,
        "compression": compression,
        "depth": depth,
        "to": to,
        "background": background,
        "strip": strip,
        "copy_times": copy_times,
        "overwrite": overwrite,
        "max_pixels": max_pixels,
        "on_progress": on_progress,
    }
    with ExitStack() as stack:
        # Opened once the source is known to be readable.
        return upscaled(
            source, target, lambda: stack.enter_context(Upscaler(scale, noise, **options)), **how
        )
