"""Films from strangers: a result that says what was lost, or a sentence."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge  # noqa: E402
from tests.helpers import containers  # noqa: E402
from waifu2x.errors import FaultError, ImageError, OutputError, Waifu2xError  # noqa: E402
from waifu2x.flows.film.frames.frame_source import is_held  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.formats.film.description import FilmColours  # noqa: E402
from waifu2x.formats.film.pixels import pixel_format  # noqa: E402
from waifu2x.formats.film.reading.opening import opened  # noqa: E402
from waifu2x.formats.film.reading.reader import Reader  # noqa: E402
from waifu2x.formats.film.reading.selection import (  # noqa: E402
    Ending,
    Selection,
    ends_early,
)
from waifu2x.formats.film.writing.codecs import Wish, choose  # noqa: E402
from waifu2x.formats.film.writing.encode import Shape, check  # noqa: E402

FFV1 = Wish("ffv1")
COLOURS = FilmColours(1, "limited", 1, 1, "left")


def _ending(path: Path) -> tuple[int, Ending]:
    with FilmReader(path) as reader:
        count = 0
        for frame in reader.frames(Selection(), 4):
            frame.release()
            count += 1
        return count, reader.ending


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{film}\n#EXT-X-ENDLIST\n"),
        ("list.mkv", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{film}\n#EXT-X-ENDLIST\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile '{film}'\n"),
        ("list.txt", "file '{film}'\n"),
        ("session.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n"),
        ("manifest.mpd", "<?xml version='1.0'?><MPD><BaseURL>{film}</BaseURL></MPD>"),
        ("empty.mkv", ""),
    ],
)
def test_lists_of_other_files_are_no_films(name: str, text: str, tmp_path: Path) -> None:
    film = tmp_path / "film.mkv"
    films.film(film)
    path = tmp_path / name
    path.write_text(text.format(film=film))
    with (
        path.open("rb") as file,
        pytest.raises(ImageError, match="is not a film that can be read"),
        opened(file, name),
    ):
        pass


@pytest.mark.parametrize("head", [b"\x1a\x45\xdf\xa3", b"\0\0\0\x18ftypisom", b"OggS", b"FLV\1"])
def test_noise_behind_a_signature_is_a_sentence(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    path.write_bytes(head + random.Random(1).randbytes(20_000))
    with pytest.raises(ImageError, match=r"film\.mkv: "):
        FilmReader(path)


def test_a_film_that_ends_early_says_so(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    films.film(path, times=range(0, 200 * 40, 40), container="matroska", codec="ffv1")
    assert _ending(path)[1].is_short is False
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    count, ending = _ending(path)
    assert ending.is_short
    assert 80 <= count == ending.frames <= 110


@pytest.mark.parametrize("told", [f"{'9' * 400}:00:00", "00:00:nan", "soon", "1:2", ""])
def test_a_length_that_is_none_is_not_believed(told: str, tmp_path: Path) -> None:
    """Matroska has the length of a stream in a tag, which may hold any text."""
    path = tmp_path / "film.mkv"
    films.film(path, times=range(0, 240, 40))
    with path.open("rb") as file, opened(file, "film") as container:
        film = Reader(container, file, "film").film
        claimed = replace(film, pictures=replace(film.pictures, tags=(("DURATION", told),)))
        assert not ends_early(claimed, container.streams.video[0], 0.24)


def test_packets_that_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "film.avi"
    films.film(path, codec="mpeg4", options={"g": "1"}, tick=Fraction(1, 25), times=range(24))
    data = bytearray(path.read_bytes())
    at = 0
    spoilt = 0
    while (at := data.find(b"00dc", at + 4)) > 0 and spoilt < 3:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        data[at + 8 : at + 8 + size] = bytes(size)
        spoilt += 1
    path.write_bytes(data)
    count, ending = _ending(path)
    assert count + ending.damaged >= 24
    assert ending.damaged > 0


@pytest.mark.parametrize("suffix", ["mkv", "ts"])
def test_a_damaged_stretch_costs_only_itself_and_is_said(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"film.{suffix}"
    films.film(path, times=range(0, 8000, 40), sounds=[("ac3", 0.0)])
    whole = _ending(path)[1]
    assert (whole.damaged, whole.gaps) == (0, ())
    data = bytearray(path.read_bytes())
    data[len(data) // 10 : len(data) // 10 + 3000] = bytes(3000)
    path.write_bytes(data)
    made = enlarge(FilmJob(path, tmp_path / "out.mkv", FFV1))
    ending = made.ending
    assert ending.damaged > 0
    assert not ending.is_short
    assert ending.seconds == whole.seconds
    missing = sum(gap.length for gap in ending.gaps)
    assert missing < 4
    assert 200 - 25 * missing - 3 <= made.frames < 200
    with av.open(str(path)) as old, av.open(str(tmp_path / "out.mkv")) as new:
        kept, heard = ([p for p in one.demux(audio=0) if p.size] for one in (old, new))
        # mpegts gives three of these packets at a time.
        assert sum(p.size for p in kept) == sum(p.size for p in heard)
    assert [text.partition(" has nothing from ")[0] for text in made.lost] == ["audio 1 ac3 (jpn)"]


def test_frames_that_avi_lost_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "film.avi"
    films.film(path, codec="ffv1", tick=Fraction(1, 25), times=range(100))
    assert _ending(path)[1].damaged == 0
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    del data[at : at + 20000]
    path.write_bytes(data)
    count, ending = _ending(path)
    assert count < 100
    assert ending.damaged > 0


def test_frames_that_a_recorder_dropped_are_no_damage(tmp_path: Path) -> None:
    """AVI has an empty chunk for each, and counts them in its header: the frame before stays."""
    path = tmp_path / "film.avi"
    films.film(path, codec="ffv1", tick=Fraction(1, 25), times=(0, 3, 4, 8))
    assert path.read_bytes().count(b"00dc" + bytes(4)) >= 5
    assert _ending(path) == (4, Ending(4, seconds=Fraction(9, 25)))


def test_an_avi_that_was_cut_ends_early(tmp_path: Path) -> None:
    """MPEG-4 has no number of frames there that could be trusted to the last one."""
    path = tmp_path / "film.avi"
    films.film(path, codec="mpeg4", tick=Fraction(1, 25), times=range(100))
    assert not _ending(path)[1].is_short
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    count, ending = _ending(path)
    assert 0 < count < 90
    assert ending.is_short


@pytest.mark.parametrize(
    ("suffix", "profile", "base", "refused"),
    [("mkv", 5, 0, True), ("mp4", 5, 0, True), ("mkv", 8, 1, False)],
)
def test_dolby_vision_is_refused_where_nothing_is_right_without_it(
    suffix: str, profile: int, base: int, refused: bool, tmp_path: Path
) -> None:
    sound = tmp_path / "sound.mp4"
    films.film(
        sound,
        codec="libx265",
        pixels="yuv420p10le",
        times=(0, 40),
        # With B-frames, x265 leaves the decode times of so few pictures uninitialised.
        options={"x265-params": "log-level=none:bframes=0"},
    )
    told = bytes([1, 0, profile << 1, 5, base << 4]) + bytes(19)
    path = tmp_path / f"film.{suffix}"
    if suffix == "mp4":
        path.write_bytes(containers.with_box(sound.read_bytes(), containers.box(b"dvcC", told)))
    else:
        with av.open(str(sound)) as container:
            stream = container.streams.video[0]
            private = containers.element(0x63A2, stream.codec_context.extradata)
            packets = [bytes(packet) for packet in container.demux(stream) if packet.size]
        name = containers.number(0x41E7, int.from_bytes(b"dvcC"))
        added = containers.element(0x41E4, name + containers.element(0x41ED, told))
        track = containers.track(1, b"V_MPEGH/ISO/HEVC", private + added, size=(96, 64))
        path.write_bytes(containers.matroska(track, [(0, containers.block(1, 0, packets[0]))]))
    if refused:
        with pytest.raises(ImageError, match=f"Dolby Vision, profile {profile}, and mean nothing"):
            FilmReader(path)
    else:
        with FilmReader(path) as reader:
            assert reader.film.pictures.lost == ("Dolby Vision",)


CAPTIONS = b"\xb5\x00\x31GA94\x03\xc1\xff\xfc\x94\x2c\xff"
"""A message of T.35 with closed captions."""
HDR10_PLUS = b"\xb5\x00\x3c\x00\x01\x04\x01" + (1 << 158).to_bytes(20)
"""One with dynamic metadata: one window, all else zero."""


@pytest.mark.parametrize(
    ("codec", "message", "lost"),
    [("libx264", CAPTIONS, "closed captions"), ("libx265", HDR10_PLUS, "HDR10+")],
)
def test_what_no_encoder_keeps_is_told(
    codec: str, message: bytes, lost: str, tmp_path: Path
) -> None:
    sound, path = tmp_path / "sound.mkv", tmp_path / "film.mkv"
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    films.film(sound, codec=codec, times=(0, 40), options=options)
    kind = b"\x06" if codec == "libx264" else b"\x4e\x01"
    unit = kind + b"\x04" + len(message).to_bytes() + message + b"\x80"
    with av.open(str(sound)) as film, av.open(str(path), "w") as out:
        video = out.add_stream_from_template(film.streams.video[0], opaque=True)
        for packet in film.demux(video=0):
            if packet.size:
                added = av.Packet(len(unit).to_bytes(4) + unit + bytes(packet))
                added.pts, added.dts, added.time_base = packet.pts, packet.dts, packet.time_base
                added.stream, added.is_keyframe = video, packet.is_keyframe
                out.mux(added)
    with FilmReader(path) as reader:
        assert reader.film.pictures.lost == (lost,)


def test_avi_keeps_the_order_of_showing(tmp_path: Path) -> None:
    path = tmp_path / "film.avi"
    films.film(path, tick=Fraction(1, 25), times=range(24), options={"bf": "3"})
    with FilmReader(path) as reader:
        times = []
        for frame in reader.frames(Selection(), 4):
            times.append(frame.pts * reader.film.pictures.time_base)
            frame.release()
    assert times == [Fraction(index, 25) for index in range(24)]


def test_times_that_do_not_move_on_are_moved(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    times = [*range(0, 400, 40), 360, *range(400, 800, 40)]
    films.film(path, codec="ffv1", times=times, durations=[40] * len(times))
    count, ending = _ending(path)
    assert (count, ending.moved) == (len(times), 1)


def test_sound_alone_is_no_film(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as out:
        _, packets = films._sound(out, "flac", 0.0)
        for packet in packets:
            out.mux(packet)
    with pytest.raises(ImageError, match="has no pictures to enlarge"):
        FilmReader(path)


def test_many_streams_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as out:
        video = out.add_stream("ffv1", rate=25)
        video.width = video.height = 16
        video.pix_fmt = "yuv420p"
        for _ in range(400):
            out.add_mux_stream("subrip")
        packets = [*video.encode(films.frame(0, "yuv420p", 16, 16)), *video.encode()]
        for packet in packets:
            out.mux(packet)
    with pytest.raises(ImageError, match="more streams than the 256"):
        FilmReader(path)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish("x264", options=(("nonsense", "1"),)), "x264 has no option nonsense"),
        (Wish("x264", tune="nonsense"), "x264 has no tune 'nonsense'; use animation"),
        (Wish("x265", preset="nonsense"), "x265 has no preset 'nonsense'; use ultrafast"),
        (Wish("av1", preset="nonsense"), "av1 has no preset 'nonsense'; use 0 to 13"),
        *(
            (Wish(codec, options=((f"{key}-params", "nonsense=1"),)), "not understand nonsense")
            for codec, key in (("x264", "x264"), ("x265", "x265"), ("av1", "svtav1"))
        ),
        (Wish("prores", crf=3), "prores has no --crf"),
        (Wish("vp9", depth=10), "vp9 has no 10 bits"),
        (Wish("av1", chroma="444"), "av1 cannot code 4:4:4"),
    ],
)
def test_wishes_that_cannot_be_met(wish: Wish, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        check(
            Shape(
                choose(wish, pixel_format("yuv420p", "film"), "mkv", None),
                128,
                192,
                Fraction(1, 1000),
                Fraction(25),
                None,
                COLOURS,
            )
        )


def test_transparency_is_not_dropped() -> None:
    with pytest.raises(
        OutputError, match=r"^x264 cannot code transparency; leave --codec out, or use ffv1$"
    ):
        choose(Wish("x264"), pixel_format("yuva420p", "film"), "mkv", None)


@pytest.mark.parametrize("name", ["xyz12le", "gbrpf32le", "bayer_rggb8", "gray32le"])
def test_odd_pixels_are_refused(name: str) -> None:
    with pytest.raises(ImageError, match=name):
        pixel_format(name, "film")


def test_tolerant_holds_what_a_codec_changes_and_no_small_move() -> None:
    random_numbers = np.random.default_rng(5)
    drawn = [random_numbers.integers(20, 200, (70, 101), np.uint8)]
    noisy = [(drawn[0] + random_numbers.integers(-1, 2, (70, 101))).astype(np.uint8)]
    moved = [drawn[0].copy()]
    moved[0][64:70, 96:101] ^= 60  # a block at the edge, that is not whole
    assert is_held(drawn, noisy, "tolerant", 8)
    assert not is_held(drawn, noisy, "exact", 8)
    assert is_held(drawn, drawn, "exact", 8)
    assert not is_held(drawn, moved, "tolerant", 8)
    assert not is_held(drawn, drawn, "off", 8)
    faded = [drawn[0] + 1]
    assert not is_held(drawn, faded, "tolerant", 8)
    assert is_held([drawn[0].astype(np.uint16)], [faded[0].astype(np.uint16)], "tolerant", 10)
    small = [plane[:5, :7] for plane in drawn]
    assert is_held(small, [plane.copy() for plane in small], "tolerant", 8)
    assert not is_held(small, [plane[:5, :7] for plane in faded], "tolerant", 8)


@pytest.mark.matrix
@pytest.mark.parametrize("case", ["everything.mkv", "texts.mp4", "hour.ts", "odd.webm"])
def test_films_with_wrong_bytes(case: str, tmp_path: Path) -> None:
    """50 each: a film, or one sentence; never anything else."""
    source = tmp_path / case
    films.CASES[case](source)
    whole = source.read_bytes()
    chance = random.Random(case)
    sentences = []
    for number in range(50):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            # Half of them where the header is.
            at = chance.randrange(len(data) if number % 2 else 1500)
            data[at] ^= 1 << chance.randrange(8)
        if number % 10 == 0:
            del data[chance.randrange(len(data)) :]
        path = tmp_path / f"{number}{source.suffix}"
        path.write_bytes(data)
        job = FilmJob(path, tmp_path / f"{number}-out.mkv", FFV1, drop_unsupported=True)
        try:
            made = enlarge(job)
        except FaultError:
            raise  # which is what is looked for
        except Waifu2xError as error:
            sentences.append(str(error))
            assert not job.target.exists()
        else:
            with av.open(str(job.target)) as out:
                assert sum(1 for _ in out.decode(video=0)) == made.frames
    assert all(sentences)
