"""Films in which much stands still: the same bytes, and how much sooner.

    python -m benchmarks.still_films [--backend auto] [-m upconv_7/art ...] [--size 1280x720]
        [--frames 48] [--films NAME ...] [-c x264:medium] [--rounds 1] [--shares]

Twelve films are drawn and coded: animation over a still background by three codecs, on twos, with
grain, pans, fades, cuts, a recorded screen and what a camera sees. Each is enlarged twice by every
network, with `--duplicates off` and with `exact` in turn, in one process; the hash of each result
is compared. Then come, for each film: frames that were computed whole, in areas and not at all; the
pixels that the network computed, as a share of all; and seconds of the process's own time (the
decoder is another process) and of the clock for both ways. With `-c`, results are encoded too.

`--shares` computes nothing: it tells the share alone. Before each table stand the times of the
comparison, and of calls for a whole frame and for parts of it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

sys.path.insert(0, str(Path(__file__).parent.parent))

from waifu2x.flows.film.frames.changed_areas import AreaFinder
from waifu2x.flows.film.frames.frame_device import FrameDevice, Stages, enlarge_run
from waifu2x.flows.film.frames.frame_enlarger import UpscalerEnlarging
from waifu2x.flows.film.frames.frame_sinks import FrameSink
from waifu2x.flows.film.frames.frame_source import PlacedFrame, Planes
from waifu2x.flows.film.parts.part_runs import Duplicates, FilmWork, PartRun
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare
from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.codecs import Wish
from waifu2x.formats.film.writing.encode import PartEncoder, Shape
from waifu2x.lowering.plan.box import Box

Pixels = NDArray[np.uint8]
RATE = 24
ROUNDS = 5
SIDES = ((384, 512), (192, 256), (96, 128))
"""Rows and columns of parts that are timed."""


class Drawn(NamedTuple):
    """A film: the picture at a frame's number, and how it is coded."""

    draw: Callable[[int, int, int], Pixels]
    """Takes the number, rows and columns; returns RGB."""
    codec: str
    options: dict[str, str]


def hills(height: int, width: int, moved: float = 0.0) -> Image.Image:
    """A drawn landscape, moved to the left by pixels."""
    picture = Image.new("RGB", (2 * width, 2 * height), (150, 180, 215))
    pen, rng = ImageDraw.Draw(picture), np.random.default_rng(1)
    unit = height / 720
    for hill in range(-1, 22):
        x = (hill * 200 - 100 - 2 * moved) * unit
        top = (500 + int(rng.integers(0, 400))) * unit
        points = [x, 2 * height, x + 160 * unit, top, x + 380 * unit, 2 * height]
        pen.polygon(points, (60 + hill % 14 * 9, 110 + hill * 31 % 80, 70), (20, 30, 20))
    for blade in range(400):
        x, y = blade * 97 % 3600 * unit - 2 * moved * unit, (900 + blade * 53 % 500) * unit
        pen.line([x, y, x + 20 * unit, y - 14 * unit], (30, 60, 30), 3)
    return picture.resize((width, height), Image.Resampling.BOX)


def figure(number: int, height: int, *, mouth: int = 0) -> Image.Image:
    """A figure whose eyes and mouth move, with transparency."""
    unit = height / 720
    side = (round(440 * unit), round(600 * unit))
    picture = Image.new("RGBA", side, (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)

    def at(*points: float) -> list[float]:
        return [point * unit for point in points]

    pen.ellipse(at(40, 20, 400, 420), (250, 220, 195, 255), (40, 20, 20, 255), 6)
    for hair in range(20):
        ends = at(40 + hair * 18, 90, 60 + hair * 18 - hair % 5 * 12, 10)
        pen.line(ends, (70, 30, 20, 255), 6)
    for x in (150, 290):
        look = number % 3 * 3
        pen.ellipse(at(x - 30, 160, x + 30, 250), (255, 255, 255, 255), (20, 10, 10, 255), 4)
        pen.ellipse(at(x - 12 + look, 190, x + 14 + look, 230), (40, 80, 160, 255))
    pen.ellipse(at(190, 330 - mouth, 250, 335 + mouth), (150, 50, 50, 255))
    pen.rectangle(at(120, 420, 320, 590), (180, 60, 60, 255), (20, 10, 10, 255), 5)
    return picture.resize((side[0] // 2, side[1] // 2), Image.Resampling.BOX)


def walking(number: int, height: int, width: int) -> Pixels:
    """A figure walks over a still background."""
    picture, one = hills(height, width), figure(number, height)
    unit = height / 720
    place = round((100 + 6 * number) * unit), round((300 + 20 * np.sin(number / 4)) * unit)
    picture.paste(one, place, one)
    return np.asarray(picture)


def talking(number: int, height: int, width: int) -> Pixels:
    """A mouth and eyes move, drawn on twos."""
    number //= 2
    picture = hills(height, width)
    one = figure(number // 6, height, mouth=(2, 9, 16, 9)[number % 4])
    picture.paste(one, (width // 2, height // 3), one)
    return np.asarray(picture)


def grained(strength: float) -> Callable[[int, int, int], Pixels]:
    """The same as `walking`, with grain."""

    def draw(number: int, height: int, width: int) -> Pixels:
        noise = np.random.default_rng(number).normal(0, strength, (height, width, 1))
        made = walking(number, height, width) + noise
        return made.clip(0, 255).astype(np.uint8)

    return draw


def panning(number: int, height: int, width: int) -> Pixels:
    """The whole picture moves."""
    return np.asarray(hills(height, width, 1.5 * number))


def fading(number: int, height: int, width: int) -> Pixels:
    """The whole picture gets darker, by two levels a frame."""
    return np.maximum(walking(0, height, width).astype(np.int16) - 2 * number, 0).astype(np.uint8)


def cutting(number: int, height: int, width: int) -> Pixels:
    """Each half second is of another picture, in which a mouth moves."""
    scene, within = divmod(number, RATE // 2)
    picture = hills(height, width, 400 * scene)
    one = figure(scene, height, mouth=(2, 9, 16, 9)[within // 2 % 4])
    picture.paste(one, (width * (1 + scene % 3) // 4, height // 3), one)
    return np.asarray(picture)


def screen(number: int, height: int, width: int) -> Pixels:
    """Text that is typed into a window, a cursor, and a scrolled page."""
    picture = Image.new("RGB", (width, height), (40, 60, 90))
    pen = ImageDraw.Draw(picture)
    pen.rectangle([width // 12, height // 12, width * 11 // 12, height * 11 // 12], (250, 250, 248))
    words = ("window", "of", "text", "that", "people", "read", "and", "edit", "all", "day", "long")
    scrolled = max(0, number - 36) * 6
    for line in range(40):
        y = height // 10 + line * 18 - scrolled
        if height // 11 < y < height * 10 // 11 and line < 24:
            text = " ".join(words[(line * 5 + word) % len(words)] for word in range(14))
            pen.text((width // 10, y), text, (30, 30, 30))
    typed = "a line of text that is being typed, letter by letter, as people do"[: number // 2]
    pen.text((width // 10, height * 10 // 11 - 20), typed, (20, 20, 120))
    x, y = width // 4 + min(number, 20) * 9, height // 4 + min(number, 20) * 5
    pen.polygon([x, y, x, y + 18, x + 12, y + 12], (0, 0, 0), (255, 255, 255))
    return np.asarray(picture)


def camera(number: int, height: int, width: int) -> Pixels:
    """A textured scene by an unsteady hand, with a sensor's noise."""
    rng = np.random.default_rng(9)
    rough = rng.normal(0, 40, (height // 4, width // 4, 3)) + 120
    picture = Image.fromarray(rough.clip(0, 255).astype(np.uint8)).resize((width, height))
    picture = picture.filter(ImageFilter.GaussianBlur(2))
    shift = 2 * np.sin(number / 3), 2 * np.cos(number / 5)
    moved = picture.transform(
        picture.size, Image.Transform.AFFINE, (1, 0, shift[0], 0, 1, shift[1]),
        Image.Resampling.BICUBIC,
    )  # fmt: skip
    noise = np.random.default_rng(number).normal(0, 2, (height, width, 3))
    return (np.asarray(moved) + noise).clip(0, 255).astype(np.uint8)


X265 = {"x265-params": "log-level=none"}
FILMS = {
    "clean, x264 18": Drawn(walking, "libx264", {"crf": "18"}),
    "clean, x264 23": Drawn(walking, "libx264", {"crf": "23"}),
    "clean, x265 20": Drawn(walking, "libx265", {"crf": "20", **X265}),
    "clean, av1 30": Drawn(walking, "libsvtav1", {"crf": "30", "preset": "8"}),
    "on twos, x264 18": Drawn(talking, "libx264", {"crf": "18"}),
    "grain 1.5, x264 18": Drawn(grained(1.5), "libx264", {"crf": "18"}),
    "grain 3, x265 20": Drawn(grained(3), "libx265", {"crf": "20", **X265}),
    "pan, x264 18": Drawn(panning, "libx264", {"crf": "18"}),
    "fade, x264 18": Drawn(fading, "libx264", {"crf": "18"}),
    "cuts, x264 20": Drawn(cutting, "libx264", {"crf": "20"}),
    "screen, x264 18": Drawn(screen, "libx264", {"crf": "18"}),
    "camera, x264 23": Drawn(camera, "libx264", {"crf": "23"}),
}


def coded(film: Drawn, path: Path, frames: int, height: int, width: int) -> None:
    """Draws a film and writes it."""
    av = library()
    with av.open(str(path), "w") as out:
        stream = out.add_stream(film.codec, rate=RATE, options=film.options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(frames):
            picture = av.VideoFrame.from_ndarray(film.draw(number, height, width), "rgb24")
            frame = picture.reformat(format="yuv420p")
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


class HashSink(FrameSink):
    """Keeps hashes of results, and what was computed of each; encodes them if asked to."""

    def __init__(self, stages: Stages, shape: Shape, *, encodes: bool) -> None:
        super().__init__(stages)
        self.hashes: list[bytes] = []
        self.placed: list[PlacedFrame] = []
        self._encoder = PartEncoder(io.BytesIO(), shape) if encodes else None

    def _write(self, placed: PlacedFrame, planes: Planes, *, is_held: bool) -> None:
        hashed = hashlib.blake2b(digest_size=16)
        for plane in planes:
            hashed.update(plane.data)
        self.hashes.append(hashed.digest())
        self.placed.append(placed)
        if self._encoder is not None:
            self._encoder.add(planes, placed.frame.pts, placed.frame.duration)

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.close()


class Made(NamedTuple):
    """A film that was made."""

    hashes: list[bytes]
    placed: list[PlacedFrame]
    cpu: float
    clock: float


def made(
    reader: FilmReader,
    prepared: PreparedFilm,
    device: FrameDevice,
    how: Duplicates,
    *,
    encodes: bool,
) -> Made:
    """Makes a film."""
    work = FilmWork(
        reader.path, Path(), prepared.shape, prepared.selection, 1 << 40, how
    )  # fmt: skip
    sink = HashSink(reader.stages, prepared.shape, encodes=encodes)
    cpu, clock = time.process_time(), time.perf_counter()
    enlarge_run(reader, work, PartRun(0, None), sink, device, lambda frames, computed: None)
    return Made(sink.hashes, sink.placed, time.process_time() - cpu, time.perf_counter() - clock)


def share_of(placed: Sequence[PlacedFrame], height: int, width: int) -> float:
    """Returns the pixels that the network computed, for each pixel of the film."""
    total = sum(
        height * width
        if one.areas is None
        else sum(area.halo.height * area.halo.width for area in one.areas)
        for one in placed
    )
    return total / (height * width * len(placed))


def kinds_of(placed: Sequence[PlacedFrame]) -> str:
    """Returns the numbers of frames computed whole, in areas and not at all."""
    whole = sum(one.areas is None for one in placed)
    held = sum(one.is_held for one in placed)
    return f"{whole} / {len(placed) - whole - held} / {held}"


def compared(reader: FilmReader, device: FrameDevice) -> Iterator[str]:
    """Yields the times of comparing two frames and finding areas."""
    pictures = reader.film.pictures
    assert device.areas is not None
    find = AreaFinder(pictures.pixels, pictures.height, pictures.width, device.areas)
    shapes = pictures.pixels.shapes(pictures.height, pictures.width)
    kept = [np.full(shape, 100, pictures.pixels.dtype) for shape in shapes]
    one = [plane.copy() for plane in kept]
    one[0][200:260, 300:500] += 1
    other = [plane + 1 for plane in kept]
    for what, planes in (("equal", kept), ("one moved thing", one), ("all else", other)):
        spent = []
        for _ in range(20):
            start = time.perf_counter()
            find(kept, planes)
            spent.append(time.perf_counter() - start)
        yield f"{what} {min(spent) * 1e3:.2f} ms"


def calls(reader: FilmReader, prepared: PreparedFilm, device: FrameDevice) -> Iterator[str]:
    """Yields the times of a whole frame and of parts of it, each in a call by itself."""
    pictures, target = reader.film.pictures, prepared.shape.encoding.pixels
    assert device.areas is not None
    for height, width in ((pictures.height, pictures.width), *SIDES):
        shapes = pictures.pixels.shapes(height, width), target.shapes(2 * height, 2 * width)
        kinds = pictures.pixels.dtype, target.dtype
        part, made = (
            [np.full(shape, 100, kind) for shape in some]
            for some, kind in zip(shapes, kinds, strict=True)
        )
        spent = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            device.areas.enlarge([part], [made], Box(0, 0, height, width))
            spent.append(time.perf_counter() - start)
        yield f"{width}x{height} {min(spent) * 1e3:.2f} ms"


def nothing(*arguments: object) -> tuple[()]:
    """Computes nothing."""
    return ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("-m", "--models", nargs="+", default=["upconv_7/art"])
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--films", nargs="+", default=list(FILMS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("-c", "--codec", default="")
    parser.add_argument("--shares", action="store_true")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    names = [name for name in FILMS if any(name.startswith(some) for some in arguments.films)]
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for number, name in enumerate(names):
            paths[name] = Path(folder, f"{number}.mkv")
            coded(FILMS[name], paths[name], arguments.frames, height, width)
        for model in arguments.models:
            for_model(model, arguments, paths)


def for_model(model: str, arguments: argparse.Namespace, paths: dict[str, Path]) -> None:
    """Prints the table of a model."""
    options = {
        "model": model, "backend": arguments.backend, "device": 0, "precision": "auto", "scale": 2,
    }  # fmt: skip
    name, _, preset = (arguments.codec or "ffv1").partition(":")
    first = True
    for film, path in paths.items():
        with FilmReader(path) as reader:
            pictures = reader.film.pictures
            height, width = pictures.height, pictures.width
            job = FilmJob(path, path.with_suffix(".out.mkv"), Wish(name, preset=preset or None))
            prepared = prepare(reader, job, 2 * height, 2 * width)
            with UpscalerEnlarging(options).opened(reader.film, prepared.shape) as device:
                if first:
                    print(f"\n{model}, {device.arithmetic}: {device.described}")
                    if device.areas is not None:
                        print(device.areas.support)
                        print("comparison: " + ", ".join(compared(reader, device)))
                        print("calls: " + ", ".join(calls(reader, prepared, device)))
                    print(
                        "\n| film | whole / areas / held | computed | CPU s | with areas | times "
                        "| s | with areas | times | bytes |\n" + "|---" * 10 + "|"
                    )
                    made(reader, prepared, device, "off", encodes=False)  # compiles and plans
                    first = False
                if arguments.shares:
                    areas = device.areas and device.areas._replace(enlarge=nothing)
                    device = replace(device, enlarge=nothing, areas=areas)
                runs: dict[Duplicates, list[Made]] = {"off": [], "exact": []}
                for _ in range(arguments.rounds):
                    for how, found in runs.items():
                        encodes = bool(arguments.codec)
                        found.append(made(reader, prepared, device, how, encodes=encodes))
                show(film, runs, height, width)


def show(film: str, runs: dict[Duplicates, list[Made]], height: int, width: int) -> None:
    """Prints the line of a film."""
    placed = runs["exact"][0].placed
    same = runs["off"][0].hashes == runs["exact"][0].hashes
    (cpu, clock), (own, passed) = (
        (min(one.cpu for one in found), min(one.clock for one in found)) for found in runs.values()
    )
    print(
        f"| {film} | {kinds_of(placed)} | {share_of(placed, height, width):.0%} "
        f"| {cpu:.1f} | {own:.1f} | {cpu / own:.2f} | {clock:.1f} | {passed:.1f} "
        f"| {clock / passed:.2f} | {'same' if same else 'OTHERS'} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
