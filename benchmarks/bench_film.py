"""Films: each stage alone, and the whole program, which is held to the slowest of them.

    python benchmarks/bench_film.py [--backend auto | --backend copy] [-m realesrgan/animevideo]
        [--size 1920x1080] [--frames 240] [-c x264:veryfast -c av1:9 -c ffv1 -c y4m]
        [--bits 8] [--seconds 4] [--long-parts]

A drawing that moves is coded as H.264 of that size, and enlarged 2 times. Decoding alone is the
process that reads, whose frames are given back at once; the network alone is called by as many
threads as the backend wants; an encoder alone gets frames that are there already. Then comes the
whole: with an encoder, a film with parts; with y4m, into a pipe that somebody empties. `copy` is no
network but a copy of each sample to four, at the speed of memory: what is left is the program's own
time. The first frames of each film are compared with what they are made of before it is timed.

The share of the slowest is what counts where each stage has something of its own (a GPU, cores to
spare); the share of all in turn where they share the cores.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from waifu2x.flows.film import making
from waifu2x.flows.film.frames.frame_device import FrameDevice, FrameMemory, Stages, stack_size
from waifu2x.flows.film.frames.frame_enlarger import UpscalerEnlarging
from waifu2x.flows.film.frames.frame_sinks import RawSink
from waifu2x.flows.film.frames.frame_source import Planes
from waifu2x.flows.film.makers.run_maker import MakerHere
from waifu2x.flows.film.making import make_film
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.selection import Selection
from waifu2x.formats.film.writing.codecs import Wish
from waifu2x.formats.film.writing.encode import PartEncoder, Shape
from waifu2x.imaging.streams import Header

GROUP = 48
"""Frames that are drawn and coded; the film repeats them."""
FRAMES_AT_ONCE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("-m", "--model", default="realesrgan/animevideo")
    parser.add_argument("--size", default="1920x1080")
    parser.add_argument("--bits", type=int, default=8, choices=(8, 10))
    parser.add_argument("--frames", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--stack", type=int, help="frames of a call")
    parser.add_argument("--long-parts", action="store_true", help="as of GPUs")
    parser.add_argument("--in-flight", type=int, help="stacks under way")
    parser.add_argument("-c", "--codec", action="append", dest="codecs", metavar="NAME[:PRESET]")
    arguments = parser.parse_args()
    width, height = map(int, arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        source = folder / "film.mkv"
        draw(source, height, width, arguments.bits, arguments.frames)
        device = held.enter_context(opened(arguments, source))
        device = replace(
            device,
            stack=arguments.stack or device.stack,
            in_flight=arguments.in_flight or device.in_flight,
        )
        print(f"{device.described}: {arguments.size} x 2, {arguments.bits} bits, {cores()} cores")
        print(f"in flight {device.in_flight}, stacks of {device.stack}")
        decoding = decoding_alone(source)
        show("decoding alone", decoding)
        network = network_alone(source, device, arguments.seconds)
        show("network alone", network)
        for codec in arguments.codecs or ["x264:veryfast", "y4m"]:
            job = replace(job_of(codec, source, folder), has_long_parts=arguments.long_parts)
            with FilmReader(source, device.pin) as reader:
                prepared = prepared_of(reader, job)
                encoding = encoding_alone(source, prepared.shape, device, arguments.seconds)
                show(f"{codec} alone", encoding)
                rate = whole(reader, job, prepared, device, codec)
            # Machines drift: what the whole is held to is measured before and after it.
            again = network_alone(source, device, arguments.seconds)
            alone = [decoding, 2 / (1 / network + 1 / again), encoding]
            network = again
            in_turn = 1 / sum(1 / one for one in alone)
            print(
                f"{'':24} {rate / min(alone):.1%} of the slowest alone, {rate / in_turn:.1%} of"
                " all in turn",
                flush=True,
            )


def cores() -> int:
    return len(os.sched_getaffinity(0))


def show(name: str, rate: float) -> None:
    print(f"{name:24} {rate:9.1f} frames a second", flush=True)


def draw(path: Path, height: int, width: int, bits: int, frames: int) -> None:
    """Writes a film: shapes with sharp edges that move over a gradient, as films are drawn."""
    av = library()
    coded: list[Any] = []
    with av.open(str(path), "w", format="matroska") as out:
        name, pixels = ("libx264", "yuv420p") if bits == 8 else ("libx265", "yuv420p10le")
        options = {"crf": "18", "preset": "veryfast", "g": str(GROUP), "bf": "0"}
        if bits == 10:
            options = {"preset": "ultrafast", "x265-params": "log-level=none:bframes=0"}
        video = out.add_stream(name, rate=25, options={**options, "flags": "+cgop"})
        video.height, video.width, video.pix_fmt = height, width, pixels
        y, x = np.mgrid[:height, :width]
        for index in range(GROUP):
            picture = np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], -1)
            for shape in range(12):
                middle = (shape * 97 + index * 3) % height, (shape * 211 + index * 5) % width
                inside = np.hypot(y - middle[0], x - middle[1]) < height / 9
                picture[inside] = (shape * 20, 255 - shape * 15, shape * 40 % 256)
            frame = av.VideoFrame.from_ndarray(picture.astype(np.uint8), "rgb24")
            frame = frame.reformat(format=pixels)
            frame.pict_type = 0
            coded += video.encode(frame)
        coded += video.encode()
        for turn in range(-(-frames // GROUP)):
            for number, packet in enumerate(coded[: frames - turn * GROUP]):
                copied = av.Packet(bytes(packet))
                copied.stream, copied.is_keyframe = video, packet.is_keyframe
                copied.time_base = Fraction(1, 25)
                copied.pts = copied.dts = turn * GROUP + number
                out.mux(copied)


@contextmanager
def opened(arguments: argparse.Namespace, source: Path) -> Iterator[FrameDevice]:
    """Opens the device that enlarges the frames of a film."""
    with FilmReader(source) as reader:
        film = reader.film
        shape = prepared_of(reader, FilmJob(source, source.with_name("x.y4m"))).shape
    if arguments.backend == "copy":
        stack = stack_size(film.pictures.height, film.pictures.width)
        yield FrameDevice(repeat, 3, stack, described="copy")
        return
    wanted = {"model": arguments.model, "scale": 2, "noise": None}
    how = {"backend": arguments.backend, "device": 0, "precision": "auto"}
    with UpscalerEnlarging({**wanted, **how}).opened(film, shape) as device:
        yield device


def repeat(frames: Sequence[Planes], out: Sequence[Planes]) -> None:
    """Copies each sample to four."""
    for planes, made in zip(frames, out, strict=True):
        for plane, large in zip(planes, made, strict=True):
            rows = large.reshape(plane.shape[0], 2, plane.shape[1], 2)
            for row, column in itertools.product(range(2), range(2)):
                rows[:, row, :, column] = plane


def decoding_alone(source: Path) -> float:
    with FilmReader(source) as reader:
        count = 0
        start = time.perf_counter()
        for frame in reader.frames(Selection(), FRAMES_AT_ONCE):
            frame.release()
            count += 1
        return count / (time.perf_counter() - start)


def network_alone(source: Path, device: FrameDevice, seconds: float) -> float:
    with FilmReader(source, device.pin) as reader:
        shape = prepared_of(reader, job_of("y4m", source, source.parent)).shape
        given = first_frames(reader, device.stack)
    memory = FrameMemory(shape.encoding.pixels, shape.height, shape.width, device.pin)
    with closing(memory), ThreadPoolExecutor(device.in_flight) as pool, ExitStack() as held:
        for planes in given:
            for plane in planes:
                held.enter_context(device.pin(plane))
        out = [[memory.planes() for _ in given] for _ in range(device.in_flight)]
        device.enlarge(given, out[0])
        end = time.perf_counter() + seconds

        def call(made: Sequence[Planes]) -> int:
            done = 0
            while time.perf_counter() < end:
                device.enlarge(given, made)
                done += len(given)
            return done

        start = time.perf_counter()
        done = sum(pool.map(call, out))
        return done / (time.perf_counter() - start)


def first_frames(reader: FilmReader, count: int) -> list[list[NDArray[Any]]]:
    """Copies of the planes of a film's first frames."""
    found = []
    with closing(reader.frames(Selection(), FRAMES_AT_ONCE)) as frames:
        for frame in itertools.islice(frames, count):
            found.append([plane.copy() for plane in frame.planes])
            frame.release()
    return found


def prepared_of(reader: FilmReader, job: FilmJob) -> PreparedFilm:
    pictures = reader.film.pictures
    return prepare(reader, job, pictures.height * 2, pictures.width * 2)


def job_of(codec: str, source: Path, folder: Path) -> FilmJob:
    name, _, preset = codec.partition(":")
    if name == "y4m":
        return FilmJob(source, Path("-"), form="y4m", duplicates="exact")
    target = folder / f"{codec.replace(':', '-')}.mkv"
    return FilmJob(source, target, Wish(name, preset=preset or None))


def results(source: Path, shape: Shape, device: FrameDevice) -> Iterator[Planes]:
    """Results of the film's first frames, over and over: what an encoder really gets."""
    with FilmReader(source) as reader:
        frames = first_frames(reader, GROUP)
    memory = FrameMemory(shape.encoding.pixels, shape.height, shape.width)
    made = [memory.planes() for _ in frames]
    for planes, result in zip(frames, made, strict=True):
        device.enlarge([planes], [result])
    return itertools.cycle(made)


def encoding_alone(source: Path, shape: Shape, device: FrameDevice, seconds: float) -> float:
    frames = results(source, shape, device)
    count = 0
    start = time.perf_counter()
    if shape.encoding.codec == "y4m":
        with emptied_pipe():
            sink = RawSink(making._STANDARD_OUTPUT, "pipe", shape, Stages())
            sink.open(Header(()))
            while time.perf_counter() < start + seconds:
                sink.write(next(frames))
                count += 1
        return count / (time.perf_counter() - start)
    encoder = PartEncoder(io.BytesIO(), shape)
    step = round(1 / shape.rate / shape.tick)  # an encoder spends less on what is shown shortly
    while time.perf_counter() < start + seconds:
        encoder.add(next(frames), count * step, step)
        count += 1
    encoder.close()
    return count / (time.perf_counter() - start)


def whole(
    reader: FilmReader,
    job: FilmJob,
    prepared: PreparedFilm,
    device: FrameDevice,
    codec: str,
) -> float:
    start = time.perf_counter()
    last = 0.0

    def count(frames: int, computed: int) -> None:
        nonlocal last
        last = time.perf_counter() - start

    if making.is_live(job):
        with emptied_pipe():
            made = making.make_live(reader, job, prepared, device, on_frames=count)
    else:
        made = make_film(MakerHere(reader, device, count), reader, job, prepared)
    seconds = time.perf_counter() - start
    rate = made.frames / seconds
    assert made.computed == made.frames
    times = reader.stages.times()
    shares = ", ".join(f"{name} {getattr(times, name) / seconds:.0%}" for name in times._fields[1:])
    show(f"{codec} whole", rate)
    print(f"{'':24} at work: {shares}; last result after {last:.2f} of {seconds:.2f} s", flush=True)
    return rate


@contextmanager
def emptied_pipe() -> Iterator[None]:
    """A pipe as standard output, which another process empties."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        assert cat.stdin is not None
        before, making._STANDARD_OUTPUT = making._STANDARD_OUTPUT, cat.stdin.fileno()
        try:
            yield
        finally:
            making._STANDARD_OUTPUT = before


if __name__ == "__main__":
    main()
