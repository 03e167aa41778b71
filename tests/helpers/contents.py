"""Pictures to and from the contents of files, for tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from waifu2x.formats import png_write, table
from waifu2x.formats.adapt import OutputOptions, adapt, finish
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.read import decode as decode_all
from waifu2x.formats.write import encode as encode_to
from waifu2x.imaging.picture import Chunk, Frames, Picture
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import Weights, dump

_USUAL = OutputOptions()


def noise(*shape: int, seed: int = 0, dtype: Any = np.uint8) -> NDArray[Any]:
    """Random levels of an integer dtype."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def drawn(planes: int, alpha: bool, size: tuple[int, int], dtype: Any = np.uint8) -> Picture:
    """Noise."""
    opacity = noise(*size, seed=1, dtype=dtype) if alpha else None
    return Picture(noise(*size, planes, dtype=dtype), opacity)


def ramp(planes: int) -> NDArray[np.uint8]:
    """A smooth picture, which lossy formats keep well."""
    y, x = np.mgrid[0:24, 0:33]
    channels = [y * 5 + x * 3, 255 - x * 7, y * 10]
    return np.stack(channels[:planes], axis=-1).astype(np.uint8)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """As Pillow writes it."""
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def opened(data: bytes) -> NDArray[Any]:
    """(H, W, planes) as Pillow reads them."""
    with Image.open(io.BytesIO(data)) as image:
        return np.atleast_3d(np.asarray(image))


def encode(
    pictures: Picture | Frames,
    extension: str,
    level: int | Literal["like"] | None = None,
    options: OutputOptions = _USUAL,
    compression: table.Compression = "default",
    threads: int | None = None,
) -> bytes:
    """As the program writes what it did not enlarge."""
    frames = pictures if isinstance(pictures, Frames) else Frames((pictures,))
    form = table.of(extension)
    fitted, _ = adapt(frames, form, options)
    done = tuple(finish(picture, form, options) for picture in fitted.pictures)
    stream = io.BytesIO()
    result = Frames(done, fitted.durations, fitted.loop)
    encode_to(result, extension, table.Quality(level, compression), "p", stream, threads)
    return stream.getvalue()


def png_with(pixels: NDArray[Any], *chunks: Chunk) -> bytes:
    """A PNG with chunks before its pixels."""
    stream = io.BytesIO()
    png_write.write(Frames((Picture(pixels),)), chunks, stream)
    return stream.getvalue()


def decode(data: bytes, name: str = "p", max_pixels: int = MAX_PIXELS) -> Picture:
    """The one picture of a file."""
    (picture,) = decode_all(data, name, max_pixels).pictures
    return picture


def identity_models(folder: Path) -> Path:
    """A model set that repeats every pixel: networks whose kernels are their middle alone."""
    kernel = np.zeros((3, 3, 3, 3), np.float32)
    kernel[range(3), range(3), 1, 1] = 1
    layer = Layer("convolution", kernel, np.zeros(3, np.float32))
    folder.mkdir(exist_ok=True)
    for name in ("scale2.0x_model.json", "noise0_model.json"):
        (folder / name).write_bytes(dump(Weights("vgg_2", [layer, layer])))
    return folder
