"""Files of many pictures on their way through one loop."""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from tests.helpers.contents import Frames, decode_all, encode, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.backends import Progress, ignore
from waifu2x.errors import ImageError
from waifu2x.flows import picture_work, upscaling
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import Repeats, WorkOptions
from waifu2x.flows.upscaling import Upscaled, upscale_file
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.read import open_content
from waifu2x.formats.table import OutputOptions, Quality
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Metadata, Picture
from waifu2x.imaging.streams import Extent, Header, Timed


@pytest.fixture
def upscaler(tmp_path: Path) -> Iterator[Upscaler]:
    models = str(identity_models(tmp_path / "identity"))
    with Upscaler(2, model=models, backend="numpy") as opened:
        yield opened


def upscaled(
    source: Path, extension: str, enlarger: Enlarger, notices: list[str] | None = None, **more: Any
) -> Upscaled:
    """Enlarges a file into out/b.EXTENSION beside it."""
    job = Job(source, source.parent / "out" / f"b.{extension}")
    output = Output(extension, Quality(), "fail", more.pop("options", OutputOptions()))

    def note(notice: str) -> None:
        if notices is not None:
            notices.append(notice)

    made = upscale_file(
        job, output, lambda: enlarger, WorkOptions(on_notice=note, in_flight=2, **more)
    )
    assert made is not None
    return made


def animation(count: int, side: int = 64) -> Frames:
    """Different frames of noise."""
    pictures = tuple(Picture(noise(side, side, 3, seed=seed)) for seed in range(count))
    return Frames(pictures, (50.0,) * count)


def watched(monkeypatch: pytest.MonkeyPatch, on_read: Callable[[int, Timed], None]) -> None:
    """Tells of each picture when it is read from a file."""

    def opened(*arguments: Any) -> DecodedFile:
        found = open_content(*arguments)

        def pictures() -> Any:
            for timed in found:
                on_read(timed.index, timed)
                yield timed

        return DecodedFile("p", found.header, pictures(), found.close)

    monkeypatch.setattr(upscaling, "open_content", opened)


@pytest.mark.parametrize(
    ("source", "extension"), [("png", "png"), ("gif", "gif"), ("png", "tif"), ("tif", "tif")]
)
def test_the_first_picture_is_written_before_the_last_is_read(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch, source: str, extension: str
) -> None:
    frames = animation(9)
    if source == "tif":
        frames = Frames(frames.pictures)
    path = tmp_path / f"a.{source}"
    path.write_bytes(encode(frames, source))
    written: list[int] = []

    def look(index: int, timed: Timed) -> None:
        written.append(sum(file.stat().st_size for file in (tmp_path / "out").glob(".*.part")))

    watched(monkeypatch, look)
    upscaled(path, extension, upscaler.enlarger)
    assert written[0] == 0
    whole = (tmp_path / f"out/b.{extension}").stat().st_size
    assert written[-1] > whole / 4
    back = decode_all((tmp_path / f"out/b.{extension}").read_bytes())
    assert len(back.pictures) == 9
    if extension != "gif":
        for found, picture in zip(back.pictures, frames.pictures, strict=True):
            assert (found.pixels == picture.pixels.repeat(2, 0).repeat(2, 1)).all()


def test_few_pictures_are_there_at_a_time(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(animation(60, side=8), "png"))
    sources: weakref.WeakSet[Picture] = weakref.WeakSet()
    results: weakref.WeakSet[Picture] = weakref.WeakSet()
    counts: list[tuple[int, int]] = []

    def look(index: int, timed: Timed) -> None:
        sources.add(timed.picture)
        counts.append((len(sources), len(results)))

    whole = upscaler.enlarger.picture

    def kept(*arguments: Any, **options: Any) -> Picture:
        result = whole(*arguments, **options)
        results.add(result)
        return result

    monkeypatch.setattr(upscaler.enlarger, "picture", kept)
    watched(monkeypatch, look)
    upscaled(path, "png", upscaler.enlarger)
    assert len(counts) == 60
    assert max(count for count, _ in counts) <= 6
    # Those that are kept for frames to come are among them.
    assert max(count for _, count in counts) <= picture_work._KEPT_RESULTS + 4


@pytest.mark.parametrize("extension", ["png", "gif", "webp", "tif"])
def test_a_damaged_frame_late_in_a_file_leaves_nothing(
    tmp_path: Path, upscaler: Upscaler, extension: str
) -> None:
    content = bytearray(encode(animation(9, side=16), "png"))
    *_, last = (at for at in range(len(content)) if content[at : at + 4] == b"fdAT")
    content[last + 40] ^= 0xFF  # what is packed is wrong, its checksum is right
    end = last + 4 + int.from_bytes(content[last - 4 : last], "big")
    content[end : end + 4] = zlib.crc32(content[last:end]).to_bytes(4, "big")
    path = tmp_path / "a.png"
    path.write_bytes(content)
    # Networks of earlier tests may wait for the garbage collection with their threads.
    before = set(threading.enumerate())
    with pytest.raises(ImageError, match=r"a\.png: damaged or cut off"):
        upscaled(path, extension, upscaler.enlarger)
    assert list((tmp_path / "out").iterdir()) == []
    begun = set(threading.enumerate()) - before
    assert not [thread for thread in begun if "waifu2x" in thread.name]


def test_a_page_that_cannot_be_enlarged_is_told_before_the_work(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tif"
    pages = (Picture(noise(20, 20, 3)), Picture(noise(2, 2, 3)))
    path.write_bytes(encode(Frames(pages), "tif"))
    monkeypatch.setattr(upscaler.enlarger, "request", replace_width(upscaler, 80))
    monkeypatch.setattr(upscaler.enlarger, "picture", None)
    with pytest.raises(ImageError, match=r"a\.tif: a picture of 2x2 would grow 40 times"):
        upscaled(path, "tif", upscaler.enlarger)
    assert not (tmp_path / "out").exists()


def replace_width(upscaler: Upscaler, width: int) -> Any:
    """The request of an upscaler for another width."""
    return replace(upscaler.enlarger.request, scale=None, width=width)


@pytest.mark.parametrize(("sizes", "copied"), [((8, 9), True), ((8, 7), False)])
def test_a_document_stays_as_it_is_if_every_page_does(
    tmp_path: Path, sizes: tuple[int, ...], copied: bool
) -> None:
    path, models = tmp_path / "a.tif", identity_models(tmp_path / "identity")
    content = encode(Frames(tuple(Picture(noise(side, side, 3)) for side in sizes)), "tif")
    path.write_bytes(content)
    with Upscaler(2, only_smaller_than=8, model=str(models), backend="numpy") as upscaler:
        assert upscaled(path, "tif", upscaler.enlarger).copied == copied
    result = (tmp_path / "out/b.tif").read_bytes()
    assert (result == content) == copied
    assert [len(page.pixels) for page in decode_all(result).pictures] == [
        side if side >= 8 else 2 * side for side in sizes
    ]


def test_what_shows_late_is_told_once(tmp_path: Path, upscaler: Upscaler) -> None:
    path = tmp_path / "a.tif"
    first = Image.fromarray(noise(6, 6, 3))
    others = [Image.fromarray(noise(6, 6, 4), "CMYK") for _ in range(3)]
    first.save(path, save_all=True, append_images=others)
    notices: list[str] = []
    upscaled(path, "tif", upscaler.enlarger, notices)
    assert notices == ["CMYK without a profile: its colours are approximate"]
    path.write_bytes(
        encode(
            Frames((
                Picture(noise(6, 6, 3), metadata=Metadata(xmp=b"<x/>")),
                Picture(noise(6, 6, 3), metadata=Metadata(xmp=b"<x/>", iptc=b"\x1c\x02\x05\0\0")),
            )),
            "tif",
        )
    )  # fmt: skip
    notices.clear()
    (tmp_path / "out/b.tif").unlink()
    upscaled(path, "bmp", upscaler.enlarger, notices)
    assert notices == ["BMP holds one picture: only the first of 2 is kept", "BMP holds no XMP"]


def test_pages_are_read_no_further_than_the_output_holds(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(animation(5, side=8), "png"))
    read: list[int] = []
    watched(monkeypatch, lambda index, timed: read.append(index))
    upscaled(path, "jpg", upscaler.enlarger)
    assert read == [0]


def test_the_order_of_pages_is_kept_and_each_is_read_upright(tmp_path: Path) -> None:
    """Sizes in a header are those of upright pictures, as decoded ones are."""
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as writer:
        for orientation in (1, 6, 3):
            tag = (274, "H", 1, orientation, True)
            writer.write(noise(4, 7, 3), photometric="rgb", metadata=None, extratags=[tag])
    found = decode_all(path.read_bytes())  # which compares with the header
    assert [page.pixels.shape[:2] for page in found.pictures] == [(4, 7), (7, 4), (4, 7)]


# Frames that repeat.


def halves(picture: Picture, on_progress: Progress) -> Picture:
    return Picture(picture.pixels // 2)


def flat(level: int) -> Picture:
    return Picture(np.full((4, 4, 3), level, np.uint8))


def test_repeats_keep_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def work(picture: Picture, on_progress: Progress) -> Picture:
        calls.append(int(picture.pixels[0, 0, 0]))
        return halves(picture, on_progress)

    once = Repeats(work)
    for level in range(40):
        assert (once(flat(level), ignore).pixels == level // 2).all()
    assert (once(flat(39), ignore).pixels == 19).all()
    assert (
        once(flat(39 - picture_work._KEPT_RESULTS + 1), ignore).pixels
        == (40 - picture_work._KEPT_RESULTS) // 2
    ).all()
    assert calls == list(range(40))
    once(flat(0), ignore)
    assert calls == [*range(40), 0]
    # One that is larger than all that may be kept is kept until there is another one.
    monkeypatch.setattr(picture_work, "_KEPT_BYTES", 1)
    for level in (50, 50, 51, 50):
        once(flat(level), ignore)
    assert calls[41:] == [50, 51, 50]


def test_a_frame_that_is_being_computed_is_waited_for() -> None:
    begun, go_on, calls = threading.Event(), threading.Event(), list[int]()

    def work(picture: Picture, on_progress: Progress) -> Picture:
        calls.append(1)
        begun.set()
        assert go_on.wait(30)
        return halves(picture, on_progress)

    once, results = Repeats(work), list[Picture]()
    threads = [
        threading.Thread(target=lambda: results.append(once(flat(8), ignore))) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert [int(result.pixels[0, 0, 0]) for result in results] == [4, 4]
    assert calls == [1]


def test_an_error_in_a_frame_is_one_for_those_that_wait() -> None:
    def work(picture: Picture, on_progress: Progress) -> Picture:
        raise ImageError("bad")

    once = Repeats(work)
    for _ in range(2):
        with pytest.raises(ImageError, match="bad"):
            once(flat(1), ignore)


def test_a_header_gives_an_extent_for_each_picture() -> None:
    one, other = Extent(1, 2, 6), Extent(3, 4, 36)
    assert list(Header((one,), 3, animated=True).all_extents) == [one] * 3
    assert list(Header((one, other), 2).all_extents) == [one, other]
    assert list(Header((one,), None).all_extents) == [one]
