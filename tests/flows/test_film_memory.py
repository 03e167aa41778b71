"""A long film takes no more memory than a short one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from waifu2x.flows.film import making  # noqa: E402
from waifu2x.flows.film.frames.frame_device import FrameDevice  # noqa: E402
from waifu2x.flows.film.makers.run_maker import MakerHere  # noqa: E402
from waifu2x.flows.film.making import make_film  # noqa: E402
from waifu2x.flows.film.reading.client import FilmReader  # noqa: E402
from waifu2x.flows.film.request import FilmJob, prepare  # noqa: E402
from waifu2x.formats.film.writing.codecs import Wish  # noqa: E402
from waifu2x.system import allocator  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
SETTLED = 200
"""Frames after which it is flat."""
PART = 250
"""Frames of a part."""
SPARE = 12 << 20
"""Bytes by which what is resident goes up and down: sizes of packets differ."""
GROUP = 48


class Seen(NamedTuple):
    """Bytes that are in memory."""

    frames: int
    """Frames that have results."""
    own: int
    """In this process, shared ones too."""
    child: int
    """In the one that reads."""
    private: int
    """In this process alone, but for files: encoders, not the planes of results."""


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


def _private(process: int) -> int:
    """Bytes of a process that are in memory, but for shared ones and those of files."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


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
    seen: list[Seen] = []
    done = 0
    with FilmReader(source) as reader, Path(os.devnull).open("wb") as nothing:
        child = reader._child.pid

        def count(some: int, computed: int) -> None:
            nonlocal done
            done += some
            own = os.getpid()
            seen.append(Seen(done, _resident(own), _resident(child), _private(own)))

        monkeypatch.setattr(making, "_STANDARD_OUTPUT", nothing.fileno())
        job = FilmJob(source, Path("-"), form="y4m")
        if form == "parts":
            codec = "x264" if pixels == "yuv420p" else "ffv1"
            preset = "ultrafast" if codec == "x264" else None
            job = FilmJob(source, tmp_path / "out.mkv", Wish(codec, preset=preset))
        prepared = prepare(reader, job, 1080, 1920)
        device = FrameDevice(_copied, in_flight=4)
        allocator.give_back()  # of the encoder that options were tried with
        empty = _private(os.getpid())
        if form == "parts":
            made = make_film(MakerHere(reader, device, count), reader, job, prepared)
        else:
            made = making.make_live(reader, job, prepared, device, on_frames=count)
    assert made.frames == frames
    settled = [one for one in seen if one.frames >= SETTLED]
    early = [one for one in settled if one.frames <= 3 * SETTLED]
    late = [one for one in settled if one.frames > 3 * SETTLED]
    for one in settled[:: len(settled) // 20]:
        print(*(size >> 20 for size in one[1:]))
    assert max(one.child for one in late) <= max(one.child for one in early) + SPARE
    if form == "pipe":
        assert max(one.own for one in late) <= max(one.own for one in early) + SPARE
        return
    # While a part ends and the next one begins, two encoders are open: for how long, and how much
    # of theirs the second one has used by then, chance decides. So the parts are compared, each by
    # what it has most of the time, and by its most: no more than two encoders.
    own, private = _by_part(settled, "own"), _by_part(settled, "private")
    usual = [median(sizes) for sizes in own]
    most = [max(sizes) for sizes in private]
    print("usual", [int(size) >> 20 for size in usual], "most", [size >> 20 for size in most])
    assert max(usual) <= max(usual[:2]) + SPARE
    encoder = median(median(sizes) for sizes in private) - empty
    assert max(most) <= empty + 2 * encoder + SPARE


def _by_part(seen: Sequence[Seen], what: str) -> list[list[int]]:
    """A field of what was seen in each part, from its begin to the next one's."""
    found: dict[int, list[int]] = {}
    for one in seen:
        found.setdefault(one.frames // PART, []).append(getattr(one, what))
    return [sizes for number, sizes in sorted(found.items()) if number]
