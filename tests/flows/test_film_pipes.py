"""Films from and into pipes, as raw frames, and as numbered pictures."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import pictures_of, probe, squares, streams, twice  # noqa: E402
from tests.helpers.film_threads import reading_here  # noqa: E402
from waifu2x.errors import ExistsError, ImageError, OutputError  # noqa: E402
from waifu2x.flows.film import making  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.frames.frame_source import FrameSource  # noqa: E402
from waifu2x.flows.film.making import MadeFilm  # noqa: E402
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun  # noqa: E402
from waifu2x.flows.film.reading import client  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.flows.fleet.heartbeat import Heartbeat  # noqa: E402
from waifu2x.formats.film import pipes as film_pipes  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.reading import (  # noqa: E402
    decoding,
    reader,
)
from waifu2x.formats.film.reading.opening import opened  # noqa: E402
from waifu2x.formats.film.reading.reader import Reader  # noqa: E402
from waifu2x.formats.film.reading.selection import Selection  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors")
needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="needs ffprobe")
PIPE = Path("-")
FFV1 = Wish("ffv1")
SIX = tuple(range(0, 240, 40))


class Pipes(NamedTuple):
    """The pipes that a film is read from and written to."""

    feed: Callable[[Path], None]
    taken: Callable[[], bytes]


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipes]:
    """Pipes in the places of standard input and output."""
    out, their_end = os.pipe()
    content: list[bytes] = []
    threads = [threading.Thread(target=lambda: content.append(_all_of(out)))]
    threads[0].start()
    monkeypatch.setattr(making, "_STANDARD_OUTPUT", their_end)
    ends = [their_end]

    def feed(path: Path) -> None:
        given, own = os.pipe()
        ends.append(given)
        monkeypatch.setattr(client, "_STANDARD_INPUT", given)
        threads.append(threading.Thread(target=_write, args=(own, path)))
        threads[-1].start()

    def taken() -> bytes:
        os.close(ends.pop(0))
        threads[0].join()
        return content[0]

    yield Pipes(feed, taken)
    for end in ends:
        os.close(end)
    for thread in threads:
        thread.join()


def _all_of(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _write(descriptor: int, path: Path) -> None:
    with os.fdopen(descriptor, "wb") as file:
        data = path.read_bytes()
        try:
            file.write(data[:7])  # less than tells what it is
            file.flush()
            file.write(data[7:])
        except BrokenPipeError:
            pass


def make(job: FilmJob, device: FrameDevice | None = None, **options: Any) -> MadeFilm:
    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        return making.make_live(reader, job, prepared, device or FrameDevice(twice), **options)


def as_rgb(pictures: Any, results: Any) -> None:
    """Takes planes of grey codes for RGB: what reaches files is what was given."""
    for planes, result in zip(pictures, results, strict=True):
        large = planes[0].repeat(2, 0).repeat(2, 1)
        for number, made in enumerate(result):
            made[:] = large + number


def assert_squares(old: Any, new: Any) -> None:
    """Where sides are odd, chroma of the result has one sample less than twice as many."""
    for given, got in zip(old, new, strict=True):
        for plane, made in zip(squares(given), got, strict=True):
            assert (plane[: made.shape[0], : made.shape[1]] == made).all()


# Raw frames.

FORMATS = [
    pytest.param("yuv420p", {"chroma_sample_location": "left"}, (1, 1, 1, 1), id="left"),
    pytest.param(
        "yuv420p",
        {"chroma_sample_location": "center"},
        (5, 2, 5, 6),
        id="center, full",
        marks=pytest.mark.matrix,
    ),
    pytest.param(
        "yuv420p",
        {"chroma_sample_location": "topleft"},
        (1, 1, 1, 1),
        id="topleft",
        marks=pytest.mark.matrix,
    ),
    pytest.param("yuv422p", {}, (1, 1, 1, 1), id="422", marks=pytest.mark.matrix),
    pytest.param("yuv444p", {}, (1, 2, 1, 1), id="444", marks=pytest.mark.matrix),
    pytest.param("gray", {}, (1, 1, 1, 1), id="grey", marks=pytest.mark.matrix),
    pytest.param("yuv420p10le", {}, (9, 1, 9, 16), id="420, 10 bits"),
    pytest.param("yuv422p10le", {}, (1, 1, 1, 1), id="422, 10 bits", marks=pytest.mark.matrix),
    pytest.param("yuv444p10le", {}, (1, 1, 1, 1), id="444, 10 bits", marks=pytest.mark.matrix),
]


@needs_ffmpeg
@pytest.mark.parametrize(("pixels", "options", "colours"), FORMATS)
def test_raw_frames_are_what_ffmpeg_writes(
    pixels: str, options: dict[str, str], colours: tuple[int, ...], tmp_path: Path, pipes: Pipes
) -> None:
    source, large = tmp_path / "film.mkv", tmp_path / "large.mkv"
    how: Any = {
        "codec": "ffv1", "pixels": pixels, "times": SIX, "size": (30, 46), "options": options,
        "colours": colours, "aspect": Fraction(32, 27), "rate": Fraction(25),
    }  # fmt: skip
    films.film(source, **how)
    assert make(FilmJob(source, PIPE, form="y4m")).frames == 6
    written = pipes.taken()
    _, planes, _ = pictures_of(source)
    _recoded(large, [squares(one) for one in planes], how)
    command = ["ffmpeg", "-v", "error", "-i", str(large), "-strict", "-1", "-f", "yuv4mpegpipe"]
    if options:  # ffv1 does not keep it, and Matroska's is not read by every FFmpeg
        command += ["-chroma_sample_location", options["chroma_sample_location"]]
    if pixels == "gray":  # Matroska has no range for it
        command += ["-color_range", "tv"]
    assert written == subprocess.check_output([*command, "-"])


def _recoded(path: Path, pictures: Sequence[Sequence[NDArray[Any]]], how: dict[str, Any]) -> None:
    """Writes planes as they are."""
    height, width = pictures[0][0].shape
    with av.open(str(path), "w") as out:
        video = out.add_stream("ffv1", rate=25, options=how["options"])
        context = video.codec_context
        context.height, context.width, context.pix_fmt = height, width, how["pixels"]
        context.sample_aspect_ratio = how["aspect"]
        (context.colorspace, context.color_range,
         context.color_primaries, context.color_trc) = how["colours"]  # fmt: skip
        for planes in pictures:
            frame = av.VideoFrame.from_dlpack(list(planes), how["pixels"])
            (frame.colorspace, frame.color_range,
             frame.color_primaries, frame.color_trc) = how["colours"]  # fmt: skip
            for packet in video.encode(frame):
                out.mux(packet)
        for packet in video.encode():
            out.mux(packet)


@pytest.mark.parametrize(
    "pixels", ["yuv420p", pytest.param("yuv444p10le", marks=pytest.mark.matrix)]
)
def test_raw_frames_go_round(pixels: str, tmp_path: Path, pipes: Pipes) -> None:
    """Odd sides, and times that raw frames do not have."""
    source, raw = tmp_path / "film.mkv", tmp_path / "raw.y4m"
    films.film(
        source, codec="ffv1", pixels=pixels, times=(0, 40, 80, 500), size=(31, 45),
        sounds=[("flac", 0.0)],
    )  # fmt: skip
    with FilmReader(source) as reader:
        job = FilmJob(source, raw)
        prepared = prepare(reader, job, 62, 90)
        made = making.make_live(reader, job, prepared, FrameDevice(twice))
    assert any("left out" in notice for notice in prepared.notices)
    assert made.notices == ("y4m has no times: 1 frames are not shown when they were",)
    _, planes, _ = pictures_of(source)
    times, found, first = pictures_of(raw)
    assert times == [Fraction(index, 25) for index in range(4)]
    assert first.format.name == pixels
    assert_squares(planes, found)
    # The other way: what a pipe holds, into a film.
    pipes.feed(raw)
    again = tmp_path / "again.mkv"
    assert make(FilmJob(PIPE, again, FFV1)).frames == 4
    _, larger, second = pictures_of(again)
    assert second.format.name == pixels
    assert_squares(found, larger)


def test_raw_frames_keep_the_shape_of_pixels(tmp_path: Path, pipes: Pipes) -> None:
    source, raw, again = (tmp_path / name for name in ("film.mkv", "raw.y4m", "again.mkv"))
    films.film(source, times=SIX, aspect=Fraction(8, 9))
    make(FilmJob(source, raw))
    assert b" A8:9 " in raw.read_bytes()[:100]
    make(FilmJob(raw, PIPE, FFV1))
    again.write_bytes(pipes.taken())
    with av.open(str(again)) as container:
        assert container.streams.video[0].sample_aspect_ratio == Fraction(8, 9)


@pytest.mark.parametrize(
    "siting",
    ["topleft", *(pytest.param(one, marks=pytest.mark.matrix) for one in ("left", "center"))],
)
def test_the_siting_of_raw_frames_is_read(siting: str, tmp_path: Path) -> None:
    source, raw = tmp_path / "film.mkv", tmp_path / "raw.y4m"
    films.film(
        source, codec="ffv1", times=SIX, options={"chroma_sample_location": siting},
        colours=(5, 2, 5, 6),
    )  # fmt: skip
    make(FilmJob(source, raw))
    with FilmReader(raw) as reader:
        colours = reader.film.pictures.colours
    assert (colours.siting, colours.range) == (siting, "full")


def test_transparent_pictures_are_no_raw_frames(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", pixels="yuva444p", times=SIX)
    with pytest.raises(OutputError, match=r"y4m cannot hold transparency; use \.mkv"):
        make(FilmJob(source, tmp_path / "raw.y4m"))
    with pytest.raises(OutputError, match="leave --codec and --crf out"):
        make(FilmJob(source, tmp_path / "raw.y4m", Wish("x264", crf=12)))


# Pipes of whole films.


@needs_ffprobe
@pytest.mark.parametrize(
    "name", ["everything.mkv", "hour.ts", pytest.param("alpha.webm", marks=pytest.mark.matrix)]
)
def test_a_film_passes_through_pipes(name: str, tmp_path: Path, pipes: Pipes) -> None:
    source, target = tmp_path / name, tmp_path / "out.mkv"
    films.CASES[name](source)
    pipes.feed(source)
    made = make(FilmJob(PIPE, PIPE, FFV1))
    target.write_bytes(pipes.taken())
    old_times, old, _ = pictures_of(source)
    times, planes, _ = pictures_of(target)
    assert made.frames == len(old) == len(planes)
    assert_squares(old, planes)
    before, after = probe(source), probe(target)
    # A film of MPEG-TS begins at its own beginning; all streams of a Matroska may begin a moment
    # later together, since none begins before 0.
    origin = Fraction(before["format"]["start_time"]) if name == "hour.ts" else 0
    moved = [new - (then - origin) for new, then in zip(times, old_times, strict=True)]
    assert max(moved) - min(moved) <= Fraction(1, 500)
    assert all(-Fraction(1, 1000) <= one <= Fraction(3, 100) for one in moved)
    kinds = {"everything.mkv": ("audio", "subtitle"), "hour.ts": ("audio",)}.get(name, ())
    for kind in kinds:
        old_packets, new_packets = _packets(source, kind), _packets(target, kind)
        assert old_packets
        assert [len(one) for one in new_packets] == [len(one) for one in old_packets]
        for given, got in zip(old_packets, new_packets, strict=True):
            assert [data for _, data in got] == [data for _, data in given]
            for (time, _), (then, _) in zip(got, given, strict=True):
                assert abs(time - (then - origin) - moved[0]) <= Fraction(1, 500)
    if name == "everything.mkv":
        fonts = [one for one in streams(after, "attachment") if "font" in str(one["tags"])]
        assert fonts
        assert len(after["chapters"]) == 2
        assert after["format"]["tags"]["title"] == "A film"
        (pictures,) = streams(after, "video")
        assert pictures["sample_aspect_ratio"] == "8:9"
        assert pictures["tags"]["title"] == "Pictures"
        assert [one["codec_name"] for one in after["streams"]].count("mjpeg") == 1


def test_transparency_of_vp9_passes_through_pipes(tmp_path: Path, pipes: Pipes) -> None:
    """It lies beside the coded pictures."""
    source, target = tmp_path / "alpha.webm", tmp_path / "out.webm"
    films.CASES["alpha.webm"](source)
    pipes.feed(source)
    make(FilmJob(PIPE, PIPE, Wish("vp9", crf=4, preset="8"), form="webm"))
    target.write_bytes(pipes.taken())
    (_, old, _), (_, new, _) = pictures_of(source), pictures_of(target)
    assert len(old) == len(new) > 0
    for given, got in zip(old, new, strict=True):
        assert len(got) == 4
        assert np.abs(squares(given)[3].astype(int) - got[3]).mean() < 3


def _packets(path: Path, kind: str) -> list[list[tuple[Fraction, bytes]]]:
    """Times and contents of the packets of each stream of a kind; those of AAC without what
    describes them in MPEG-TS, where they come several at a time."""
    found = []
    with av.open(str(path)) as container:
        numbers = [one.index for one in container.streams if one.type == kind]
        name = container.format.name
    for number in numbers:
        with av.open(str(path)) as container:
            stream = container.streams[number]
            packets = [
                (packet.pts * stream.time_base, bytes(packet))
                for packet in container.demux(stream)
                if packet.size
            ]
        is_framed = name == "mpegts" and stream.codec_context.name == "aac"
        found.append([(time, data[7:] if is_framed else data) for time, data in packets])
    return found


def test_a_stretch_passes_through_pipes(tmp_path: Path, pipes: Pipes) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"
    films.film(source, times=range(0, 100 * 40, 40), sounds=[("flac", 0.0)])
    pipes.feed(source)
    make(FilmJob(PIPE, PIPE, FFV1, cut=Cut(Fraction(3, 2), Fraction(2))))
    target.write_bytes(pipes.taken())
    _, old, _ = pictures_of(source)
    times, planes, _ = pictures_of(target)
    assert len(planes) == 12
    assert times[0] == Fraction(20, 1000)
    assert (planes[0][0] == squares(old[38])[0]).all()


def test_a_film_from_a_pipe_is_a_file_with_its_index_in_front(tmp_path: Path, pipes: Pipes) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mp4"
    films.film(source, sounds=[("aac", 0.0)], aspect=Fraction(32, 27))
    pipes.feed(source)
    make(FilmJob(PIPE, target, Wish("x264", preset="ultrafast")))
    data = target.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(target)) as container:
        video, sound = container.streams.video[0], container.streams.audio[0]
        assert video.frames == 24
        assert video.sample_aspect_ratio == Fraction(32, 27)
        assert sound.frames == 48
    assert len(list(tmp_path.iterdir())) == 2


def test_an_index_at_the_end_is_a_sentence(tmp_path: Path, pipes: Pipes) -> None:
    source = tmp_path / "film.mp4"
    films.film(source, times=SIX)
    pipes.feed(source)
    with pytest.raises(
        ImageError, match="standard input: it is an mp4 or mov whose index is at its"
    ):
        make(FilmJob(PIPE, tmp_path / "out.mkv"))


def test_a_redirected_file_may_have_its_index_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "film.mp4", tmp_path / "out.mkv"
    films.film(source, times=SIX, cover=True)
    with source.open("rb") as file:
        monkeypatch.setattr(client, "_STANDARD_INPUT", file.fileno())
        assert make(FilmJob(PIPE, target, FFV1)).frames == 6
    with av.open(str(target)) as container:
        assert len(container.streams.video) == 2


@pytest.mark.parametrize("content", [b"", b"no film", bytes(5000)])
def test_what_is_no_film_is_a_sentence(content: bytes, tmp_path: Path, pipes: Pipes) -> None:
    (tmp_path / "film").write_bytes(content)
    pipes.feed(tmp_path / "film")
    with pytest.raises(ImageError, match="standard input: it is not a film that can be read"):
        make(FilmJob(PIPE, tmp_path / "out.mkv"))


def test_sound_without_end_before_a_picture_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets kept of other streams are bounded: a second of them is more than the bound here."""
    source = tmp_path / "film.mkv"
    films.film(source, times=range(3000, 4000, 40), sounds=[("flac", 0.0)])
    monkeypatch.setattr(decoding, "_MOST_KEPT", 1000)
    with source.open("rb") as file, opened(file, "film") as container:
        with pytest.raises(ImageError, match="of other streams come before a picture"):
            reader.Reader(container, file, "film", keeps_others=True)
        assert reader.Reader(container, file, "film").film.others


def test_an_mp4_cannot_be_written_into_a_pipe(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, times=SIX)
    with pytest.raises(OutputError, match=r"standard output: \.mp4 has to be sought in"):
        make(FilmJob(source, PIPE, form="mp4"))


@pytest.mark.parametrize("form", ["mkv", "y4m"])
def test_a_reader_that_goes_away_ends_the_work(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 4000, 40), size=(128, 128))
    out, their_end = os.pipe()
    monkeypatch.setattr(making, "_STANDARD_OUTPUT", their_end)

    def leave() -> None:
        """Reads a block, and is gone."""
        os.read(out, 1000)
        os.close(out)

    reader = threading.Thread(target=leave)
    reader.start()
    with pytest.raises(BrokenPipeError):
        make(FilmJob(source, PIPE, Wish("ffv1") if form == "mkv" else Wish(), form=form))
    reader.join()
    os.close(their_end)


@pytest.mark.parametrize("name", ["out.y4m", "out.mkv"])
def test_a_decoder_that_dies_is_a_sentence(name: str, tmp_path: Path, pipes: Pipes) -> None:
    """And leaves nothing that looks like a film."""
    source, target = tmp_path / "film.mkv", tmp_path / "made" / name
    films.film(source, codec="ffv1", times=range(0, 4000, 40))
    target.parent.mkdir()
    pipes.feed(source)
    with FilmReader(PIPE) as reader:
        job = FilmJob(PIPE, target, FFV1 if name == "out.mkv" else Wish())
        prepared = prepare(reader, job, 128, 192)
        written: list[Path] = []

        def work(pictures: Any, results: Any) -> None:
            written.extend(target.parent.iterdir())
            reader._child.kill()
            twice(pictures, results)

        with pytest.raises(ImageError, match="the process that reads it was killed"):
            making.make_live(reader, job, prepared, FrameDevice(work))
    assert written  # it had begun
    assert list(target.parent.iterdir()) == []


def test_a_film_that_pauses_in_its_pipe_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender stops in its middle, until the program has said many times that it waits."""
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 2000, 40))
    data = source.read_bytes()
    given, own = os.pipe()
    goes_on = threading.Event()
    waits = 0

    def beat(self: Any) -> None:
        nonlocal waits
        waits += 1
        if waits == 200:
            goes_on.set()

    def send() -> None:
        with os.fdopen(own, "wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            goes_on.wait()
            file.write(data[len(data) // 2 :])

    monkeypatch.setattr(client, "_STANDARD_INPUT", given)
    monkeypatch.setattr(film_pipes, "_OFTEN", 0.001)
    monkeypatch.setattr(Heartbeat, "beat", beat)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with reading_here(monkeypatch):
        assert make(FilmJob(PIPE, tmp_path / "out.mkv", FFV1)).frames == 50
    assert waits >= 200
    sender.join()
    os.close(given)


@pytest.mark.parametrize("form", ["mkv", "y4m"])
def test_a_pipe_that_lets_nobody_wait_is_waited_for(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A film may have been made that way: bytes that do not fit are written later."""
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 2000, 40), size=(128, 128))
    out, their_end = os.pipe()
    os.set_blocking(their_end, False)
    monkeypatch.setattr(making, "_STANDARD_OUTPUT", their_end)
    content: list[bytes] = []
    player = threading.Thread(target=lambda: content.append(_all_of(out)))
    job = FilmJob(source, PIPE, FFV1 if form == "mkv" else Wish(), form=form)
    player.start()
    assert make(job).frames == 50
    os.close(their_end)
    player.join()
    target = tmp_path / f"out.{form}"
    target.write_bytes(content[0])
    _, old, _ = pictures_of(source)
    _, new, _ = pictures_of(target)
    assert_squares(old, new)


def test_a_search_that_comes_to_another_place_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all that is before is decoded, and the frames are the same."""
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 8000, 40))
    asked: list[bool] = []
    begin = Reader.frames

    def frames(self: Reader, selection: Selection) -> Any:
        asked.append(selection.is_sought)
        found = begin(self, selection)
        if selection.is_sought:
            next(found)  # as if it began too late
        return found

    monkeypatch.setattr(Reader, "frames", frames)
    with reading_here(monkeypatch), FilmReader(source) as reader:
        run = PartRun(2, None, None, True)
        shape = prepare(reader, FilmJob(source, tmp_path / "out.mkv", FFV1), 64, 96).shape
        work = FilmWork(source, tmp_path, shape, Selection(), 2000, "off")
        found = []
        for (step,) in FrameSource(reader, work, run, 4):
            found.append((step.frame.pts, step.is_held, None if step.begin is None else step.begin))
            step.frame.release()
    assert asked == [True, False]
    assert [pts for pts, _, _ in found] == list(range(4000, 8000, 40))
    first = found[0][2]
    assert first is not None
    assert not first.is_sought
    assert first.before


# Numbered pictures.


def test_frames_become_files_and_a_film_again(tmp_path: Path) -> None:
    source, frames = tmp_path / "film.mkv", tmp_path / "frames" / "%04d.png"
    times = (0, 40, 80, 200, 240, 280)
    films.film(source, codec="ffv1", pixels="gray", times=times)
    pattern = FilmJob(source, frames)
    with FilmReader(source) as reader:
        assert reader.film.pictures.pixels.planes == 1
    assert make(pattern).frames == 6
    _, planes, _ = pictures_of(source)
    for index, (given,) in enumerate(planes):
        with Image.open(tmp_path / "frames" / f"{index + 1:04d}.png") as picture:
            assert picture.mode == "L"
            assert (np.asarray(picture) == squares([given])[0]).all()
    told = (tmp_path / "frames" / "timestamps.txt").read_text()
    assert told == "# timestamp format v2\n0\n40\n80\n200\n240\n280\n"
    with pytest.raises(ExistsError, match=r"0001\.png: it exists already"):
        make(pattern)
    again = tmp_path / "again" / "%d.png"
    make(FilmJob(frames, again))
    assert (tmp_path / "again" / "timestamps.txt").read_text() == told
    for index, (given,) in enumerate(planes):
        with Image.open(tmp_path / "again" / f"{index + 1}.png") as picture:
            assert (np.asarray(picture) == squares(squares([given]))[0]).all()


def test_frames_never_replace_those_that_are_read(tmp_path: Path) -> None:
    """The times of both would be one file, and the frames are removed before they are read."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for index in (1, 2):
        Image.new("L", (8, 8)).save(folder / f"{index}.png")
    (folder / "timestamps.txt").write_text("# timestamp format v2\n0\n90\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "link").symlink_to(folder)
    for target in (folder / "%d.png", folder / "out%d.png", tmp_path / "link" / "%02d.png"):
        with pytest.raises(OutputError, match=r"is in the folder of the input, whose timestamps"):
            make(FilmJob(folder / "%d.png", target, overwrite=True))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_times_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    films.film(tmp_path / "film.mkv", codec="ffv1", pixels="gray", times=(0, 40))
    (tmp_path / "timestamps.txt").write_text("of another film")
    job = FilmJob(tmp_path / "film.mkv", tmp_path / "%d.png")
    with pytest.raises(ExistsError, match=r"timestamps\.txt: it exists already"):
        make(job)
    assert (tmp_path / "timestamps.txt").read_text() == "of another film"
    assert make(replace(job, overwrite=True)).frames == 2


def test_frames_of_more_than_8_bits_have_16(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", pixels="yuv444p10le", times=SIX)
    make(FilmJob(source, tmp_path / "frames" / "%d.png"), FrameDevice(as_rgb))
    _, planes, _ = pictures_of(source)
    large = squares(planes[2])[0].astype(np.uint16)
    with av.open(str(tmp_path / "frames" / "3.png")) as container:
        (frame,) = container.decode(video=0)
        assert frame.format.name == "rgb48be"
        green, blue, red = (large + number for number in range(3))
        assert (frame.to_ndarray(format="rgb48le") == np.stack([red, green, blue], -1)).all()


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_frames_are_read_to_the_bit(depth: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    given = [rng.integers(0, np.iinfo(depth).max, (8, 10, 3)).astype(depth) for _ in range(3)]
    for index, pixels in enumerate(given):
        kinds = ("rgb24", "rgb24") if depth == np.uint8 else ("rgb48le", "rgb48be")
        encoder: Any = av.CodecContext.create("png", "w")
        encoder.width, encoder.height, encoder.pix_fmt = 10, 8, kinds[1]
        encoder.time_base = Fraction(1, 25)
        frame = av.VideoFrame.from_ndarray(pixels, kinds[0]).reformat(format=kinds[1])
        packets: list[Any] = [*encoder.encode(frame), *encoder.encode(None)]
        (tmp_path / f"f{index}.png").write_bytes(bytes(packets[0]))
    with FilmReader(tmp_path / "f%d.png") as reader:
        assert reader.film.pictures.pixels.name == ("gbrp" if depth == np.uint8 else "gbrp16le")
        assert reader.film.pictures.frames == 3
        found = []
        for frame in reader.frames(Selection(), 4):
            green, blue, red = frame.planes
            found.append((frame.pts, np.stack([red, green, blue], -1)))
            frame.release()
    assert [pts for pts, _ in found] == [0, 40000, 80000]
    assert all((one == other).all() for one, (_, other) in zip(given, found, strict=True))


TIMES = [
    ("0\n40\n80\n", "it is no file of times"),
    ("# timestamp format v2\n0\n80\n40\n", "it is no file of times"),
    ("# timestamp format v2\n0\nsoon\n40\n", "it is no file of times"),
    ("# timestamp format v2\n0\nnan\n40\n", "it is no file of times"),
    ("# timestamp format v2\n0\n40\ninf\n", "it is no file of times"),
    ("# timestamp format v2\n0\n40\n", "it has times for 2 of 3 frames"),
]


@pytest.mark.parametrize(("text", "message"), TIMES)
def test_a_wrong_file_of_times_is_a_sentence(text: str, message: str, tmp_path: Path) -> None:
    for index in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{index}.png")
    (tmp_path / "timestamps.txt").write_text(text)
    with pytest.raises(ImageError, match=rf"timestamps\.txt: {message}"):
        FilmReader(tmp_path / "%d.png").close()


def test_frames_that_are_missing_or_change_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"0001\.png: cannot read"):
        FilmReader(tmp_path / "%04d.png").close()
    for index, mode in ((1, "L"), (2, "RGB")):
        Image.new(mode, (8, 8)).save(tmp_path / f"{index:04d}.png")
    with pytest.raises(
        ImageError, match=r"its pictures change from 8x8 gray to 8x8 rgb24 at 0\.04 s"
    ):
        make(FilmJob(tmp_path / "%04d.png", tmp_path / "out.mkv", FFV1))
    (tmp_path / "0001.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"%04d\.png"):
        FilmReader(tmp_path / "%04d.png").close()


# The command.


@contextmanager
def _command(folder: Path, *words: str, **options: Any) -> Iterator[Any]:
    from tests.cli.test_cli import tiny

    here = Path.cwd()
    os.chdir(folder)
    tiny()
    os.chdir(here)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "waifu2x", "video", "-m", "./tiny", "--backend", "numpy"]
    with subprocess.Popen(
        [*command, *words], cwd=folder, env=environment, stderr=subprocess.PIPE, **options
    ) as process:
        yield process


def test_standard_output_gets_the_film_alone(tmp_path: Path) -> None:
    films.film(tmp_path / "film.mkv", times=SIX, size=(22, 34))
    with _command(
        tmp_path, "-", "-", "-f", "y4m", "-v", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        written, told = process.communicate((tmp_path / "film.mkv").read_bytes())
    assert process.returncode == 0, told
    assert b"standard output: 6 frames" in told
    head, _, frames = written.partition(b"\n")
    assert head.startswith(b"YUV4MPEG2 W68 H44 F25:1 ")
    assert len(frames) == 6 * (6 + 68 * 44 * 3 // 2)
    with av.open(io.BytesIO(written)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 6


def test_the_command_ends_in_silence_with_its_reader(tmp_path: Path) -> None:
    films.film(tmp_path / "film.mkv", codec="ffv1", times=range(0, 2000, 40), size=(64, 64))
    with _command(tmp_path, "film.mkv", "-", "-f", "y4m", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(100)
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert told == b""


@pytest.mark.matrix
def test_a_command_that_is_killed_leaves_nobody(tmp_path: Path) -> None:
    """The process that reads for it ends with it."""
    films.film(tmp_path / "film.mkv", codec="ffv1", times=range(0, 2000, 40), size=(64, 64))
    with _command(tmp_path, "film.mkv", "-", "-f", "y4m", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(100)
        process.send_signal(signal.SIGKILL)
        # The other end of the pipe is closed once no process holds it.
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL
