"""Options that encoders do not take: each is a sentence before the work."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")
films = pytest.importorskip("tests.helpers.films")

from tests.flows.test_film_streams import enlarge  # noqa: E402
from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.flows.film.request import FilmJob  # noqa: E402
from waifu2x.formats.film import HARDWARE  # noqa: E402
from waifu2x.formats.film.description import FilmColours, PixelFormat  # noqa: E402
from waifu2x.formats.film.writing.codecs import ENCODERS, Wish, choose  # noqa: E402
from waifu2x.formats.film.writing.encode import CodedPicture, PartEncoder, Shape, check  # noqa: E402
from waifu2x.formats.film.writing.targets import CONTAINERS  # noqa: E402

SOURCE = PixelFormat("yuv420p", 8, 2, 2, 3)
COLOURS = FilmColours(1, "limited", 1, 1, "left")
DISPLAY = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"


def _check(codec: str, key: str, value: str) -> None:
    check(_shape(Wish(codec, options=((key, value),))))


def _shape(wish: Wish) -> Shape:
    encoding = choose(wish, SOURCE, "mkv", None)
    return Shape(encoding, 128, 192, Fraction(1, 1000), Fraction(25), None, COLOURS, 1)


@pytest.mark.parametrize(
    ("codec", "key", "value", "message"),
    [
        ("x264", "x264-params", "keyint=abc", "not understand keyint = abc"),
        ("x264", "x264-params", "=:=:", "does not take x264-params==:=:; "),
        ("x264", "crf", "abc", "does not take crf=abc; use another value$"),
        ("x264", "preset", "abc", "has no preset 'abc'; use ultrafast"),
        ("x264", "level", "99", "does not take level=99; "),
        ("x264", "width", "16", "has no option width"),
        ("x264", "time_base", "1", "would move pictures"),
        ("x265", "x265-params", "keyint=abc", "not understand keyint: abc$"),
        ("x265", "x265-params", "me=foo:crf=20", "not understand me: foo$"),
        ("x265", "x265-params", "max-cll=a", "not understand max-cll: a$"),
        ("x265", "x265-params", "ctu=3", "does not take x265-params=ctu=3; "),
        ("x265", "x265-params", "master-display=x", "understand master-display=x; write master-d"),
        ("x265", "tune", "abc", "has no tune 'abc'; use animation"),
        ("av1", "svtav1-params", "keyint=abc", "not understand keyint: abc$"),
        ("av1", "svtav1-params", "mastering-display=x", "not understand mastering-display=x"),
        ("av1", "crf", "99", "does not take crf=99; "),
        ("vp9", "lag-in-frames", "999", "does not take lag-in-frames=999; "),
        ("vp9", "vp9-params", "x=1", "has no option vp9-params"),
        ("ffv1", "slices", "7", "does not take slices=7; "),
        ("ffv1", "coder", "99", "does not take coder=99; "),
        ("prores", "vendor", "toolong", "does not take vendor=toolong; "),
        ("prores", "mbs_per_slice", "99", "does not take mbs_per_slice=99; "),
    ],
)
def test_nonsense_is_a_sentence(codec: str, key: str, value: str, message: str) -> None:
    with pytest.raises(OutputError, match=message) as found:
        _check(codec, key, value)
    assert str(found.value).startswith(codec)


@pytest.mark.parametrize(
    ("codec", "key", "value"),
    [
        ("x264", "x264-params", "keyint=50:mbtree=0"),
        ("x265", "x265-params", f"keyint=50:master-display={DISPLAY}:max-cll=1000,400"),
        ("av1", "svtav1-params", "keyint=50:content-light=1000,400"),
        ("av1", "svtav1-params", f"mastering-display={DISPLAY}"),
    ],
)
def test_sense_is_taken(codec: str, key: str, value: str) -> None:
    _check(codec, key, value)


@pytest.mark.parametrize("codec", [name for name in ENCODERS if "_" not in name])
def test_each_container_takes_what_it_is_said_to(codec: str) -> None:
    encoder = ENCODERS[codec]
    for container in encoder.containers:
        with av.open(io.BytesIO(), "w", format=CONTAINERS[container]) as out:
            out.add_stream(encoder.library, rate=25)  # it raises ValueError for others


@pytest.mark.parametrize("container", ["mp4", "mov", "webm"])
def test_only_matroska_holds_ffv1(container: str) -> None:
    with pytest.raises(OutputError, match=rf"^\.{container} cannot hold ffv1; use \.mkv$"):
        choose(Wish("ffv1"), SOURCE, container, None)


@pytest.mark.parametrize("codec", ["x264", "x265", "av1"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_decode_times_of_few_pictures(codec: str, number: int) -> None:
    """x265 leaves them uninitialised, of fewer pictures than it reorders."""
    shape = _shape(Wish(codec, preset="12" if codec == "av1" else "ultrafast"))
    sizes = shape.encoding.pixels.shapes(shape.height, shape.width)
    for _ in range(4 if codec == "x265" else 1):
        used = [b"\xff" * size for size in range(500, 60_000, 500)]
        del used  # what is uninitialised is not 0 then
        coded: list[CodedPicture] = []
        encoder = PartEncoder(io.BytesIO(), shape, coded.append)
        for index in range(number):
            planes = [np.full(size, 9 * index, np.uint8) for size in sizes]
            encoder.add(planes, 40 * index, 40)
        encoder.close()
        assert sorted(one.pts for one in coded) == [40 * index for index in range(number)]
        decoded = [one.dts for one in coded]
        assert decoded == sorted(set(decoded))
        assert all(-200 <= one.dts <= one.pts for one in coded)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("container", ["mkv", "mp4", "mov"])
def test_films_of_few_pictures(container: str, number: int, tmp_path: Path) -> None:
    source = tmp_path / "film.mkv"
    films.film(source, codec="ffv1", times=range(0, 40 * number, 40), size=(16, 32))
    target = tmp_path / f"out.{container}"
    assert enlarge(FilmJob(source, target, Wish("x265"))).frames == number
    with av.open(str(target)) as film:
        frames = [(frame.pts * frame.time_base, frame.height) for frame in film.decode(video=0)]
    assert frames == [(Fraction(index, 25), 32) for index in range(number)]


@pytest.mark.parametrize("name", HARDWARE)
def test_encoders_in_hardware_get_options_that_ffmpeg_has(name: str) -> None:
    """They run on few machines, but any FFmpeg that has one describes it."""
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs ffmpeg")
    told = subprocess.check_output(["ffmpeg", "-v", "error", "-h", f"encoder={name}"], text=True)
    if "AVOptions" not in told:
        pytest.skip(f"this ffmpeg has no {name}")
    encoding = choose(Wish(name), SOURCE, "mkv", None)
    general = {"global_quality", "flags"}
    assert {key for key, _ in encoding.options} - general <= set(
        re.findall(r"^  -(\w+)", told, re.M)
    )
    formats = re.search(r"Supported pixel formats: (.*)", told)
    assert formats is not None
    assert {encoding.taken, "vaapi"} & set(formats[1].split())


def test_apples_encoders_have_a_quality_of_their_own() -> None:
    with pytest.raises(OutputError, match=r"^hevc_videotoolbox has no --crf$"):
        choose(Wish("hevc_videotoolbox", crf=20), SOURCE, "mov", None)
    assert ("flags", "+qscale") in choose(Wish("hevc_videotoolbox"), SOURCE, "mov", None).options


_ENCODED = """
import hashlib, io
from tests.flows.test_film_encoders import PartEncoder, Wish, _shape, np
file = io.BytesIO()
encoder = PartEncoder(file, _shape(Wish("x264")))
blocks = np.random.default_rng(0).integers(0, 256, (40, 60), np.uint8).repeat(6, 0).repeat(6, 1)
for number in range(20):
    luma = blocks[number * 2 : number * 2 + 128, number * 3 : number * 3 + 192].copy()
    encoder.add([luma, luma[::2, ::2].copy(), luma[::2, ::2].copy()], number * 40, 40)
encoder.close()
print(hashlib.sha256(file.getvalue()).hexdigest())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc fills freed memory alone")
def test_x264_reads_no_memory_that_nobody_wrote() -> None:
    """Freed memory is filled with another byte in each run."""
    made = set()
    for fill in ("0", "77", "165"):
        environment = {**os.environ, "MALLOC_PERTURB_": fill}
        command = [sys.executable, "-c", _ENCODED]
        made.add(subprocess.check_output(command, env=environment, text=True))
    assert len(made) == 1
