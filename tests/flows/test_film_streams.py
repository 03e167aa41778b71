"""A film made of another keeps its frames, times, streams and colours, in every container."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.helpers.film_making import make_film_here  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.making import MadeFilm  # noqa: E402
from waifu2x.flows.film.parts.part_files import parts_folder  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

needs_ffprobe = pytest.mark.skipif(shutil.which("ffprobe") is None, reason="needs ffprobe")
CODECS = {"mkv": "ffv1", "mp4": "x264", "mov": "x264", "webm": "vp9"}
QUICK = {
    ("everything.mkv", "mkv"),
    ("everything.mkv", "mp4"),
    ("reordered.mp4", "mp4"),
    ("hour.ts", "mkv"),
    ("odd.webm", "webm"),
    ("timecode.mov", "mov"),
    ("alpha.webm", "webm"),
}


def squares(planes: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Each sample as a square of four: an enlargement that any reader can check."""
    return [plane.repeat(2, 0).repeat(2, 1) for plane in planes]


def twice(
    pictures: Sequence[Sequence[NDArray[Any]]], results: Sequence[Sequence[NDArray[Any]]]
) -> None:
    """Writes pictures as squares."""
    for planes, result in zip(pictures, results, strict=True):
        for plane, made in zip(squares(planes), result, strict=True):
            # With odd sides, chroma of the result has one sample less than twice as many.
            made[:] = plane[: made.shape[0], : made.shape[1]]


def enlarge(job: FilmJob, **options: Any) -> MadeFilm:
    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        return make_film_here(reader, job, prepared, twice, **options)


def probe(path: Path) -> dict[str, Any]:
    """The answer of ffprobe for a film, with a hash of each packet."""
    command = ["ffprobe", "-v", "quiet", "-of", "json", "-show_streams", "-show_chapters"]
    command += ["-show_format", "-show_packets", "-show_data_hash", "MD5", str(path)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


def pictures_of(path: Path) -> tuple[list[Fraction], list[list[NDArray[Any]]], Any]:
    """Times in seconds and planes of all frames, and the first frame."""
    times, planes, first = [], [], None
    with av.open(str(path)) as container:
        stream = next(one for one in container.streams.video if not int(one.disposition) & 0x400)
        decoder = stream.codec_context
        if {key.lower(): one for key, one in stream.metadata.items()}.get("alpha_mode") == "1":
            decoder = av.CodecContext.create("libvpx-vp9", "r")
        packets = [one for one in _packets(container, stream) if one.size]
        for packet in [*packets, None]:
            try:
                frames = decoder.decode(packet)
            except av.error.InvalidDataError:
                frames = []
            for frame in frames:
                times.append(frame.pts * stream.time_base)
                planes.append(
                    [
                        np.frombuffer(plane, np.uint8 if depth == 8 else np.uint16)
                        .reshape(plane.height, -1)[:, : plane.width]
                        .copy()
                        for plane in frame.planes
                        for depth in [frame.format.components[0].bits]
                    ]
                )
                first = first or frame
    return times, planes, first


def _packets(container: Any, stream: Any) -> Any:
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError:
            return
        if packet is None:
            return
        yield packet


def streams(told: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [
        one
        for one in told["streams"]
        if one.get("codec_type") == kind and not one["disposition"]["attached_pic"]
    ]


def sound(told: dict[str, Any]) -> list[list[str]]:
    """The hashes of the packets of each sound."""
    return [
        [one["data_hash"] for one in told["packets"] if one["stream_index"] == stream["index"]]
        for stream in streams(told, "audio")
    ]


def begins(told: dict[str, Any], kind: str) -> list[float]:
    return [
        min(
            float(one["pts_time"])
            for one in told["packets"]
            if one["stream_index"] == stream["index"] and "pts_time" in one
        )
        for stream in streams(told, kind)
    ]


def tags(stream: dict[str, Any], *names: str) -> dict[str, str]:
    found = {key.lower(): value for key, value in stream.get("tags", {}).items()}
    return {name: found[name] for name in names if name in found}


HELD = {
    "mkv": {"aac", "ac3", "flac", "opus"},
    "mp4": {"aac", "ac3", "flac", "opus"},
    "mov": {"aac", "ac3"},
    "webm": {"opus"},
}
"""Codecs of sounds that containers take."""


def check_sounds(
    before: dict[str, Any], after: dict[str, Any], target: str, shift: float, *, in_packets: bool
) -> None:
    """Each sound that the container takes is there, all of it, and where it was."""
    fits = [one["codec_name"] in HELD[target] for one in streams(before, "audio")]
    heard = [one for one, does in zip(sound(before), fits, strict=True) if does]
    if in_packets:
        assert sound(after) == heard
    else:  # those of MPEG-TS have a header each, which other containers have none of
        assert [len(one) for one in sound(after)] == [len(one) for one in heard]
    places = [one for one, does in zip(begins(before, "audio"), fits, strict=True) if does]
    for now, then in zip(begins(after, "audio"), places, strict=True):
        assert abs(now + shift - then) < 0.001


def titles(path: Path, target: str) -> list[tuple[str, str, str, int]]:
    """Kinds, languages, titles and dispositions of the sounds and subtitles that `target` takes."""
    found = []
    with av.open(str(path)) as film:
        for one in film.streams:
            fits = one.type == "subtitle" and target != "webm"
            if fits or (one.type == "audio" and one.codec_context.name in HELD[target]):
                told = {key.lower(): value for key, value in one.metadata.items()}
                title = told.get("title", told.get("name", ""))
                found.append((one.type, told["language"], title, int(one.disposition)))
    return found


def attached(path: Path) -> list[tuple[str, str, bytes]]:
    """Names, types and contents of fonts."""
    with av.open(str(path)) as film:
        return [(one.name, one.mimetype, one.data) for one in film.streams.attachments]


def shown_text(path: Path, start: float) -> list[list[tuple[float, float, str]]]:
    """For each subtitle, the hundredths of seconds from `start` between which a text is shown."""
    found = []
    with av.open(str(path)) as film:
        for number, stream in enumerate(film.streams.subtitles):
            film.seek(0)
            lines = []
            for packet in film.demux(subtitles=number):
                text = bytes(packet)
                if not text:
                    continue
                if stream.codec_context.name == "mov_text":
                    text = text[2 : 2 + int.from_bytes(text[:2])]
                elif stream.codec_context.name in ("ass", "ssa"):
                    text = text.split(b",", 8)[8]
                text = re.sub(rb"<.*?>|\{.*?\}", b"", text)
                if text:
                    begin = packet.pts * stream.time_base - start
                    end = begin + packet.duration * stream.time_base
                    lines.append((round(begin, 2), round(end, 2), text.decode()))
            found.append(lines)
    return found


def table() -> list[Any]:
    return [
        pytest.param(
            case,
            target,
            marks=[] if (case, target) in QUICK else [pytest.mark.matrix],
            id=f"{case}-{target}",
        )
        for case in films.CASES
        for target in CODECS
        if not (case == "alpha.webm" and target in ("mp4", "mov"))  # x264 has no transparency
    ]


@needs_ffprobe
@pytest.mark.parametrize(("case", "target"), table())
def test_everything_stays(
    case: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "PART_SECONDS", 0.4)
    source, output = tmp_path / case, tmp_path / f"out.{target}"
    films.CASES[case](source)
    is_444 = case == "silent444.mkv"
    wish = Wish(
        CODECS[target],
        crf=None if target == "mkv" else 4,
        depth=8 if target == "webm" else None,
        options=(("auto-alt-ref", "0"),) if case == "alpha.webm" and target == "webm" else (),
    )
    if target == "webm" and case in ("hdr10.mkv", "silent444.mkv"):
        wish = Wish("av1", crf=4)
        if is_444:
            pytest.skip("no encoder for webm has 10 bits of 4:4:4")
    job = FilmJob(source, output, wish, drop_unsupported=True)
    made = enlarge(job)

    times, planes, _ = pictures_of(source)
    made_times, made_planes, first = pictures_of(output)
    assert made.frames == len(made_times) == len(times)
    assert len(made_planes[0]) == len(planes[0]) == (4 if case == "alpha.webm" else 3)
    in_matroska = target in ("mkv", "webm")
    shift = Fraction(0)
    if case == "hour.ts" or (in_matroska and source.suffix == ".mp4"):
        # All streams together: to the beginning, and to where the sound's first packet is not
        # before it.
        shift = times[0] - made_times[0]
        assert abs(shift) < Fraction(1, 40) or case == "hour.ts"
    allowed = Fraction(1, 1000 if shift else 2000) if in_matroska else 0
    assert all(
        abs(new - (old - shift)) <= allowed for new, old in zip(made_times, times, strict=True)
    )
    assert not parts_folder(output).exists()

    if case not in ("interlaced.mkv", "damaged.mkv"):  # what is made up may differ
        for new, old in zip(made_planes, planes, strict=True):
            for got, given in zip(new, squares(old), strict=True):
                wanted = given[: got.shape[0], : got.shape[1]]
                if target == "mkv":
                    assert np.array_equal(got, wanted)
                else:
                    level = 1 if got.dtype == np.uint8 else 4
                    assert abs(got.mean() - wanted.mean()) < level

    before, after = probe(source), probe(output)
    old_picture, new_picture = streams(before, "video")[0], streams(after, "video")[0]
    assert (new_picture["width"], new_picture["height"]) == (
        old_picture["width"] * 2,
        old_picture["height"] * 2,
    )
    for key in ("color_space", "color_range", "color_primaries", "color_transfer"):
        if key in old_picture and key in new_picture:
            assert new_picture[key] == old_picture[key], key
    for key in ("chroma_location", "sample_aspect_ratio"):
        if old_picture.get(key) not in (None, "unspecified"):
            if key == "chroma_location" and is_444:
                continue
            assert new_picture.get(key) == old_picture[key], key
    rotation = [
        one.get("rotation")
        for side in (old_picture, new_picture)
        for one in side.get("side_data_list", [])
        if "rotation" in one
    ]
    assert len(set(rotation)) <= 1
    assert len(rotation) == (2 if case == "turned.mp4" else 0)
    assert tags(new_picture, "timecode") == tags(old_picture, "timecode")

    start, made_start = float(times[0]), float(made_times[0])
    check_sounds(before, after, target, start - made_start, in_packets=case != "hour.ts")
    lines = shown_text(source, start)
    assert shown_text(output, made_start) == ([] if target == "webm" else lines)
    assert bool(lines) == (case in ("ass.mkv", "srt.mkv", "everything.mkv", "texts.mp4"))
    fonts = [] if target != "mkv" else attached(source)
    assert attached(output) == fonts
    assert bool(attached(source)) == (case in ("ass.mkv", "everything.mkv"))
    # MPEG-TS has no default stream, and nothing else tells of one.
    had, has = titles(source, target), titles(output, target)
    assert [one[:3] for one in has] == [one[:3] for one in had]
    if case != "hour.ts":
        assert [one[3] for one in has] == [one[3] for one in had]
    for key in ("title", "comment"):
        assert tags(after["format"], key) == tags(before["format"], key), key
        assert bool(tags(before["format"], key)) == (case == "everything.mkv")
    assert [(one["start_time"], one["end_time"], one["tags"]) for one in after["chapters"]] == [
        (one["start_time"], one["end_time"], one["tags"]) for one in before["chapters"]
    ]
    covers = [
        [one["codec_name"] for one in told["streams"] if one["disposition"]["attached_pic"]]
        for told in (before, after)
    ]
    assert covers[1] == ([] if target in ("webm", "mov") else covers[0])
    if case == "hdr10.mkv":
        kinds = {one.type.name for one in first.side_data}
        if target != "mkv":  # ffv1 has none
            assert {"MASTERING_DISPLAY_METADATA", "CONTENT_LIGHT_LEVEL"} <= kinds


def test_a_container_that_cannot_hold_a_stream_is_a_sentence(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.CASES["everything.mkv"](source)
    with pytest.raises(OutputError, match=r"attachment 4 .*use .mkv, or --drop-unsupported"):
        enlarge(FilmJob(source, tmp_path / "out.mp4"))
    assert [one.name for one in tmp_path.iterdir()] == ["film.mkv"]


def told(source: Path, target: Path, wish: Wish | None = None) -> tuple[str, ...]:
    """The notices before the work, where streams that do not fit are left out."""
    job = FilmJob(source, target, wish or Wish(), drop_unsupported=True)
    with FilmReader(source) as reader:
        return prepare(reader, job, 128, 192).notices


def test_chapters_hide_no_other_data(tmp_path: Path) -> None:
    """The titles of chapters are a track of data in mp4, which is written anew."""
    source = tmp_path / "film.mp4"
    films.CASES["texts.mp4"](source)
    assert told(source, tmp_path / "out.mp4") == ()
    data = source.read_bytes()
    # Measurements of a camera, say.
    source.write_bytes(data.replace(b"tx3g", b"gpmd").replace(b"sbtl", b"meta"))
    for suffix in ("mp4", "mkv"):
        target = tmp_path / f"out.{suffix}"
        assert told(source, target) == ("data 2 bin_data (eng) is left out",)
        enlarge(FilmJob(source, target, Wish(CODECS[suffix]), drop_unsupported=True))
        with av.open(str(target)) as film:
            assert len(film.chapters()) == 2
    with pytest.raises(OutputError, match=r"cannot hold data 2 bin_data \(eng\)"):
        enlarge(FilmJob(source, tmp_path / "other.mp4"))


@pytest.mark.parametrize(
    ("pixels", "suffix", "wish", "notices"),
    [
        (
            "yuv444p10le", "webm", Wish("vp9"), ("made 8 bits, not 10: vp9 has no more here",),
        ),
        (
            "yuv444p10le", "mp4", Wish("av1"),
            ("made 4:2:0, not 4:4:4: av1 has no more here",),
        ),
        (
            "yuv420p12le", "mkv", Wish("x265"),
            ("made 10 bits, not 12: x265 has no more here",),
        ),
        ("yuv444p10le", "webm", Wish("vp9", depth=8), ()),
        ("yuv444p10le", "mkv", Wish("ffv1"), ()),
        ("yuv422p", "mkv", Wish("x264"), ()),
    ],
)  # fmt: skip
def test_fewer_bits_and_less_chroma_are_said(
    pixels: str, suffix: str, wish: Wish, notices: tuple[str, ...], tmp_path: Path
) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", pixels=pixels, times=[0])
    assert told(source, tmp_path / f"out.{suffix}", wish) == notices
