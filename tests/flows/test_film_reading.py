"""Which frames are read of a film, and when they are shown: damaged times, stretches, decoders."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge, pictures_of  # noqa: E402
from tests.flows.test_film_times import by_hand, picture  # noqa: E402
from tests.helpers import containers  # noqa: E402
from waifu2x.errors import ImageError  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.reading import decoding  # noqa: E402
from waifu2x.formats.film.reading.decoding import Decoding  # noqa: E402
from waifu2x.formats.film.reading.opening import new_decoder, opened  # noqa: E402
from waifu2x.formats.film.reading.packets import Packets  # noqa: E402
from waifu2x.formats.film.reading.reader import Reader  # noqa: E402
from waifu2x.formats.film.reading.selection import Ending, Selection  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

WHOLE = Selection()


class Found:
    """The frames read from a film: times in its ticks, planes, and its ending."""

    def __init__(self, path: Path, selection: Selection = WHOLE) -> None:
        self.times: list[int] = []
        self.planes: list[list[NDArray[Any]]] = []
        self.wanted: list[bool] = []
        with FilmReader(path) as reader:
            self.film = reader.film
            for frame in reader.frames(selection, 8):
                self.times.append(frame.pts)
                self.planes.append([plane.copy() for plane in frame.planes])
                self.wanted.append(frame.is_wanted)
                frame.release()
            self.ending: Ending = reader.ending


def same(one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


# Times.


@pytest.mark.parametrize("leap", [500, 5000, 90_000])
@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize("end", [None, Fraction(3, 10)])
def test_a_time_that_leaps_ahead_is_one_frames_own(
    leap: int, at: int, end: Fraction | None, tmp_path: Path
) -> None:
    """Neither does the film end there, nor do all frames after it lose their times."""
    path = tmp_path / "film.mkv"
    times = [40 * index for index in range(10)]
    damaged = [*times[:at], times[at] + leap, *times[at + 1 :]]
    path.write_bytes(by_hand(times=damaged))
    found = Found(path, Selection(end=end))
    shown = times if end is None else times[:8]
    assert len(found.times) == len(shown)
    assert [one for one in found.times if one not in (times[at], found.times[at])] == [
        one for one in shown if one != times[at]
    ]
    assert found.times == sorted(set(found.times))
    assert found.ending.moved == 1


def test_a_gap_that_is_meant_stays(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    times = (0, 40, 5000, 5040, 9000, 9040, 9080, 9120)
    path.write_bytes(by_hand(times=times))
    found = Found(path)
    assert tuple(found.times) == times
    assert found.ending.moved == 0
    assert Found(path, Selection(end=Fraction(6))).times == [0, 40, 5000, 5040]


@pytest.mark.parametrize(("leaping", "damaged"), [(4, 0), (9, 1), (30, 0)])
def test_many_times_that_leap_behind_the_end_are_said(
    leaping: int, damaged: int, tmp_path: Path
) -> None:
    """Frames after them are lost, unless there are none: then the film leaps."""
    path = tmp_path / "film.mkv"
    times = [40 * index for index in range(40)]
    leapt = times[10 : 10 + leaping]
    path.write_bytes(
        by_hand(times=[time + 50_000 * (time in leapt) for time in times[: 10 + 3 * leaping]])
    )
    found = Found(path, Selection(end=Fraction(2)))
    assert found.ending.damaged == damaged
    assert found.times[:10] == times[:10]
    assert (len(found.times) > 10) == (leaping == 4)


# Damaged frames.


def damaged_picture() -> bytes:
    """One whose chunks are whole, but not what is in them."""
    good = picture()
    at = good.index(b"IDAT") + 4
    size = int.from_bytes(good[at - 8 : at - 4])
    return good[:at] + b"\xff" * size + good[at + size :]


def _with_holes(number: int, holes: int) -> bytes:
    """A film of `number` pictures; `holes` packets behind the first one are damaged."""
    good, bad = picture(), damaged_picture()
    clusters = [(0, containers.block(1, 0, good))]
    clusters += [
        (100 * begin, b"".join(containers.block(1, index, bad) for index in range(100)))
        for begin in range(1, holes // 100 + 1)
    ]
    after = holes // 100 * 100 + 1000
    clusters += [(after + 40 * index, containers.block(1, 0, good)) for index in range(number - 1)]
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0]) + b"MPNG" + bytes(20)
    track = containers.track(1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head))
    return containers.matroska(track, clusters)


def test_a_long_hole_does_not_end_a_film(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    path.write_bytes(_with_holes(24, 2200))
    found = Found(path)
    assert found.times == [0, *range(3200, 3200 + 23 * 40, 40)]
    assert found.ending.damaged >= 2200
    assert found.ending.gaps[0].length > 3


def test_a_film_without_pictures_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "film.mkv"
    path.write_bytes(by_hand(times=range(0, 4000, 40)).replace(picture(), damaged_picture()))
    monkeypatch.setattr(decoding, "_UNTIL_FIRST", 50)
    with (
        path.open("rb") as file,
        opened(file, "film") as container,
        pytest.raises(ImageError, match="film: its first 51 packets give no picture"),
    ):
        Reader(container, file, "film")


def test_a_damaged_file_of_a_folder_moves_no_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    given = [rng.integers(0, 255, (9, 11, 3), np.uint8) for _ in range(7)]
    for index, pixels in enumerate(given):
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "PNG")
        whole = data.getvalue()
        if index == 2:
            whole = whole[: len(whole) // 2]
        elif index == 4:
            whole = b"no picture at all"
        elif index == 5:
            whole += whole  # two pictures in a file are one frame
        (tmp_path / f"{index + 1}.png").write_bytes(whole)
    times = [0, 40, 90, 100, 200, 240, 300]
    lines = "".join(f"{time}\n" for time in times)
    (tmp_path / "timestamps.txt").write_text(f"# timestamp format v2\n{lines}")
    found = Found(tmp_path / "%d.png")
    left = [0, 1, 3, 5, 6]
    assert found.times == [times[index] * 1000 for index in left]
    for index, (green, blue, red) in zip(left, found.planes, strict=True):
        assert (np.stack([red, green, blue], -1) == given[index]).all()
    assert found.ending.damaged == 2
    assert found.ending.moved == 0


def _spoilt(path: Path, number: int) -> None:
    """Overwrites what is in the packet of this number."""
    with av.open(str(path)) as film:
        packets = [packet for packet in film.demux(video=0) if packet.size]
        data = bytes(packets[number])
    whole = path.read_bytes()
    assert whole.count(data) == 1
    path.write_bytes(whole.replace(data, b"\xff" * len(data)))


@pytest.mark.parametrize("codec", ["ffv1", "prores_ks", "libx264"])
@pytest.mark.parametrize("bad", [12, 18, 23])
def test_what_is_behind_damage_at_the_end_is_not_lost(
    codec: str, bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder of 16 threads holds the last pictures when there are no more packets; what it says
    of a damaged one ends what PyAV takes from it."""
    path = tmp_path / ("film.mov" if codec == "prores_ks" else "film.mkv")
    options = {"g": "1"} if codec != "libx264" else {"preset": "ultrafast", "g": "10", "bf": "0"}
    pixels = "yuv422p10le" if codec == "prores_ks" else "yuv420p"
    films.film(path, codec=codec, pixels=pixels, options=options)
    made = new_decoder

    def threaded(*arguments: Any) -> Any:
        context = made(*arguments)
        if not context.is_open:
            context.thread_type, context.thread_count = "FRAME", 16
        return context

    def read() -> tuple[dict[int, bytes], Ending]:
        with path.open("rb") as file, opened(file, "film") as container:
            container.streams.video[0].codec_context.thread_count = 1
            monkeypatch.setattr(decoding, "new_decoder", threaded)
            reader = Reader(container, file, "film")
            found = {one.pts: bytes(one.frame.planes[0]) for one in reader.frames(WHOLE)}
            return found, reader.ending

    whole, sound = read()
    times = list(whole)
    assert (len(times), sound.damaged) == (24, 0)
    _spoilt(path, bad)
    left, ending = read()
    assert list(left) == times[:bad] + times[bad + 1 :]
    assert ending.damaged >= 1
    if codec != "libx264":  # whose next pictures are made of that one
        assert all(whole[pts] == planes for pts, planes in left.items())


def test_a_stream_behind_the_header_does_not_end_a_film() -> None:
    """PyAV asks for one that it knows nothing of, once it has read all packets."""

    class Growing:
        format = SimpleNamespace(name="mpeg")

        def demux(self, *_: Any) -> Iterator[Any]:
            yield from [av.Packet(b"data") for _ in range(3)]
            raise IndexError("list index out of range")

    packets: Any = Packets(cast("Any", Growing()), [])
    assert len(list(packets._all_of([]))) == 3
    assert packets.damaged == 0


def test_a_stream_that_begins_late_is_said(tmp_path: Path) -> None:
    """FFmpeg looks for streams in the first 5 MB, and at the end."""
    noise = np.random.default_rng(1).integers(0, 255, (256, 256, 3), np.uint8)
    silent = io.BytesIO()
    with av.open(silent, "w", format="mpeg") as out:
        options = {"qmin": "1", "qmax": "1", "g": "1", "b": "100000000", "maxrate": "0"}
        video = out.add_stream("mpeg2video", rate=25, options=options)
        video.height, video.width, video.pix_fmt = 256, 256, "yuv420p"
        for index in range(50):
            frame = av.VideoFrame.from_ndarray(noise, "rgb24").reformat(format="yuv420p")
            frame.pts = index
            out.mux(video.encode(frame))
        out.mux(video.encode())
    heard = io.BytesIO()
    films.film(
        heard, container="mpeg", codec="mpeg2video", tick=Fraction(1, 25), times=range(24),
        size=(256, 256), sounds=[("mp2", 0.0)],
    )  # fmt: skip
    first, second = silent.getvalue(), heard.getvalue()
    path = tmp_path / "film.mpg"
    path.write_bytes(first + second + first[: len(first) // 8])
    job = FilmJob(path, tmp_path / "out.mkv", Wish("ffv1"), cut=Cut(end=Fraction(1, 10)))
    (told,) = enlarge(job).lost
    assert told.startswith("1 stream that begins in its middle is left out; to keep it, give")


# Sound behind the pictures.


@pytest.mark.parametrize("behind", [0, 600, 2000])
def test_sound_that_lies_behind_the_pictures_is_read_to_the_end(
    behind: int, tmp_path: Path
) -> None:
    """A film that can be read only once is read on until all sound of a stretch has come."""
    path = tmp_path / "film.mkv"
    frame, tone = picture(), bytes(64)
    packets = [(time, time, containers.block(1, 0, frame)) for time in range(0, 4000, 40)]
    packets += [(time, time + behind, containers.block(2, 0, tone)) for time in range(0, 4000, 4)]
    packets.sort(key=lambda one: one[1])
    sound = containers.track(
        2, b"A_PCM/INT/LIT",
        containers.element(
            0xE1, containers.double(0xB5, 8000.0) + containers.number(0x9F, 1)
            + containers.number(0x6264, 16),
        ), 2,
    )  # fmt: skip
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0]) + b"MPNG" + bytes(20)
    pictures = containers.track(1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head))
    path.write_bytes(
        containers.matroska(pictures + sound, [(time, data) for time, _, data in packets])
    )
    end = Fraction(1)
    with path.open("rb") as file, opened(file, "film") as container:
        reader = Reader(container, file, "film", keeps_others=True)
        assert len(list(reader.frames(Selection(end=end)))) == 25
        reader.read_on(end, [1])
        heard = [packet.pts for packet in reader.others if (packet.pts or 0) < 1000]
    assert heard == list(range(0, 1000, 4))


def test_sound_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    sound = containers.track(2, b"A_FLAC", b"", 2)
    path.write_bytes(by_hand(times=range(0, 400_000, 1000), tracks=sound))
    with path.open("rb") as file, opened(file, "film") as container:
        stream = container.streams.video[0]
        packets = Packets(container, [stream])
        seen: list[int] = []
        reading = Decoding(packets, stream, "film", lambda: seen.append(0))
        reading.read_on(Fraction(10), [1])
    assert 60 <= len(seen) <= 90


# Decoders.


def test_a_decoder_that_is_not_on_the_list_decodes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "film.avi"
    films.film(path, codec="cinepak", pixels="rgb24", times=range(4), tick=Fraction(1, 25))
    with av.open(str(path)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 4  # it is a sound film
    with pytest.raises(ImageError, match=r"film\.avi: its pictures are coded as cinepak"):
        FilmReader(path)


@pytest.mark.parametrize(("codec", "kind"), [("cinepak", "video"), ("adpcm_ms", "audio")])
def test_no_stream_is_decoded_by_another_decoder(codec: str, kind: str, tmp_path: Path) -> None:
    """However it is asked for."""
    path = tmp_path / "film.avi"
    options: Any = {"codec": codec, "pixels": "rgb24"} if kind == "video" else {"codec": "mpeg4"}
    sounds = [(codec, 0.0)] if kind == "audio" else []
    films.film(path, times=range(4), tick=Fraction(1, 25), sounds=sounds, **options)
    with path.open("rb") as file, opened(file, "film") as container:
        stream = container.streams.get({kind: 0})[0]
        packet = next(one for one in container.demux(stream) if one.size)
        with pytest.raises(av.FFmpegError):
            packet.decode()


# Seeking.


def test_a_search_that_fails_reads_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "film.mkv"
    films.film(path, times=range(0, 200 * 40, 40), codec="ffv1")
    with path.open("rb") as file, opened(file, "film") as container:
        reader = Reader(container, file, "film")
        sought = []

        class Unsought:
            """The container, whose index is damaged."""

            def seek(self, *arguments: Any, **options: Any) -> None:
                sought.append(arguments)
                raise av.error.InvalidDataError(1, "no")

        monkeypatch.setattr(reader, "_container", Unsought())
        found = [one.pts for one in reader.frames(Selection(start=Fraction(6)))]
    assert sought
    assert found == list(range(6000, 8000, 40))


# Film in video of 30 frames a second.

VIDEO = Fraction(30000, 1001)


def telecined(
    path: Path, pixels: str, count: int, tick: Fraction, *, rest: int = 0, begin: int = 0
) -> list[list[NDArray[Any]]]:
    """Writes pictures as video whose fields are those of pictures 2:3, and `rest` frames less of
    the last cycle; `begin` is the first frame's tick. Returns the pictures."""
    depth = np.uint16 if "10" in pixels else np.uint8
    rng = np.random.default_rng(2)
    noise = rng.integers(0, 8, (64, 96, 3), np.uint8)
    drawn = []
    for index in range(count):
        shown = av.VideoFrame.from_ndarray(films.drawing(index) // 2 + noise, "rgb24")
        shown = shown.reformat(format=pixels)
        drawn.append(
            [
                np.frombuffer(plane, depth).reshape(plane.height, -1)[:, : plane.width].copy()
                for plane in shown.planes
            ]
        )
    video = []
    for cycle in range(count // 4):
        a, b, c, d = drawn[4 * cycle : 4 * cycle + 4]
        for top, bottom in ((a, a), (a, b), (b, c), (c, c), (d, d)):
            woven = [plane.copy() for plane in top]
            for plane, other in zip(woven, bottom, strict=True):
                plane[1::2] = other[1::2]
            video.append(woven)
    video = video[: len(video) - rest]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=VIDEO)
        context = stream.codec_context
        context.height, context.width, context.pix_fmt = 64, 96, pixels
        context.time_base = tick
        for index, planes in enumerate(video):
            made = av.VideoFrame.from_dlpack(planes, pixels)
            made.pts, made.time_base = begin + round(index / VIDEO / tick), tick
            out.mux(stream.encode(made))
        out.mux(stream.encode())
    return drawn


@pytest.mark.parametrize(
    ("pixels", "tick", "suffix", "begin"),
    [
        ("yuv420p", Fraction(1001, 30000), "nut", 0),
        ("yuv420p10le", Fraction(1, 1000), "mkv", 0),
        ("yuv422p", Fraction(1, 30000), "nut", 0),
        ("yuv420p", Fraction(1, 1000), "mkv", 620),
    ],
)
def test_pictures_of_film_come_back_with_their_times(
    pixels: str, tick: Fraction, suffix: str, begin: int, tmp_path: Path
) -> None:
    path = tmp_path / f"film.{suffix}"
    drawn = telecined(path, pixels, 24, tick, begin=begin)
    found = Found(path, Selection(deinterlacing="ivtc"))
    assert found.film.pictures.pixels.name == pixels
    assert len(found.planes) == 24
    assert [index for index in range(24) if not same(found.planes[index], drawn[index])] == []
    base = found.film.pictures.time_base
    grid = [begin * tick + index * Fraction(1001, 24000) for index in range(24)]
    errors = [abs(pts * base / 4 - time) for pts, time in zip(found.times, grid, strict=True)]
    # A quarter of the film's tick, rounded; what the container rounds, and where it begins.
    assert max(errors) <= base / 8
    assert found.ending.damaged == 0
    assert found.ending.seconds == pytest.approx(float(grid[-1] + Fraction(1001, 24000)), abs=0.002)


@pytest.mark.parametrize("rest", [1, 2, 3, 4])
def test_the_last_pictures_of_film_stay(rest: int, tmp_path: Path) -> None:
    """A cycle that is not whole has all its pictures, once each or more."""
    path = tmp_path / "film.mkv"
    drawn = telecined(path, "yuv420p", 24, Fraction(1, 1000), rest=rest)
    found = Found(path, Selection(deinterlacing="ivtc"))
    # One picture more has a field alone, where two or three frames are missing.
    whole = 24 - (1, 2, 3, 3)[rest - 1]
    assert all(same(found.planes[index], drawn[index]) for index in range(whole))
    assert len(found.planes) == 20 + (4, 3, 2, 1)[rest - 1]


def test_film_is_sought_to_the_same_pictures(tmp_path: Path) -> None:
    """So several devices make parts of it, and a run goes on where it was killed."""
    path = tmp_path / "film.mkv"
    telecined(path, "yuv420p", 240, Fraction(1, 1000))
    whole = Found(path, Selection(deinterlacing="ivtc"))
    assert len(whole.times) == 240
    for second in (3, 5, 8):
        first = second * 4000
        part = Found(path, Selection(first=first, deinterlacing="ivtc"))
        index = next(number for number, pts in enumerate(whole.times) if pts >= first)
        assert part.wanted[:2] == [False, True]
        assert part.times == whole.times[index - 1 :]
        pairs = zip(part.planes, whole.planes[index - 1 :], strict=True)
        assert all(same(one, other) for one, other in pairs)


def test_a_gap_in_film_is_not_filled(tmp_path: Path) -> None:
    """A time that leaps by days would be millions of pictures."""
    path, cut = tmp_path / "film.mkv", tmp_path / "cut.mkv"
    telecined(path, "yuv420p", 24, Fraction(1, 1000))
    with av.open(str(path)) as film, av.open(str(cut), "w") as out:
        stream = out.add_stream_from_template(film.streams.video[0], opaque=True)
        for number, packet in enumerate(film.demux(video=0)):
            if packet.size:
                if number >= 15:
                    packet.pts += 86_400_000
                    packet.dts += 86_400_000
                packet.stream = stream
                out.mux(packet)
    found = Found(cut, Selection(deinterlacing="ivtc"))
    assert len(found.times) < 30
    leaps = [later - one for one, later in zip(found.times, found.times[1:], strict=False)]
    assert max(leaps) == pytest.approx(4 * 86_400_000, abs=4 * 200)
    assert pictures_of(path)[0][0] == 0


def test_pictures_that_no_filter_takes_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    films.film(path, codec="ffv1", pixels="gray10le", times=range(0, 400, 40))
    with pytest.raises(ImageError, match="pictures of gray10le cannot be deinterlaced"):
        Found(path, Selection(deinterlacing="ivtc"))


@pytest.mark.parametrize(("how", "count"), [("frame", 24), ("field", 48)])
def test_whole_pictures_have_the_times_of_their_fields(
    how: Any, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "interlaced.mkv"
    films.CASES["interlaced.mkv"](path)
    found = Found(path, Selection(deinterlacing=how))
    assert found.times == [40 * index for index in range(count)]
    assert found.ending.damaged == 0
