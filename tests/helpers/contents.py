"""Pictures to and from the contents of files, for tests."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, finish
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.png.write import PngWriter
from waifu2x.formats.read import open_content
from waifu2x.formats.table import OutputOptions
from waifu2x.formats.write import ContentSink, header_of
from waifu2x.imaging.picture import Chunk, Metadata, Picture
from waifu2x.imaging.streams import Header, Timed
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump
from waifu2x.system.stopwatch import Stopwatch

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


class Frames(NamedTuple):
    """All pictures of a file at once, which the program never has."""

    pictures: tuple[Picture, ...]
    durations: tuple[float, ...] = ()
    """Milliseconds of each frame of an animation; empty for all else."""
    loop: int = 0
    format: str = ""
    notices: tuple[str, ...] = ()

    @property
    def header(self) -> Header:
        """The header that a source of them would give first."""
        extents = [header_of(one).extent(0) for one in self.pictures]
        kept = extents[:1] if self.durations else extents
        return Header(
            tuple(kept), len(self.pictures), bool(self.durations), self.loop, notices=self.notices
        )

    def timed(self) -> list[Timed]:
        """Each with its duration."""
        durations = self.durations or [None] * len(self.pictures)
        return [Timed(*pair) for pair in zip(self.pictures, durations, strict=True)]


def decode_all(data: bytes, name: str = "p", max_pixels: int = MAX_PIXELS) -> Frames:
    """Everything that a file holds."""
    with closing(open_content(data, name, max_pixels)) as source:
        header, timed = source.header, list(source)
    notices = {*header.notices, *(notice for one in timed for notice in one.notices)}
    durations = tuple(one.duration for one in timed if one.duration is not None)
    pictures = tuple(one.picture for one in timed)
    assert header.count == len(pictures)
    assert [extent[:2] for extent in header.all_extents] == [
        picture.pixels.shape[:2] for picture in pictures
    ]
    assert header.animated == bool(durations)
    assert header.format
    return Frames(pictures, durations, header.loop, header.format, tuple(sorted(notices)))


def adapt(
    frames: Frames,
    form: table.Format,
    options: OutputOptions,
    quality: table.Quality = table.Quality(),  # noqa: B008 (it is frozen)
) -> tuple[Frames, list[str]]:
    """All pictures as a format holds them, and what is said about that."""
    adapter = Adapter(form, options, quality)
    header, notices = adapter.header(frames.header)
    pictures = []
    for picture in frames.pictures[: header.count]:
        picture, said = adapter.picture(picture)
        pictures.append(picture)
        notices += said
    durations = frames.durations if header.animated else ()
    return Frames(tuple(pictures), durations, frames.loop), [*frames.notices, *notices]


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
    quality = table.Quality(level, compression)
    fitted, _ = adapt(frames, form, options, quality)
    done = tuple(map(finish, fitted.pictures))
    stream = io.BytesIO()
    result = Frames(done, fitted.durations, fitted.loop)
    sink = ContentSink(stream, extension, quality, "p", Stopwatch(), threads)
    sink.open(result.header)
    for timed in result.timed():
        sink.add(timed)
    sink.close()
    return stream.getvalue()


def png_with(pixels: NDArray[Any], *chunks: Chunk) -> bytes:
    """A PNG with chunks before its pixels."""
    stream = io.BytesIO()
    picture = Picture(pixels, metadata=Metadata(chunks=chunks))
    writer = PngWriter(header_of(picture), stream)
    writer.add(Timed(picture))
    writer.finish()
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
        (folder / name).write_bytes(dump(NetworkWeights("vgg_2", [layer, layer])))
    return folder
