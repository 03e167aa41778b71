"""Times of films: stretches that are cut out, times that no film has, an hour."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import (  # noqa: E402
    enlarge,
    needs_ffprobe,
    pictures_of,
    probe,
    sound,
    streams,
)
from tests.helpers import containers  # noqa: E402
from waifu2x.errors import ImageError  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.formats.film.description import Cut  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

FFV1 = Wish("ffv1")


def packets(told: dict[str, Any], stream: dict[str, Any]) -> list[tuple[Fraction, str]]:
    """Times in seconds and contents."""
    base = Fraction(stream["time_base"])
    return [
        (one["pts"] * base, one["data_hash"])
        for one in told["packets"]
        if one["stream_index"] == stream["index"]
    ]


@needs_ffprobe
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_a_stretch_keeps_all_that_lies_in_it(suffix: str, tmp_path: Path) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / f"out.{suffix}"
    films.film(source, sounds=[("ac3", 0.0)], subtitles=["subrip"], chapters=True)
    start, end = Fraction(1, 5), Fraction(3, 5)
    wish = FFV1 if suffix == "mkv" else Wish("x264")
    enlarge(FilmJob(source, target, wish, cut=Cut(start, end)))
    old, new = probe(source), probe(target)

    times, _, _ = pictures_of(target)
    assert times == [Fraction(40 * index, 1000) for index in range(10)]
    heard = [one for one in packets(old, streams(old, "audio")[0]) if start <= one[0] < end]
    made = packets(new, streams(new, "audio")[0])
    assert [data for _, data in made] == [data for _, data in heard]
    assert all(
        abs(now + start - then) < Fraction(1, 1000)
        for (now, _), (then, _) in zip(made, heard, strict=True)
    )
    # One has begun before the stretch, the other ends after it.
    text = streams(new, "subtitle")[0]
    shown = [
        (float(one["pts_time"]), float(one["duration_time"]))
        for one in new["packets"]
        if one["stream_index"] == text["index"] and int(one["size"]) > 2
    ]
    assert shown == [(0.0, 0.2), (0.3, 0.1)]
    spans = [(float(one["start_time"]), float(one["end_time"])) for one in new["chapters"]]
    assert spans == [(0.0, 0.2), (0.2, 0.4)]


def picture() -> bytes:
    """A frame of 16x16 as PNG."""
    context = av.CodecContext.create("png", "w")
    context.height = context.width = 16
    context.pix_fmt, context.time_base = "rgb24", Fraction(1, 25)
    made = [*context.encode(films.frame(0, "rgb24", 16, 16)), *context.encode()]
    return bytes(made[0])


def by_hand(**options: Any) -> bytes:
    """A film of frames at given milliseconds, with more tracks."""
    times = options.pop("times", (0, 40, 80))
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0]) + b"MPNG" + bytes(20)
    pictures = containers.track(1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head))
    frame = picture()
    clusters = [(time, containers.block(1, 0, frame)) for time in times]
    clusters += options.pop("clusters", [])
    return containers.matroska(pictures + options.pop("tracks", b""), clusters, **options)


def test_times_that_no_film_has_are_replaced(tmp_path: Path) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"
    source.write_bytes(by_hand(times=(0, 40, 1 << 40, 80, 1 << 60, 120)))
    made = enlarge(FilmJob(source, target, FFV1))
    times, _, _ = pictures_of(target)
    assert made.frames == len(times) == 6
    assert made.ending.moved > 0
    assert times == sorted(set(times))
    assert times[-1] < 1


def test_subtitles_that_go_back_are_sorted(tmp_path: Path) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"
    lines = b"".join(containers.block(2, time, b"line") for time in (10, 70, 30, 75))
    track = containers.track(17, b"S_TEXT/UTF8", which=2)
    source.write_bytes(by_hand(tracks=track, clusters=[(0, lines)]))
    made = enlarge(FilmJob(source, target, FFV1))
    assert made.lost == ()
    with av.open(str(target)) as film:
        shown = [packet.pts for packet in film.demux(subtitles=0) if packet.size]
    assert shown == [10, 30, 70, 75]


@pytest.mark.parametrize("kind", ["streams", "fonts", "chapters"])
def test_too_many_of_anything_is_a_sentence(kind: str, tmp_path: Path) -> None:
    number, element = containers.number, containers.element
    if kind == "streams":
        made = by_hand(
            tracks=b"".join(
                containers.track(17, b"S_TEXT/UTF8", which=n + 2) for n in range(10_000)
            )
        )
    elif kind == "fonts":
        font = element(0x466E, b"a.ttf") + element(0x4660, b"font/ttf") + element(0x465C, b"x")
        fonts = b"".join(element(0x61A7, font + number(0x46AE, n + 1)) for n in range(10_000))
        made = by_hand(more=element(0x1941A469, fonts))
    else:
        chapters = b"".join(
            element(0xB6, number(0x73C4, n + 1) + number(0x91, n)) for n in range(20_000)
        )
        made = by_hand(more=element(0x1043A770, element(0x45B9, chapters)))
    source = tmp_path / "film.mkv"
    source.write_bytes(made)
    what = "streams" if kind == "fonts" else kind
    with pytest.raises(
        ImageError, match=f"film.mkv: it has more {what} than|more than 10000 {what}"
    ):
        FilmReader(source)


def repeated(path: Path, seconds: int) -> None:
    """A film of 6000/1001 frames a second that repeats its first 10 seconds, with sound."""
    rate = Fraction(6000, 1001)
    tick = 1 / rate
    first = io.BytesIO()
    films.film(
        first, container="matroska", times=range(60), tick=tick, rate=rate, size=(32, 48),
        options={"bf": "2", "x264-params": "open-gop=0", "g": "60"},
    )  # fmt: skip
    first.seek(0)
    with av.open(first) as part, av.open(str(path), "w") as out:
        pictures = part.streams.video[0]
        video = out.add_stream_from_template(pictures, opaque=True)
        heard, tones = films._sound(out, "ac3", 0.0)
        shown = [packet for packet in part.demux(pictures) if packet.size]
        ranks = {pts: rank for rank, pts in enumerate(sorted(one.pts for one in shown))}
        coded = [(bytes(one), ranks[one.pts], one.is_keyframe) for one in shown]
        made = []
        for number in range(int(seconds * rate)):
            data, rank, is_key = coded[number % len(coded)]
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.is_keyframe = video, tick, is_key
            packet.pts = number - number % len(coded) + rank
            packet.dts, packet.duration = number - 2, 1
            made.append((float(packet.dts * tick), packet))
        data = bytes(tones[5])
        for number in range(seconds * 48000 // 1536):
            packet = av.Packet(data)
            packet.stream, packet.time_base = heard, Fraction(1, 48000)
            packet.pts = packet.dts = number * 1536
            packet.duration = 1536
            made.append((number * 1536 / 48000, packet))
        for _, packet in sorted(made, key=lambda one: one[0]):
            out.mux(packet)


@needs_ffprobe
@pytest.mark.long
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_sound_stays_with_the_picture_for_an_hour(suffix: str, tmp_path: Path) -> None:
    source, target = tmp_path / f"film.{suffix}", tmp_path / f"out.{suffix}"
    repeated(source, 3600)
    made = enlarge(FilmJob(source, target, Wish("x264", preset="ultrafast")))
    assert made.frames == int(3600 * Fraction(6000, 1001))
    old, new = probe(source), probe(target)
    assert sound(new) == sound(old)
    ends = []
    for told in (old, new):
        shown, heard = (packets(told, streams(told, kind)[0]) for kind in ("video", "audio"))
        assert max(shown)[0] > 3590
        assert max(heard)[0] > 3590
        ends.append(max(heard)[0] - max(shown)[0])
    assert abs(ends[0] - ends[1]) < Fraction(1, 1000)
