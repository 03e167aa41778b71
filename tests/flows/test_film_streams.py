"""A film made of another keeps its frames, times, streams and colours, in every container."""

from __future__ import annotations

import json
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

from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film import request  # noqa: E402
from waifu2x.flows.film.film_reader import FilmReader  # noqa: E402
from waifu2x.flows.film.making import MadeFilm, make_film, parts_folder  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.codecs import Wish  # noqa: E402

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
            # Of odd sides, chroma of the result has one sample less than twice as many.
            made[:] = plane[: made.shape[0], : made.shape[1]]


def enlarge(job: FilmJob, **options: Any) -> MadeFilm:
    with FilmReader(job.source) as reader:
        pictures = reader.film.pictures
        prepared = prepare(reader, job, pictures.height * 2, pictures.width * 2)
        return make_film(reader, job, prepared, twice, **options)


def probe(path: Path) -> dict[str, Any]:
    """What ffprobe says of a film, with a hash of each packet."""
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

    heard, made_heard = sound(before), sound(after)
    if case == "hour.ts":  # its packets have a header each
        assert [len(one) for one in made_heard] == [len(one) for one in heard][: len(made_heard)]
    else:
        assert [one for one in heard if one in made_heard] == made_heard
    if target == "mkv":
        assert len(made_heard) == len(heard)
        assert len(streams(after, "subtitle")) == len(streams(before, "subtitle"))
        assert [tags(one, "filename", "mimetype") for one in streams(after, "attachment")] == [
            tags(one, "filename", "mimetype") for one in streams(before, "attachment")
        ]
    if len(made_heard) == len(heard):
        for now, then in zip(begins(after, "audio"), begins(before, "audio"), strict=True):
            moved = (now - float(made_times[0])) - (then - float(times[0]))
            assert abs(moved) < 0.001
        for new_one, old_one in zip(streams(after, "audio"), streams(before, "audio"), strict=True):
            assert tags(new_one, "language") == tags(old_one, "language")
            if case != "hour.ts":  # where no sound is the default
                assert new_one["disposition"] == old_one["disposition"]
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
