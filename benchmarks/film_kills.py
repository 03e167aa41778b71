"""Kills a film at random moments, and looks at what is lost: tiny frames, and no network.

    python -m benchmarks.film_kills [--kills 30] [--frames 600] [--seed 1] [--codecs ffv1 x264]
        [--devices 1 2]

A film of small frames is made in parts of one second, by one device and by two. The program, or
one of its processes, is killed at random moments and started again until enough kills are done. For
each kill, it counts the frames that had been enlarged and are in no part; for each film that
becomes complete, it compares the bytes with those of an unbroken run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.film_devices import device_process
from waifu2x.flows.film import request
from waifu2x.flows.film.frames.frame_device import FrameDevice
from waifu2x.flows.film.frames.frame_source import Planes
from waifu2x.flows.film.makers.by_fleet import FilmOpening, MakerByFleet
from waifu2x.flows.film.makers.run_maker import MakerHere, RunMaker
from waifu2x.flows.film.making import make_film
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_files import parts_folder
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, prepare
from waifu2x.flows.fleet.process_worker import ProcessWorker
from waifu2x.flows.fleet.supervisor import Fleet
from waifu2x.formats.film.writing.codecs import Wish
from waifu2x.system.lazy_dataclass import dataclass

RATE = 24
IN_FLIGHT = 2
WISHES = {
    "ffv1": Wish("ffv1"),
    "x264": Wish("x264"),
}
_PART = RATE + 1
MOST_LOST = _PART + _PART // 4 + 1 + IN_FLIGHT + 1
"""Frames of a part, of the quarter of the next one that may be begun while an encoder codes the
last frames of the first, and those on their way."""


@dataclass(frozen=True)
class Squares:
    """Enlarges each sample into a square of four, and notes each frame in a file."""

    log: Path

    @contextmanager
    def opened(self, film: Any, shape: Any) -> Iterator[FrameDevice]:
        """The device."""
        log = os.open(self.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

        def enlarge(frames: Sequence[Planes], results: Sequence[Planes]) -> None:
            for planes, result in zip(frames, results, strict=True):
                for plane, made in zip(planes, result, strict=True):
                    made[:] = plane.repeat(2, 0).repeat(2, 1)
                os.write(log, b".")

        try:
            yield FrameDevice(enlarge, IN_FLIGHT, arithmetic="squares", described="squares")
        finally:
            os.close(log)


def make(source: Path, target: Path, codec: str, devices: int, log: Path) -> None:
    """Makes the film, or goes on with it: what is killed."""
    request.PART_SECONDS = 1
    job = FilmJob(source, target, WISHES[codec])
    squares = Squares(log)
    with FilmReader(source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        maker: RunMaker
        with contextlib.ExitStack() as stack:
            if devices == 1:
                device = stack.enter_context(squares.opened(reader.film, prepared.shape))
                maker = MakerHere(reader, device)
            else:
                opening = FilmOpening(source, reader.film, prepared.shape, squares)
                workers = [ProcessWorker(f"device {one}", opening) for one in range(devices)]
                fleet = stack.enter_context(contextlib.closing(Fleet(workers)))
                fleet.open()
                maker = MakerByFleet(reader, fleet)
            make_film(maker, reader, job, prepared)


def make_source(path: Path, frames: int) -> None:
    """A film in H.264 whose times are not evenly spaced, with sound."""
    import av

    rng = np.random.default_rng(5)
    noise = rng.integers(16, 236, (200, 300), np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=RATE, options={"g": "40", "bf": "3"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        sound = out.add_stream("flac", rate=48000)
        assert isinstance(sound, av.AudioStream)
        for index in range(frames):
            frame = av.VideoFrame(96, 64, "yuv420p")
            for plane, step in zip(frame.planes, (1, 2, 2), strict=True):
                rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
                top, left = index % 100, index * 3 % 150
                part = noise[top : top + 64 : step, left : left + 96 : step]
                rows[:, : plane.width] = part  # a frame of ours: its memory is writable
            frame.pts, frame.time_base = index * 1000 // RATE + index % 3, Fraction(1, 1000)
            out.mux(stream.encode(frame))
        tone = (np.sin(np.arange(48000 * frames // RATE) * 0.05) * 9000).astype(np.int16)
        heard = av.AudioFrame.from_ndarray(np.repeat(tone, 2)[None], format="s16", layout="stereo")
        heard.sample_rate, heard.pts = 48000, 0
        out.mux(stream.encode())
        out.mux(sound.encode(heard))
        out.mux(sound.encode())


class Film(NamedTuple):
    """A film that is made again and again."""

    source: Path
    target: Path
    codec: str
    devices: int
    log: Path

    def started(self) -> subprocess.Popen[bytes]:
        """The program, at work."""
        words = [str(self.source), str(self.target), self.codec, str(self.devices), str(self.log)]
        command = [sys.executable, "-m", "benchmarks.film_kills", "--make", *words]
        return subprocess.Popen(command, stderr=subprocess.PIPE)

    def parts(self) -> int:
        """Frames in parts that are complete."""
        folder = parts_folder(self.target)
        if not folder.is_dir():
            return 0
        there = part_files.all_recorded(folder)
        return sum(len(told.encoded.pts) for told in there.values())

    def enlarged(self) -> int:
        """Frames that were enlarged, in all."""
        return self.log.stat().st_size if self.log.exists() else 0


def trial(film: Film, whole: Path, kills: int, seconds: float, rng: random.Random) -> str:
    """Kills a film `kills` times and resumes it; returns the outcome."""
    done = finished = worst = of_workers = 0

    def check() -> None:
        if film.target.read_bytes() != whole.read_bytes():
            sys.exit("other bytes than those of an unbroken run")
        film.target.unlink()

    while done < kills:
        before, enlarged = film.parts(), film.enlarged()
        program = film.started()
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        victim = device_process(program.pid) if film.devices > 1 and rng.random() < 0.5 else None
        if program.poll() is None:
            done += 1
            os.kill(victim or program.pid, signal.SIGKILL)
            of_workers += victim is not None
        errors = program.communicate()[1].decode()
        if program.returncode not in (0, -signal.SIGKILL):
            sys.exit(f"exit code {program.returncode}: {errors}")
        if film.target.exists():  # whole: it appears so, or not at all
            finished += 1
            check()
            shutil.rmtree(parts_folder(film.target), ignore_errors=True)
            continue
        time.sleep(0.3)  # until processes that have lost the program have seen it
        lost = film.enlarged() - enlarged - (film.parts() - before)
        worst = max(worst, lost)
        if lost > film.devices * MOST_LOST:
            sys.exit(f"{lost} frames were lost with one kill")
    program = film.started()
    errors = program.communicate()[1].decode()
    if program.returncode:
        sys.exit(f"exit code {program.returncode}: {errors}")
    check()
    return (
        f"{done} kills, {of_workers} of them of one process of two; {finished + 1} films complete,"
        f" all of the same bytes; at most {worst} frames lost with one kill of all"
    )


def main() -> None:
    """The script."""
    if sys.argv[1:2] == ["--make"]:
        made_of, made, codec, devices, noted = sys.argv[2:]
        make(Path(made_of), Path(made), codec, int(devices), Path(noted))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--codecs", nargs="+", choices=list(WISHES), default=list(WISHES))
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "film.mkv"
        make_source(source, arguments.frames)
        for codec in arguments.codecs:
            for count in arguments.devices:
                log = folder / "log"
                log.unlink(missing_ok=True)
                whole = folder / "whole.mkv"
                for old in folder.glob("*whole.mkv"), folder.glob("unbroken*"):
                    for path in old:
                        path.unlink()
                for each in sorted(
                    {1, count}
                ):  # what is killed is compared with what one device makes
                    target = whole if each == 1 else folder / "unbroken.mkv"
                    begun = time.monotonic()
                    unbroken = Film(source, target, codec, each, folder / "unbroken").started()
                    if unbroken.wait():
                        sys.exit("cannot make the film")
                    seconds = time.monotonic() - begun
                film = Film(source, folder / "out.mkv", codec, count, log)
                found = trial(film, whole, arguments.kills, seconds, rng)
                print(f"{codec}, {count} device{'s'[: count - 1]}: {found}", flush=True)


if __name__ == "__main__":
    main()
