"""Streams that a container cannot hold: each remedy that is named is one that works."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge  # noqa: E402
from tests.helpers import phone_films  # noqa: E402
from tests.helpers.cases import thinned  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")


def _film(path: Path, *sound: str) -> None:
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=s=64x48:r=10:d=1"]
    subprocess.run([*command, *sound, "-c:v", "libx264", str(path)], check=True)


def _samples(path: Path) -> tuple[bytes, float]:
    """All samples of the first sound, as 32 bits by FFmpeg's own decoder, and where it begins."""
    with av.open(str(path)) as film:
        stream = film.streams.audio[0]
        start = float(stream.start_time * stream.time_base)
        begin = (film.start_time or 0) / 1e6 if film.format.name == "mpegts" else 0
        found = b"".join(frame.to_ndarray().tobytes() for frame in film.decode(stream))
        return found, start - begin


TONE = "sine=d=1:sample_rate=48000,volume=0.7"
DISCS = {
    "24.m2ts": ("pcm_bluray", "s32", "5.1", "pcm_s24le"),
    "16.m2ts": ("pcm_bluray", "s16", "mono", "pcm_s16le"),
    "f32.mov": ("pcm_f32be", "flt", "stereo", "pcm_f32le"),
    "8.mov": ("pcm_s8", "u8", "stereo", "pcm_u8"),
}


@needs_ffmpeg
@pytest.mark.parametrize(("name", "container"), thinned(tuple(DISCS), ("mkv", "mov")))
def test_pcm_is_packed_for_the_container(name: str, container: str, tmp_path: Path) -> None:
    """The same samples, and no error that would cost the only sound."""
    codec, kind, layout, packed = DISCS[name]
    source, target = tmp_path / name, tmp_path / f"out.{container}"
    tone = f"{TONE},aformat=sample_fmts={kind}:channel_layouts={layout}"
    extra = ["-mpegts_m2ts_mode", "1"] if name.endswith("m2ts") else []
    _film(source, "-f", "lavfi", "-i", tone, "-c:a", codec, *extra)
    made = enlarge(FilmJob(source, target))
    assert made.lost == ()
    with av.open(str(target)) as film:
        is_held = container == "mov" and name.endswith("mov")
        assert film.streams.audio[0].codec_context.name == (codec if is_held else packed)
    old, new = _samples(source), _samples(target)
    assert old[0] == new[0]
    assert new[1] == pytest.approx(old[1], abs=0.001)


def _refusal(source: Path, target: Path) -> str:
    with pytest.raises(OutputError) as error:
        enlarge(FilmJob(source, target))
    return str(error.value)


def _kept(source: Path, target: Path, *, drop: bool = False) -> list[str]:
    """Titles of what is left out."""
    with FilmReader(source) as reader:
        job = FilmJob(source, target, drop_unsupported=drop)
        return [title for _, title in prepare(reader, job, 96, 128).plan.refused]


@needs_ffmpeg
@pytest.mark.parametrize("container", ["mkv", "mp4", "webm"])
def test_amr_needs_a_mov(container: str, tmp_path: Path) -> None:
    """Silence would be no remedy."""
    sound = tmp_path / "sound.amr"
    sound.write_bytes(b"#!AMR\n" + b"\x7c" * 50)
    source = tmp_path / "film.3gp"
    _film(source, "-i", str(sound), "-c:a", "copy")
    told = _refusal(source, tmp_path / f"out.{container}")
    assert re.search(r"cannot hold audio 1 amr\w+ \(und\); use \.mov$", told)
    assert _kept(source, tmp_path / "out.mov") == []


@pytest.mark.parametrize("container", ["mkv", "mp4", "mov"])
def test_data_tracks_are_held_by_no_container(container: str, tmp_path: Path) -> None:
    source, target = tmp_path / "film.mp4", tmp_path / f"out.{container}"
    films.film(source, sounds=[("aac", 0.0)])
    phone_films.add_data_track(source)
    told = _refusal(source, target)
    assert told.endswith(f".{container} cannot hold data 2 (und); use --drop-unsupported")
    assert _kept(source, target, drop=True) == ["data 2 (und)"]


def test_what_another_container_holds_is_not_dropped(tmp_path: Path) -> None:
    """Into a .webm neither AAC nor a data track goes, into a .mkv the sound does."""
    source = tmp_path / "film.mp4"
    films.film(source, sounds=[("aac", 0.0)])
    phone_films.add_data_track(source)
    told = _refusal(source, tmp_path / "out.webm")
    assert told.endswith("use .mkv with --drop-unsupported, which leaves out data 2 (und) only")
    assert _kept(source, tmp_path / "out.mkv", drop=True) == ["data 2 (und)"]


def test_subtitles_may_be_dropped_or_kept_elsewhere(tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, sounds=[("aac", 0.0)], fonts=True)
    told = _refusal(source, tmp_path / "out.mp4")
    assert told.endswith("; use .mkv, or --drop-unsupported")
    assert _kept(source, tmp_path / "out.mkv") == []
