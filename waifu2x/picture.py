"""Pictures in files: the only module that knows Pillow."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin, UnidentifiedImageError, _imaging

from waifu2x import memory
from waifu2x.errors import ImageError, OutputError
from waifu2x.files import reason, write_atomically

_READABLE = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
_WRITABLE = {
    "png": "PNG",
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "webp": "WEBP",
    "bmp": "BMP",
    "tif": "TIFF",
    "tiff": "TIFF",
}
EXTENSIONS = tuple(_WRITABLE)
"""File name extensions that can be read and written, without the dot."""
LOSSY = ("jpg", "jpeg", "webp")
"""Extensions whose format has a quality."""
EXISTS = "{}: exists already: use --overwrite or --skip-existing"
_LARGEST = {"JPEG": 65500, "WEBP": 16383, "PNG": 2**31 - 1, "BMP": 2**31 - 1, "TIFF": 2**31 - 1}
_MOST_BYTES = 2**32 - 2**24
"""Of the samples in a BMP or TIFF, whose places in the file have 32 bits; deflate may add some."""
_WITHOUT_ALPHA = ("JPEG", "BMP")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings a picture upright, by the orientation in its EXIF."""
_JPEG_QUALITY = 95
_PNG_LEVEL = 1
"""Three times as fast as zlib's default of 6 on enlarged pictures, for 1 to 9 % larger files."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in memory."""

    pixels: NDArray[Any]
    """(height, width, 1 or 3): grey or RGB."""
    alpha: NDArray[Any] | None = None
    """(height, width), in the dtype of the pixels; None for a picture without transparency."""
    icc_profile: bytes | None = None
    """What the numbers mean as colours; carried along unchanged."""

    @property
    def transparent(self) -> bool:
        """Whether any pixel lets through what lies behind: many an alpha plane is all opaque."""
        if self.alpha is None:
            return False
        opaque = np.iinfo(self.alpha.dtype).max if self.alpha.dtype.kind == "u" else 1.0
        return bool(self.alpha.min() < opaque)


def read(path: Path) -> Picture:
    """The picture in a file.

    Raises ImageError if it cannot be read, is damaged, or is of a kind that is not supported.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot read: {reason(error)}") from error
    return decode(data, str(path))


def decode(data: bytes, name: str) -> Picture:
    """The picture in the content of a file; `name` stands for it in messages. Raises ImageError."""
    if not data:
        raise ImageError(f"{name}: the file is empty")
    with (
        _in_words(name, "damaged or cut off"),
        Image.open(io.BytesIO(data), formats=_READABLE) as image,
    ):
        _refuse_unsupported(image, data, name)
        _silence_libtiff()
        image.load()
        return from_pil(image, name)


@functools.cache
def _silence_libtiff() -> None:
    """Keeps libtiff's own lines from the terminal: what they say comes as an exception as well.

    Pillow has no interface to its handlers, but its module is linked to them (on Windows it may
    hide them, and the lines stay).
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def from_pil(image: Image.Image, name: str = "the picture") -> Picture:
    """A PIL image as a Picture, upright: turned as its EXIF asks for.

    Raises ImageError for a mode that is not supported, and if its file cannot be read to the end.
    """
    with _in_words(name, "damaged, cut off, or its file was closed before it was read"):
        image.load()
        return _picture(_upright(image), name)


@contextmanager
def _in_words(name: str, otherwise: str) -> Iterator[None]:
    """Makes what Pillow raises an ImageError; `otherwise` is what most of it means."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{name}: not a PNG, JPEG, WebP, BMP or TIFF picture") from error
    except Image.DecompressionBombError as error:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000  # it warns at half of what it refuses
        raise ImageError(
            f"{name}: has more than {most} megapixels, the most that is read: cut it into parts"
        ) from error
    except MemoryError as error:
        raise ImageError(
            f"{name}: too large for this machine's memory: cut it into parts"
        ) from error
    except Exception as error:
        # Decoders meet damage in many ways, and say so with as many kinds of exception.
        raise ImageError(f"{name}: {otherwise}: {error or type(error).__name__}") from error


def _upright(image: Image.Image) -> Image.Image:
    # Not ImageOps.exif_transpose: it writes the EXIF anew, and fails where a tag of it is broken.
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        return image  # broken EXIF, in as many ways as damage; the pixels are as good as any
    return image if turn is None else image.transpose(turn)


def _picture(image: Image.Image, name: str) -> Picture:
    profile = image.info.get("icc_profile")
    transparent = "transparency" in image.info
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if transparent or image.mode == "PA" else "RGB")
    elif image.mode == "1":
        image = image.convert("LA" if transparent else "L")
    elif image.mode in ("RGB", "L") and transparent:
        image = image.convert("RGBA" if image.mode == "RGB" else "LA")
    elif image.mode == "YCbCr":
        image = image.convert("RGB")
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        raise ImageError(
            f"{name}: {image.mode} pictures are not supported: convert to 8-bit RGB or grey first"
        )
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    if image.mode in ("LA", "RGBA"):
        return Picture(np.ascontiguousarray(pixels[..., :-1]), pixels[..., -1].copy(), profile)
    return Picture(np.ascontiguousarray(pixels), None, profile)


def to_pil(picture: Picture) -> Image.Image:
    """An 8-bit Picture as a PIL image."""
    pixels = picture.pixels
    if picture.alpha is not None:
        pixels = np.concatenate([pixels, picture.alpha[..., np.newaxis]], axis=-1)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    if picture.icc_profile:
        image.info["icc_profile"] = picture.icc_profile
    return image


def same_format(one: str, other: str) -> bool:
    """Whether two extensions mean one format."""
    return _WRITABLE[one] == _WRITABLE[other]


def holds_alpha(extension: str) -> bool:
    """Whether a format has transparency."""
    return _WRITABLE[extension] not in _WITHOUT_ALPHA


def check_output(extension: str, shape: tuple[int, int, int], transparent: bool, name: str) -> None:
    """Raises OutputError if the format cannot hold such a picture, or memory cannot.

    Better before the work. `shape` is rows, columns and planes, transparency among them.
    """
    form = _WRITABLE[extension]
    height, width, planes = shape
    if max(height, width) > _LARGEST[form]:
        raise OutputError(
            f"{name}: {form} holds at most {_LARGEST[form]} pixels a side,"
            f" but the result is {width}x{height}: choose png or tiff"
        )
    if form in ("BMP", "TIFF") and height * width * planes > _MOST_BYTES:
        raise OutputError(
            f"{name}: {form} holds at most 4 GiB, but the result is {width}x{height}: choose png"
        )
    if transparent and not holds_alpha(extension):
        raise OutputError(
            f"{name}: {form} has no transparency, but the picture has: choose png, webp or tiff"
        )
    # Pillow's own copy of more than one plane has four bytes to a pixel.
    needed, free = height * width * (planes + 4 if planes > 1 else 1), memory.available()
    if free is not None and needed > free:
        raise OutputError(
            f"{name}: the result of {width}x{height} pixels takes {needed / 2**30:.1f} GiB of"
            f" memory, but {free / 2**30:.1f} GiB are free: use a smaller scale"
        )


def write(
    picture: Picture, path: Path, extension: str, quality: int | None, *, replace: bool = False
) -> None:
    """Writes a picture; the file appears under its name when it is complete.

    Raises OutputError, also if there is a file by then and `replace` is false.
    """
    data = encode(picture, extension, quality, str(path))
    try:
        write_atomically(path, data, replace=replace)
    except FileExistsError as error:
        raise OutputError(EXISTS.format(path)) from error
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {reason(error)}") from error


def encode(picture: Picture, extension: str, quality: int | None, name: str) -> bytes:
    """The content of a file; `quality` 1 to 100 is for LOSSY. Raises OutputError."""
    form = _WRITABLE[extension]
    if form in _WITHOUT_ALPHA and not picture.transparent:
        picture = replace(picture, alpha=None)
    options: dict[str, Any] = {}
    if form == "PNG":
        options = {"compress_level": _PNG_LEVEL}
    elif form == "JPEG":
        options = {"quality": quality or _JPEG_QUALITY, "subsampling": "4:4:4"}
    elif form == "WEBP":
        options = {"quality": quality} if quality else {"lossless": True}
        options["exact"] = True  # keep the colours under transparent pixels
    elif form == "TIFF":
        options = {"compression": "tiff_adobe_deflate"}
    if picture.icc_profile:
        options["icc_profile"] = picture.icc_profile
    stream = io.BytesIO()
    try:
        to_pil(picture).save(stream, form, **options)
        return stream.getvalue()
    except MemoryError as error:
        raise OutputError(
            f"{name}: not enough memory to encode as {form}: use a smaller scale"
        ) from error
    except (OSError, ValueError) as error:
        raise OutputError(f"{name}: cannot encode as {form}: {error}") from error


def _refuse_unsupported(image: Image.Image, data: bytes, name: str) -> None:
    frames = getattr(image, "n_frames", 1)
    # The further pictures of an MPO, a camera's JPEG, are previews and views for the other eye.
    if frames > 1 and image.format != "MPO":
        raise ImageError(
            f"{name}: has {frames} frames or pages, but only single pictures are supported"
        )
    # Pillow would drop the lower half of every sample without a word.
    deep_png = image.format == "PNG" and len(data) > 24 and data[24] == 16
    deep_tiff = (
        isinstance(image, TiffImagePlugin.TiffImageFile)
        and max(image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (8,)), default=8) > 8
    )
    if deep_png or deep_tiff:
        raise ImageError(f"{name}: has more than 8 bits per sample, which is not supported")
