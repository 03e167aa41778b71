"""Options that encoders do not take: each is a sentence before the work."""

from __future__ import annotations

import io
from fractions import Fraction

import pytest

av = pytest.importorskip("av")

from waifu2x.errors import OutputError  # noqa: E402
from waifu2x.formats.film.description import FilmColours, PixelFormat  # noqa: E402
from waifu2x.formats.film.writing.codecs import ENCODERS, Wish, choose  # noqa: E402
from waifu2x.formats.film.writing.encode import Shape, check  # noqa: E402
from waifu2x.formats.film.writing.targets import CONTAINERS  # noqa: E402

SOURCE = PixelFormat("yuv420p", 8, 2, 2, 3)
COLOURS = FilmColours(1, "limited", 1, 1, "left")
DISPLAY = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"


def _check(codec: str, key: str, value: str) -> None:
    encoding = choose(Wish(codec, options=((key, value),)), SOURCE, "mkv", None)
    check(Shape(encoding, 128, 192, Fraction(1, 1000), Fraction(25), None, COLOURS, 1))


@pytest.mark.parametrize(
    ("codec", "key", "value", "message"),
    [
        ("x264", "x264-params", "keyint=abc", "not understand keyint = abc"),
        ("x264", "x264-params", "=:=:", "cannot be opened"),
        ("x264", "crf", "abc", r"cannot be opened .* \(crf=abc"),
        ("x264", "preset", "abc", "has no preset 'abc': use ultrafast"),
        ("x264", "level", "99", "cannot be opened"),
        ("x264", "width", "16", "has no option width"),
        ("x264", "time_base", "1", "would move pictures"),
        ("x265", "x265-params", "keyint=abc", "not understand keyint: abc$"),
        ("x265", "x265-params", "me=foo:crf=20", "not understand me: foo$"),
        ("x265", "x265-params", "max-cll=a", "not understand max-cll: a$"),
        ("x265", "x265-params", "ctu=3", "cannot be opened"),
        ("x265", "x265-params", "master-display=x", "understand master-display=x: write master-d"),
        ("x265", "tune", "abc", "has no tune 'abc': use animation"),
        ("av1", "svtav1-params", "keyint=abc", "not understand keyint: abc$"),
        ("av1", "svtav1-params", "mastering-display=x", "not understand mastering-display=x"),
        ("av1", "crf", "99", "cannot be opened"),
        ("vp9", "lag-in-frames", "999", "cannot be opened"),
        ("vp9", "vp9-params", "x=1", "has no option vp9-params"),
        ("ffv1", "slices", "7", "cannot be opened"),
        ("ffv1", "coder", "99", "cannot be opened"),
        ("prores", "vendor", "toolong", "cannot be opened"),
        ("prores", "mbs_per_slice", "99", "cannot be opened"),
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


def test_mov_holds_no_ffv1() -> None:
    with pytest.raises(OutputError, match=r"^\.mov cannot hold ffv1: use \.mkv$"):
        choose(Wish("ffv1"), PixelFormat("yuv420p", 8, 2, 2, 3), "mov", None)
