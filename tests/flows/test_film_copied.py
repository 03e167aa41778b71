"""Streams that are copied keep their packets and times, whatever those of the source are like."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
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
from tests.flows.test_film_times import picture  # noqa: E402
from tests.helpers import containers  # noqa: E402
from tests.helpers.cases import thinned  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film.parts import part_files  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.reading import opening  # noqa: E402
from waifu2x.formats.film.writing import (  # noqa: E402
    film_writer,
    header,
    mp4,
)
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.formats.film.writing.packet_times import FilledGaps  # noqa: E402

pytestmark = needs_ffprobe
WISHES = {"mkv": Wish("ffv1"), "mp4": Wish("x264", preset="ultrafast")}


def seconds(told: dict[str, Any], kind: str, which: int = 0, key: str = "pts_time") -> list[float]:
    """The times of a stream's packets, in the order of the file."""
    stream = streams(told, kind)[which]
    return [float(x[key]) for x in told["packets"] if x["stream_index"] == stream["index"]]


def with_second(path: Path, make: Any) -> None:
    """Writes a film whose second stream is what `make` adds to the container; it gives packets."""
    first = io.BytesIO()
    films.film(first, container="matroska", times=range(0, 1000, 40))
    first.seek(0)
    with av.open(first) as part, av.open(str(path), "w") as out:
        video = out.add_stream_from_template(part.streams.video[0], opaque=True)
        packets = make(out)
        shown = [packet for packet in part.demux(video=0) if packet.size]
        for packet in shown:
            packet.stream = video
        both = [*shown, *packets]
        for packet in sorted(both, key=lambda one: float((one.dts or 0) * one.time_base)):
            out.mux(packet)


def by_hand(times: Sequence[int], scale: int = 1_000_000) -> bytes:
    """A film of AC-3 whose packets of 32 ms are at given times, in ticks of `scale` nanoseconds,
    and of three pictures a second."""
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0]) + b"MPNG" + bytes(20)
    pictures = containers.track(1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head))
    shape = containers.double(0xB5, 48000) + containers.number(0x9F, 2)
    heard = containers.track(2, b"A_AC3", containers.element(0xE1, shape), which=2)
    frame, clusters = picture(), []
    with av.open(io.BytesIO(), "w", format="matroska") as out:
        data = [bytes(packet) for packet in films._sound(out, "ac3", 0.0)[1]]
    for number, time in enumerate(times):
        if number % 10 == 0:
            clusters.append((number * 32_000_000 // scale, containers.block(1, 0, frame)))
        clusters.append((time, containers.block(2, 0, data[number % len(data)])))
    return containers.matroska(pictures + heard, clusters, scale=scale)


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_packets_that_share_a_time_stay_where_they_are(suffix: str, tmp_path: Path) -> None:
    """As those of TrueHD, which are shorter than the millisecond of Matroska."""
    source, target = tmp_path / "film.mkv", tmp_path / f"out.{suffix}"
    source.write_bytes(by_hand([number * 32 // 100 for number in range(90)], 100_000_000))
    made = enlarge(FilmJob(source, target, WISHES[suffix]))
    old, new = probe(source), probe(target)
    assert sound(new) == sound(old)
    before, after = seconds(old, "audio"), seconds(new, "audio")
    assert len(set(before)) < 30 < len(before) == 90
    assert all(0 <= now - then < 0.001 for now, then in zip(after, before, strict=True))
    assert made.lost == ()


def test_a_second_picture_with_reordering_keeps_its_times(tmp_path: Path) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / "out.mkv"

    def second(out: Any) -> Any:
        stream = out.add_stream("libx264", rate=25, options={"bf": "3", "b-adapt": "0"})
        context = stream.codec_context
        context.height, context.width, context.pix_fmt = 32, 48, "yuv420p"
        context.time_base = Fraction(1, 1000)
        packets: list[Any] = []
        for number in range(25):
            made = films.frame(number, "yuv420p", 32, 48)
            made.pts, made.time_base = number * 40, Fraction(1, 1000)
            packets += stream.encode(made)
        return packets + stream.encode()

    with_second(source, second)
    made = enlarge(FilmJob(source, target, WISHES["mkv"]))
    old, new = probe(source), probe(target)
    before, after = seconds(old, "video", 1), seconds(new, "video", 1)
    assert before != sorted(before)  # else it tests nothing
    assert after == before
    assert made.lost == ()


@pytest.mark.parametrize(("leap", "suffix"), thinned((3_600_000, -500, -20_000), ("mkv", "mp4")))
def test_only_the_packet_that_leaps_is_moved(leap: int, suffix: str, tmp_path: Path) -> None:
    source, target = tmp_path / "film.mkv", tmp_path / f"out.{suffix}"
    wanted = [number * 32 for number in range(800)]
    source.write_bytes(by_hand([*wanted[:700], wanted[700] + leap, *wanted[701:]]))
    made = enlarge(FilmJob(source, target, WISHES[suffix]))
    new = probe(target)
    assert made.lost == ("1 packet of audio 1 ac3 (eng) has a wrong time",)
    assert sound(new) == sound(probe(source))
    found = [round(time * 1000, 1) for time in seconds(new, "audio")]
    assert found[:700] + found[701:] == pytest.approx(wanted[:700] + wanted[701:], abs=0.6)
    assert found[699] <= found[700] <= found[701]


@pytest.mark.parametrize("second", [20, 5, 90], ids=["anew", "back", "ahead"])
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_two_recordings_make_a_film(suffix: str, second: int, tmp_path: Path) -> None:
    """In one file of MPEG-TS, each with a clock of its own: pictures and sound stay together."""
    source, target = tmp_path / "two.ts", tmp_path / f"out.{suffix}"
    with source.open("wb") as both:
        for begin in (20, second):
            one = tmp_path / "one.ts"
            times = [90000 * begin + number * 3600 for number in range(24)]
            sounds = [("ac3", begin + 0.3)]
            films.film(one, tick=films.TICK, times=times, size=(32, 48), sounds=sounds)
            both.write(one.read_bytes())
    made = enlarge(FilmJob(source, target, WISHES[suffix]))
    old, new = probe(source), probe(target)
    shown, heard = pictures_of(target)[0], seconds(new, "audio")
    assert made.frames == len(shown) == 48
    assert len(made.lost) == (second == 90)  # a gap of that length stays one, and is told
    assert made.ending.moved == 0
    assert sound(new) == sound(old)
    # The sound is the longer one: 32 packets of 32 ms.
    later = float(shown[24] - shown[0])
    assert later == pytest.approx(70 if second == 90 else 1.024, abs=0.002)
    begun = len(heard) // 2
    pairs = [*zip(map(float, shown[:24]), map(float, shown[24:]), strict=True)]
    pairs += zip(heard[:begun], heard[begun:], strict=True)
    for sooner, then in pairs:
        assert then - sooner == pytest.approx(later, abs=0.0011)


@pytest.mark.parametrize("suffix", ["mkv", "mov"])
def test_a_gap_in_plain_samples_stays_a_gap(suffix: str, tmp_path: Path) -> None:
    """Samples of PCM in mov follow one another, whatever their times: silence fills the gap."""
    source, target = tmp_path / "film.mkv", tmp_path / f"out.{suffix}"
    head = bytes([40, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 1, 0, 24, 0]) + b"MPNG" + bytes(20)
    tracks = containers.track(1, b"V_MS/VFW/FOURCC", containers.element(0x63A2, head))
    shape = containers.double(0xB5, 8000) + containers.number(0x9F, 2)
    heard = containers.element(0xE1, shape + containers.number(0x6264, 16))
    tracks += containers.track(2, b"A_PCM/INT/LIT", heard, which=2)
    tone = bytes([1, 2, 3, 4]) * 320  # 40 ms
    times = [*range(0, 400, 40), *range(3400, 3800, 40)]
    clusters = [(0, containers.block(1, 0, picture())), (3700, containers.block(1, 0, picture()))]
    clusters += [(time, containers.block(2, 0, tone)) for time in times]
    source.write_bytes(containers.matroska(tracks, sorted(clusters)))
    enlarge(FilmJob(source, target, Wish("prores")))
    with av.open(str(target)) as film:
        stream = film.streams.audio[0]
        samples = bytearray(8000 * 4 * 4)
        for packet in film.demux(audio=0):
            at = round(packet.pts * stream.time_base * 8000) * 4 if packet.size else 0
            samples[at : at + packet.size] = bytes(packet)
    wanted = tone * 10 + bytes(3000 * 8 * 4) + tone * 10
    assert samples.rstrip(b"\0") == wanted


@pytest.mark.parametrize(
    ("codec", "silent", "size"), [("pcm_u8", 0x80, 1), ("pcm_mulaw", 0xFF, 1), ("pcm_s24le", 0, 3)]
)
def test_silence_is_that_of_its_samples(codec: str, silent: int, size: int) -> None:
    filled = FilledGaps("audio 1", codec, 2, Fraction(1, 8000))
    first, second, absurd = (av.Packet(bytes(size * 2 * 80)) for _ in range(3))
    for packet, time in ((first, 100), (second, 100 + 80 + 8000), (absurd, 1 << 40)):
        packet.dts = packet.pts = time
    with av.open(io.BytesIO(), "w", format="mov") as out:
        first.stream = second.stream = out.add_stream("pcm_u8", rate=8000)
        assert list(filled.before(first)) == []
        made = list(filled.before(second))
        assert made[0].pts == 180
        assert b"".join(map(bytes, made)) == bytes([silent]) * (8000 * size * 2)
        with pytest.raises(OutputError, match=r"audio 1 has gaps .*; write an \.mkv"):
            list(filled.before(absurd))


def boxes(path: Path) -> list[bytes]:
    """The kinds of an mp4's boxes, in their order."""
    found, at, data = [], 0, path.read_bytes()
    while at < len(data):
        found.append(data[at + 4 : at + 8])
        at += int.from_bytes(data[at : at + 4])
    return found


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_an_index_has_its_room_before_the_packets(
    is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a source has more packets than it says: then the film is written once more."""
    source, target, again = (tmp_path / name for name in ("film.mp4", "out.mp4", "again.mp4"))
    films.CASES["texts.mp4"](source)
    enlarge(replace(FilmJob(source, target, WISHES["mp4"]), keep_parts=True))
    assert boxes(target)[:2] == [b"ftyp", b"moov"]

    rooms: list[int | None] = []
    opened = header.open_target

    def open_target(path: Any, container: str, room: int | None = None) -> Any:
        rooms.append(room)
        return opened(path, container, room)

    monkeypatch.setattr(film_writer, "open_target", open_target)
    if not is_told:
        nothing = mp4.CountedPackets(0, {1: 0, 2: 0}, frozenset([2]), 0)
        monkeypatch.setattr(mp4, "_OF_STREAM", 0)
        monkeypatch.setattr(film_writer, "expected_packets", lambda *_: nothing)
    with FilmReader(source) as reader:
        prepared = prepare(reader, FilmJob(source, again, WISHES["mp4"]), 128, 192)
        plan = header.FilmPlan(reader.film, prepared.shape, prepared.plan)
    folder = parts_folder(target)
    parts = [
        (part_files.part_path(folder, number), one.encoded)
        for number, one in sorted(part_files.all_recorded(folder).items())
    ]
    closed: list[int] = []
    with source.open("rb") as file, opening.opened(file, "film.mp4") as container:
        film_writer.FilmJoin(again, container, plan, parts, on_close=closed.append).write()
    assert len(rooms) == len(closed) == (1 if is_told else 2)
    assert min(closed) > 0
    assert boxes(again)[:2] == [b"ftyp", b"moov"]
    old, new = probe(target), probe(again)
    assert [one["data_hash"] for one in new["packets"]] == [
        one["data_hash"] for one in old["packets"]
    ]


_COUNT = """
import sys
from pathlib import Path
from tests.flows.test_film_streams import enlarge
from waifu2x.flows.film import request
from waifu2x.flows.film.request import FilmJob
from waifu2x.formats.film.writing.codecs import Wish

if __name__ == "__main__":
    request.PART_SECONDS = 0.5
    enlarge(FilmJob(Path(sys.argv[1]), Path(sys.argv[2]), Wish("av1", preset="10")))
"""


@pytest.mark.matrix
def test_an_encoder_is_opened_once_before_the_work(tmp_path: Path) -> None:
    """SVT-AV1 says on the terminal how often it is opened: for a trial and each part, and not where
    the film is read, whose memory is limited."""
    source, script = tmp_path / "film.mkv", tmp_path / "count.py"
    films.film(source)
    script.write_text(_COUNT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script), str(source), str(tmp_path / "out.mkv")],
        env={**os.environ, "PYTHONPATH": str(root), "SVT_LOG": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("SVT-AV1 Encoder Lib") == 1 + 2
