"""The process that reads a film and its client: who waits for whom, what errors become."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

if sys.platform == "win32":
    pytest.skip("descriptors", allow_module_level=True)

from tests.flows.test_film_streams import pictures_of, squares  # noqa: E402
from tests.flows.test_film_times import picture  # noqa: E402
from tests.helpers import containers  # noqa: E402
from tests.helpers.film_threads import reading_here  # noqa: E402
from waifu2x.errors import FaultError, ImageError, OutputError  # noqa: E402
from waifu2x.flows.film import making  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.reading import client, messages, process  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.reading.process import (  # noqa: E402
    OPENING,
    failure_of,
    needed_memory,
)
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.flows.fleet import heartbeat  # noqa: E402
from waifu2x.flows.fleet.heartbeat import Heartbeat, HeartbeatWatch, new_signs  # noqa: E402
from waifu2x.flows.flow import StoppedError  # noqa: E402
from waifu2x.formats.film import pipes  # noqa: E402
from waifu2x.formats.film.reading.reader import Reader  # noqa: E402
from waifu2x.formats.film.reading.selection import Selection  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

PIPE = Path("-")


class _Player:
    """Reads what is written into a pipe, but only once others have waited for it so often that
    signs of life, had they been messages, would have filled every buffer."""

    PAUSE = 1000

    def __init__(self) -> None:
        self.out, self.written_to = os.pipe()
        self.taken = b""
        self.waits = 0
        self._goes_on = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)

    def select(self, *arguments: Any) -> Any:
        """In the place of `select.select`: counts, and waits no longer than a moment."""
        ready = select.select(arguments[0], arguments[1], arguments[2], 0.0005)
        if not any(ready):
            self.waits += 1
            if self.waits >= self.PAUSE:
                self._goes_on.set()
        return ready

    def _play(self) -> None:
        self._goes_on.wait()
        with os.fdopen(self.out, "rb") as file:
            self.taken = file.read()

    def __enter__(self) -> _Player:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._goes_on.set()
        os.close(self.written_to)
        self._thread.join()


def noisy(pictures: Sequence[Sequence[NDArray[Any]]], results: Sequence[Sequence[Any]]) -> None:
    """Writes pictures as squares under noise, which no encoder makes small."""
    for planes, result in zip(pictures, results, strict=True):
        for plane, made in zip(squares(planes), result, strict=True):
            noise = np.random.default_rng(1).integers(0, 256, plane.shape, np.uint8)
            made[:] = plane ^ noise


def test_a_player_that_pauses_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither side waits for the other, however long it is. Messages of pictures are larger than
    the connection holds, and what is written is more than the pipe does."""
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"
    films.film(source, codec="ffv1", times=range(0, 1000, 40), size=(192, 256))
    monkeypatch.setattr(heartbeat, "OFTEN", 0.0)
    made: list[Any] = []
    with _Player() as player, reading_here(monkeypatch):
        monkeypatch.setattr(making, "_STANDARD_OUTPUT", player.written_to)
        monkeypatch.setattr(pipes, "select", player)

        def work() -> None:
            with FilmReader(source) as reader:
                job = FilmJob(source, PIPE, Wish("ffv1"))
                prepared = prepare(reader, job, 384, 512)
                made.append(making.make_live(reader, job, prepared, FrameDevice(noisy)).frames)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(60)
        assert not worker.is_alive(), "both sides wait for each other"
    assert player.waits >= player.PAUSE
    assert made == [25]
    target.write_bytes(player.taken)
    _, old, _ = pictures_of(source)
    _, new, _ = pictures_of(target)
    wanted = [[np.empty_like(plane) for plane in squares(one)] for one in old]
    noisy(old, wanted)
    for one, other in zip(wanted, new, strict=True):
        for plane, given in zip(one, other, strict=True):
            assert (plane == given).all()


def test_signs_of_life_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(0.0, 1.5)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))

    signs = new_signs()
    given, watch = Heartbeat(signs), HeartbeatWatch(signs, 3.0)
    watch.begin()
    assert not watch.is_lost()
    assert not watch.is_lost()
    given.beat()
    assert not watch.is_lost()
    assert not watch.is_lost()
    assert not watch.is_lost()
    assert watch.is_lost()
    given.rest(2.0)
    looks = [watch.is_lost() for _ in range(6)]
    assert looks == [False] * 5 + [True]


def test_a_process_that_is_silent_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 400, 40))
    over = threading.Event()

    def stuck(self: Reader, selection: Selection) -> Iterator[Any]:
        over.wait()
        yield from ()

    monkeypatch.setattr(Reader, "frames", stuck)
    with reading_here(monkeypatch), FilmReader(source) as reader:
        monkeypatch.setattr(reader._watch, "patience", 1.0)
        monkeypatch.setattr(reader._child, "kill", over.set)
        with pytest.raises(ImageError, match="its decoder has not answered for"):
            list(reader.frames(Selection(), 4))
        monkeypatch.undo()


def test_whoever_opens_a_film_may_lose_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, looks = threading.Event(), iter(range(3))

    def stuck(self: process.ReadFilm, **keeps: bool) -> None:
        over.wait()
        raise ImageError("film: was never opened")

    def check() -> None:
        if next(looks) == 2:
            over.set()
            raise StoppedError

    monkeypatch.setattr(process.ReadFilm, "_new_reader", stuck)
    monkeypatch.setattr(client, "OFTEN", 0.01)
    with reading_here(monkeypatch), pytest.raises(StoppedError):
        FilmReader(tmp_path / "film.mkv", check=check)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ImageError("film: is odd"), ImageError, "film: is odd"),
        (OutputError("out: is full"), OutputError, "out: is full"),
        (BrokenPipeError(), BrokenPipeError, ""),
        (MemoryError(), ImageError, "film: its pictures take more memory than there is"),
        (OSError(12, "no"), ImageError, "film: its pictures take more memory than there is"),
        (OSError(5, "no"), ImageError, "film: cannot be read: "),
        (av.error.InvalidDataError(1, "odd"), ImageError, "film: cannot be read: odd"),
        (KeyError("x"), FaultError, "film: cannot be read: KeyError: 'x': this is a fault of waif"),
        (AssertionError(), FaultError, "this is a fault of waifu2x; report it"),
        (ValueError("x"), FaultError, "this is a fault of waifu2x; report it"),
    ],
    ids=lambda one: repr(one) if isinstance(one, Exception) else "",
)
def test_what_an_error_becomes(error: Exception, kind: type[Exception], message: str) -> None:
    failure = pickle.loads(pickle.dumps(failure_of(error, "film")))
    assert type(failure.error) is kind
    assert message in str(failure.error)
    assert ("Traceback" in failure.trace or "Error" in failure.trace) == (kind is FaultError)


def test_who_ends_early_is_not_told_what_is_wrong_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 400, 40))
    asked: list[bool] = []

    say = process.ReadFilm._say

    def full(film: process.ReadFilm, reply: messages.Reply) -> None:
        if isinstance(reply, messages.FramesEnded):
            asked.append(True)
            raise OutputError("out.mkv: the disk is full")
        say(film, reply)

    with reading_here(monkeypatch), FilmReader(source) as reader:
        monkeypatch.setattr(process.ReadFilm, "_say", full)
        frames = reader.frames(Selection(), 1)
        next(frames).release()
        frames.close()  # as a caller that ends for a reason of its own
    assert asked


def test_a_fault_of_ours_is_none_of_the_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 400, 40))

    def wrong(*_: Any) -> Any:
        raise KeyError("a fault")

    caplog.set_level(logging.DEBUG)
    with reading_here(monkeypatch), FilmReader(source) as reader:
        monkeypatch.setattr(process, "planes_of", wrong)
        with pytest.raises(FaultError, match=r"film\.mkv: cannot be read: KeyError: 'a fault'"):
            list(reader.frames(Selection(), 4))
    assert "in wrong" in caplog.text  # where it was


@pytest.mark.skipif(sys.platform != "linux", reason="limits")
def test_large_pictures_get_the_memory_that_they_need(tmp_path: Path) -> None:
    import resource

    from waifu2x.system.machine import available_memory

    small, large = tmp_path / "small.mkv", tmp_path / "large.mkv"
    films.film(small, codec="ffv1", times=(0, 40))
    films.film(large, codec="ffv1", times=(0,), size=(1080, 1920))
    needs = []
    for path in (small, large):
        with av.open(str(path)) as container:
            needs.append(needed_memory(container))
        with FilmReader(path) as reader:
            soft, _ = resource.prlimit(reader._child.pid, resource.RLIMIT_DATA)
        left = available_memory()
        assert soft == needs[-1] or (left is not None and soft < needs[-1])
    assert OPENING < needs[0] < needs[1]


def test_a_picture_of_an_unknown_codec_is_no_fault(tmp_path: Path) -> None:
    """PyAV has no context for it."""
    source = tmp_path / "film.mkv"
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0])
    known, unknown = (
        containers.track(
            1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head + code + bytes(20)), which
        )
        for which, code in ((1, b"MPNG"), (2, b"?no?"))
    )
    frames = b"".join(containers.block(1, 40 * number, picture()) for number in range(3))
    source.write_bytes(containers.matroska(known + unknown, [(0, frames)]))
    with av.open(str(source)) as container:
        assert container.streams.video[1].codec_context is None  # else it tests nothing
    with FilmReader(source) as reader:
        assert len(list(reader.frames(Selection(), 4))) == 3
    source.write_bytes(containers.matroska(unknown, [(0, frames.replace(b"\x81", b"\x82"))]))
    with pytest.raises(ImageError, match=r"film\.mkv: .* unknown to FFmpeg"), FilmReader(source):
        pass


class _Claimed:
    """A film of 8K, as far as it matters here."""

    def __init__(self, pixels: str) -> None:
        context = av.CodecContext.create("rawvideo", "w")
        context.width, context.height, context.pix_fmt = 7680, 4320, pixels
        self.codec_context = context
        self.streams = self
        self.video = [self]


@pytest.mark.parametrize(
    ("pixels", "pictures"), [("yuv420p10le", 38 * 104), ("yuv444p10le", 38 * 200)]
)
def test_8k_fits_on_many_cores(pixels: str, pictures: int) -> None:
    """17 threads and 16 references were measured to take that, in MiB, and threads' own."""
    container: Any = _Claimed(pixels)
    assert needed_memory(container, 64) > (pictures + 64 * 16) << 20
    assert needed_memory(container, 64) < 32 << 30
    assert needed_memory(container, 1) < needed_memory(container, 64)
