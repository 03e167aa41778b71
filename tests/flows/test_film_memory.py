"""A long film takes no more memory than a short one."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from waifu2x.flows.film import live  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.makers.run_maker import MakerHere  # noqa: E402
from waifu2x.flows.film.making import make_film_by  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
SETTLED = 200
"""Frames after which it is flat."""
SPARE = 12 << 20
"""Bytes by which what is resident goes up and down: sizes of packets differ."""
GROUP = 48


def _long_film(path: Path, frames: int, pixels: str) -> None:
    """A film that repeats a scene, coded once."""
    codec = "libx264"
    coded: list[Any] = []
    with av.open(str(path), "w", format="matroska") as out:
        options = {"preset": "ultrafast", "g": str(GROUP), "bf": "0", "flags": "+cgop"}
        video = out.add_stream(codec, rate=25, options=options)
        video.height, video.width, video.pix_fmt = 540, 960, pixels
        for index in range(GROUP):
            coded += video.encode(films.frame(index, pixels, 540, 960))
        coded += video.encode()
        for number in range(frames):
            packet = coded[number % GROUP]
            copied = av.Packet(bytes(packet))
            copied.stream, copied.is_keyframe = video, packet.is_keyframe
            copied.time_base = Fraction(1, 25)
            copied.pts = copied.dts = number
            out.mux(copied)


def _resident(process: int) -> int:
    """Bytes of a process that are in memory, shared ones too."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _copied(pictures: Any, results: Any) -> None:
    """Enlarges by writing a frame into a corner: it costs next to nothing."""
    for planes, result in zip(pictures, results, strict=True):
        for plane, made in zip(planes, result, strict=True):
            made[: plane.shape[0], : plane.shape[1]] = plane


@pytest.mark.parametrize(
    ("form", "pixels", "frames"),
    [
        pytest.param("parts", "yuv420p", 10_000, id="parts"),
        pytest.param("pipe", "yuv420p", 10_000, id="pipe"),
        pytest.param("parts", "yuv420p10le", 2_000, id="10 bits"),
    ],
)
def test_memory_is_flat(
    form: str, pixels: str, frames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "film.mkv"
    _long_film(source, frames, pixels)
    seen: list[tuple[int, int, int]] = []
    done = 0
    with FilmReader(source) as reader, Path(os.devnull).open("wb") as nothing:
        child = reader._process.pid

        def count(some: int, computed: int) -> None:
            nonlocal done
            before, done = done, done + some
            if before // 100 != done // 100:
                seen.append((done, _resident(os.getpid()), _resident(child)))

        monkeypatch.setattr(live, "_STANDARD_OUTPUT", nothing.fileno())
        job = FilmJob(source, Path("-"), form="y4m")
        if form == "parts":
            codec = "x264" if pixels == "yuv420p" else "ffv1"
            preset = "ultrafast" if codec == "x264" else None
            job = FilmJob(source, tmp_path / "out.mkv", Wish(codec, preset=preset))
        prepared = prepare(reader, job, 1080, 1920)
        device = FrameDevice(_copied, in_flight=4)
        if form == "parts":
            made = make_film_by(MakerHere(reader, device, count), reader, job, prepared)
        else:
            made = live.make_live(reader, job, prepared, device, on_frames=count)
    assert made.frames == frames
    for number in (1, 2):
        early = [one[number] for one in seen if SETTLED <= one[0] <= 3 * SETTLED]
        late = [one[number] for one in seen if one[0] > 3 * SETTLED]
        print([one[number] >> 20 for one in seen][:: max(1, len(seen) // 20)])
        assert max(late) <= max(early) + SPARE
