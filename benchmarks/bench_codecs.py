"""Times writing and reading: files at each --compression, and a large PNG on more and more cores.

    python benchmarks/bench_codecs.py [PICTURE ...] [--rounds 9] [--format png|tif|webp|jxl]
    python benchmarks/bench_codecs.py [PICTURE ...] --large 20000x16000 [--folder /tmp]

Pictures are of the size and kind of results. Without any (needs: pip install -e ".[bench]"), a
photo and a drawing are put together from those of quality.py and enlarged to 1920x1080 by upconv_7.
Each file is decoded and compared before it is timed; contenders take turns, medians are printed. A
large picture repeats the first one, shifted, so that no row holds a piece twice, and goes to a file
as results do, with its fsync: the least of all rounds counts. It is read by as many cores as there
are; `taskset -c 0` leaves one.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import waifu2x
from benchmarks.codecs import decode, encode
from benchmarks.rounds import measure
from waifu2x.backends.cpu.compile.isa import processor_name
from waifu2x.formats import table
from waifu2x.formats.table import Compression, Quality
from waifu2x.formats.write import write_picture
from waifu2x.imaging.picture import Picture
from waifu2x.system.machine import core_count

Pixels = NDArray[Any]
_SIZE = (1920, 1080)


def results() -> dict[str, Pixels]:
    """A photo and a drawing at 1920x1080, as the program makes them."""
    from benchmarks import quality, sprites

    made = {}
    for name, parts in (("photo", quality.photos()), ("drawing", quality.drawings())):
        sheet = Image.new("RGB", (_SIZE[0] // 2, _SIZE[1] // 2), sprites.SKY)
        x = y = lower = 0
        for part in parts:
            if x >= sheet.width:
                x, y = 0, lower
            sheet.paste(Image.fromarray(part), (x, y))
            x, lower = x + part.shape[1], max(lower, y + part.shape[0])
        made[name] = waifu2x.upscale(np.asarray(sheet), scale=2, model="upconv_7")
    return made


def encoded(pixels: Pixels, form: str, compression: Compression, threads: int | None) -> bytes:
    stream = io.BytesIO()
    encode(Picture(pixels), form, stream, Quality(None, compression), threads=threads)
    return stream.getvalue()


def pillow(pixels: Pixels, level: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=level)
    return stream.getvalue()


def opened(content: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(content)))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write_and_read(name: str, pixels: Pixels, form: str, rounds: int) -> None:
    """Prints a table for one picture."""
    writers: dict[str, Callable[[], bytes]] = {}
    for compression in get_args(table.Compression):
        writers[f"{compression}, 1 core"] = partial(encoded, pixels, form, compression, 1)
        writers[f"{compression}, all cores"] = partial(encoded, pixels, form, compression, None)
    if form == "png":
        writers |= {f"Pillow, level {level}": partial(pillow, pixels, level) for level in (1, 6, 9)}
    files = {title: encode() for title, encode in writers.items()}
    for title, content in files.items():
        theirs = opened(content) if form == "png" else pixels
        ours = decode(content, name).pixels
        if not (np.array_equal(theirs, pixels) and np.array_equal(ours, pixels)):
            raise SystemExit(f"{name}, {title}: other pixels are read")
    figures = measure({title: partial(timed, work) for title, work in writers.items()}, rounds)
    print(f"\n{name}, {pixels.shape[1]}x{pixels.shape[0]}")
    for title, seconds in figures.items():
        print(f"write {title:20} {seconds * 1e3:8.1f} ms {len(files[title]) / 1e6:7.3f} MB")
    if form != "png":
        return
    readers: dict[str, Callable[[], float]] = {}
    for title in ("default, 1 core", "Pillow, level 6"):
        content = files[title]
        readers[f"{title}, by us"] = partial(timed, partial(decode, content, name))
        readers[f"{title}, by Pillow"] = partial(timed, partial(opened, content))
    for title, seconds in measure(readers, rounds).items():
        print(f"read {title:28} {seconds * 1e3:8.1f} ms")


def repeated(pixels: Pixels, width: int, height: int) -> Pixels:
    """Returns a picture of a size; no row holds the same piece twice."""
    large = np.empty((height, width, pixels.shape[-1]), pixels.dtype)
    step = pixels.shape[1]
    for index, x in enumerate(range(0, width, step)):
        column = np.roll(pixels, 97 * index, axis=0)[:, : width - x]
        for y in range(0, height, len(pixels)):
            large[y : y + len(pixels), x : x + step] = column[: height - y]
    return large


def write_large(pixels: Pixels, folder: Path | None, rounds: int) -> None:
    """Prints seconds by cores."""
    picture = Picture(pixels)
    cores = [1 << i for i in range(core_count().bit_length()) if 1 << i < core_count()]
    print(f"\n{pixels.shape[1]}x{pixels.shape[0]}, {pixels.nbytes / 1e6:.0f} MB of pixels")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "large.png"
        for threads in (*cores, core_count()):
            save = partial(write_picture, picture, path, "png", replace=True, threads=threads)
            deflate = partial(encode, picture, "png", Sink(), threads=threads)
            to_file, alone = (min(timed(f) for _ in range(rounds)) for f in (save, deflate))
            print(
                f"{threads:3} cores: {to_file:6.2f} s to a file, {alone:6.2f} s without one,"
                f" {path.stat().st_size / 1e6:.0f} MB"
            )
        content = path.read_bytes()
        pixel_count = pixels.shape[0] * pixels.shape[1]
        read = min(timed(partial(decode, content, path.name, pixel_count)) for _ in range(rounds))
        print(f"{core_count():3} cores: {read:6.2f} s to read it")
        Image.MAX_IMAGE_PIXELS = None
        with Image.open(path) as image:
            image.load()
            box = (image.width // 2, image.height - 700, image.width, image.height)
            if not np.array_equal(np.asarray(image.crop(box)), pixels[box[1] :, box[0] :]):
                raise SystemExit("Pillow reads other pixels")


class Sink(io.BytesIO):
    """Forgets what is written to it."""

    def write(self, content: Any) -> int:
        return len(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pictures", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--format", default="png", choices=table.COMPRESSED)
    parser.add_argument("--large", metavar="WxH")
    parser.add_argument("--folder", type=Path, help="where large files are written")
    arguments = parser.parse_args()
    named = {path.stem: np.asarray(Image.open(path)) for path in arguments.pictures} or results()
    print(f"{processor_name()}, {core_count()} cores")
    if arguments.large:
        width, height = map(int, arguments.large.split("x"))
        pixels = repeated(next(iter(named.values())), width, height)
        write_large(pixels, arguments.folder, arguments.rounds)
        return
    for name, pixels in named.items():
        write_and_read(name, pixels, arguments.format, arguments.rounds)


if __name__ == "__main__":
    main()
