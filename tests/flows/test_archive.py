"""CBZ and ZIP archives of pictures."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.helpers.contents import decode, encode, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.backends import Progress
from waifu2x.cli import cli
from waifu2x.cli.output import progress
from waifu2x.errors import ImageError
from waifu2x.flows.archive import ArchivePage, MakePage, upscale_archive, upscale_page
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.picture_work import WorkOptions
from waifu2x.formats.table import Quality
from waifu2x.imaging.picture import Picture

DATE = (2001, 2, 3, 4, 5, 6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "identity")
    Path("in").mkdir()
    return tmp_path


def page(seed: int, extension: str = "png") -> bytes:
    return encode(Picture(noise(5, 7, 3, seed=seed)), extension)


def archived(path: str, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), content)


def pages_of(upscaler: Upscaler) -> MakePage:
    """Makes pages in this process."""

    def make(name: str, content: bytes, on_progress: Progress) -> ArchivePage:
        output = Output("png", Quality(), "fail")
        return upscale_page(
            name, content, output, upscaler.enlarger, WorkOptions(on_progress=on_progress)
        )

    return make


def batch(*arguments: str) -> Result:
    command = ["batch", "-m", "identity", "--backend", "numpy", *arguments, "in", "out"]
    return CliRunner().invoke(cli, command)


def test_a_comic(folder: Path) -> None:
    files = {
        "ComicInfo.xml": b"<ComicInfo/>",
        "ch1/02.bmp": page(2, "bmp"),
        "ch1/01.png": page(1),
        "ch1/01.jpg": page(3, "jpg"),
        "__MACOSX/._01.png": b"not a picture",
    }
    archived("in/book.cbz", files)
    Path("in/single.png").write_bytes(page(9))
    result = batch("-f", "png")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path("out").iterdir()) == ["book.cbz", "single.png"]
    with zipfile.ZipFile("out/book.cbz") as book:
        assert book.namelist() == [
            "ComicInfo.xml",
            "ch1/02.png",
            "ch1/01.png",
            "ch1/01.jpg.png",
            "__MACOSX/._01.png",
        ]
        assert {member.date_time for member in book.infolist()} == {DATE}
        assert book.read("ComicInfo.xml") == b"<ComicInfo/>"
        for name, seed in (("ch1/02.png", 2), ("ch1/01.png", 1)):
            expected = noise(5, 7, 3, seed=seed).repeat(2, 0).repeat(2, 1)
            assert np.array_equal(decode(book.read(name)).pixels, expected)
    assert "2 skipped" in batch("--skip-existing", "-v").stderr


@pytest.mark.parametrize("in_flight", [1, 2, 6])
def test_pages_under_way_at_a_time_stay_in_order(folder: Path, in_flight: int) -> None:
    names = [f"{number:02}.png" for number in range(12)]
    files = {name: page(number) for number, name in enumerate(names)}
    archived("in/book.cbz", {"first.txt": b"a", **files, "last.txt": b"z"})
    job, output = Job(Path("in/book.cbz"), Path("out.cbz")), Output("png", Quality(), "fail")
    parts: list[float] = []
    with Upscaler(2, model="identity", backend="numpy") as upscaler:
        made = upscale_archive(
            job, output, pages_of(upscaler), in_flight=in_flight, on_progress=parts.append
        )
    assert made is not None
    assert (made.height, made.width) == (10, 14)
    assert sum(parts) == pytest.approx(1)
    with zipfile.ZipFile("out.cbz") as book:
        assert book.namelist() == ["first.txt", *names, "last.txt"]
        for number, name in enumerate(names):
            expected = noise(5, 7, 3, seed=number).repeat(2, 0).repeat(2, 1)
            assert np.array_equal(decode(book.read(name)).pixels, expected)


@pytest.mark.parametrize("in_flight", [1, 6])
def test_the_first_bad_page_is_the_one_named(folder: Path, in_flight: int) -> None:
    files = {f"{number}.png": page(number) for number in range(8)}
    files |= {"5.png": files["5.png"][:60], "7.png": b"nothing"}
    archived("in/book.cbz", files)
    job, output = Job(Path("in/book.cbz"), Path("out/book.cbz")), Output("png", Quality(), "fail")
    with (
        Upscaler(2, model="identity", backend="numpy") as upscaler,
        pytest.raises(ImageError, match=r"^in/book\.cbz: 5\.png: damaged or cut off"),
    ):
        upscale_archive(job, output, pages_of(upscaler), in_flight=in_flight)
    assert list(Path("out").iterdir()) == []


def test_no_two_pictures_get_one_name(folder: Path) -> None:
    seeds = {"a.bmp": 1, "a.png": 2, "a.bmp.png": 3}
    archived("in/book.cbz", {name: page(seed, name[-3:]) for name, seed in seeds.items()})
    assert batch("-f", "png").exit_code == 0
    with zipfile.ZipFile("out/book.cbz") as book:
        assert book.namelist() == ["a.bmp.2.png", "a.png", "a.bmp.png"]
        for name, seed in zip(book.namelist(), seeds.values(), strict=True):
            expected = noise(5, 7, 3, seed=seed).repeat(2, 0).repeat(2, 1)
            assert np.array_equal(decode(book.read(name)).pixels, expected)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_anywhere_is_a_sentence(folder: Path, method: int) -> None:
    sound = io.BytesIO()
    with zipfile.ZipFile(sound, "w", method) as archive:
        archive.writestr("ü.txt", b"hello" * 20)
    rng = np.random.default_rng(method)
    job, output = Job(Path("a.zip"), Path("out.zip")), Output("png", Quality(), "fail")
    for _ in range(300):
        content = np.frombuffer(sound.getvalue(), np.uint8).copy()
        content[rng.integers(0, len(content), 2)] = rng.integers(0, 256, 2)
        job.source.write_bytes(content.tobytes())
        with pytest.raises(ImageError, match=r"^a\.zip: "):  # sound or not, there is no picture
            upscale_archive(job, output, cast(Any, lambda: None))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.png": page(1), "b.png": page(2)[:60]}, "in/a.zip: b.png: damaged or cut off"),
        ({"notes.txt": b"hello"}, "in/a.zip: no pictures in this archive"),
        (None, "in/a.zip: not an archive, or damaged"),
    ],
)
def test_bad_archives(folder: Path, files: dict[str, bytes] | None, message: str) -> None:
    if files is None:
        Path("in/a.zip").write_bytes(b"PK\x03\x04 and then nothing of use")
    else:
        archived("in/a.zip", files)
    result = batch()
    assert result.exit_code == 1
    assert message in result.stderr.splitlines()[-1]
    assert list(Path("out").iterdir()) == []


def test_an_archive_that_is_gone_is_the_one_named(folder: Path) -> None:
    Path("in/a.zip").symlink_to("nowhere.zip")
    result = batch()
    assert "in/a.zip: no such file or directory" in result.stderr.splitlines()[-1]


def test_an_archive_whose_bytes_are_wrong(folder: Path) -> None:
    archived("in/a.zip", {"a.png": page(1)})
    content = bytearray(Path("in/a.zip").read_bytes())
    content[60] ^= 0xFF
    Path("in/a.zip").write_bytes(content)
    result = batch()
    assert result.exit_code == 1
    assert "in/a.zip: a.png: damaged: Bad CRC-32" in result.stderr.splitlines()[-1]


def upscale(*arguments: str) -> Result:
    command = ["upscale", "-m", "identity", "--backend", "numpy", *arguments]
    return CliRunner().invoke(cli, command)


def lossy(seed: int, kind: str, **options: Any) -> bytes:
    """A page that is coded with losses, by Pillow."""
    encoded = io.BytesIO()
    pixels = np.kron(noise(8, 8, 3, seed=seed), np.ones((8, 8, 1), np.uint8))
    Image.fromarray(pixels).save(encoded, kind, **options)
    return encoded.getvalue()


def test_pages_keep_their_names_and_formats(folder: Path) -> None:
    """And JPEGs the tables that they were coded by; what is no picture stays to the byte."""
    files = {
        "ComicInfo.xml": b"<ComicInfo>\r\n</ComicInfo>",
        "a/02.JPG": lossy(1, "JPEG", quality=71),
        "a/01.png": page(2),
        "03.webp": lossy(3, "WEBP", quality=80),
        "04.webp": page(4, "webp"),
        "05.bmp": page(5, "bmp"),
        "notes.txt": b"\x00\xff",
    }
    archived("book.cbz", files)
    with zipfile.ZipFile("book.cbz", "a") as book:
        book.comment = b'{"ComicBookInfo/1.0": {}}'
    result = upscale("book.cbz", "large.zip", "--json", "-v")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert (row["pictures"], row["width"], row["height"], row["status"]) == (5, 128, 128, "done")
    assert "large.zip: 5 pictures, 128x128, " in result.stderr
    with zipfile.ZipFile("large.zip") as book:
        assert book.comment == b'{"ComicBookInfo/1.0": {}}'
        assert book.namelist() == list(files)
        made = {name: book.read(name) for name in files}
    for name in ("ComicInfo.xml", "notes.txt"):
        assert made[name] == files[name]
    tables = []
    for name, kind in (("a/02.JPG", "JPEG"), ("a/01.png", "PNG"), ("05.bmp", "BMP")):
        with (
            Image.open(io.BytesIO(made[name])) as image,
            Image.open(io.BytesIO(files[name])) as before,
        ):
            assert image.format == before.format == kind
            assert image.size == (2 * before.width, 2 * before.height)
            tables += [getattr(each, "quantization", None) for each in (before, image)]
    assert tables[0] == tables[1] is not None
    assert np.array_equal(
        decode(made["04.webp"]).pixels, noise(5, 7, 3, seed=4).repeat(2, 0).repeat(2, 1)
    )
    for name, chunk in (("03.webp", b"VP8 "), ("04.webp", b"VP8L")):
        assert made[name][12:16] == chunk


def test_pages_in_one_format_where_that_is_asked_for(folder: Path) -> None:
    archived("book.zip", {"1.jpg": lossy(1, "JPEG"), "2.png": page(2)})
    assert upscale("-f", "webp", "-q", "70", "book.zip", "large.cbz").exit_code == 0
    with zipfile.ZipFile("large.cbz") as book:
        assert book.namelist() == ["1.webp", "2.webp"]
        assert {book.read(name)[12:16] for name in book.namelist()} == {b"VP8 "}
    # A quality is for those pages that have one.
    assert upscale("-q", "20", "book.zip").exit_code == 0
    with zipfile.ZipFile("book-2x.zip") as book:
        assert book.namelist() == ["1.jpg", "2.png"]
        found = [book.read("1.jpg"), lossy(1, "JPEG", quality=20)]
    tables = [getattr(Image.open(io.BytesIO(data)), "quantization", None) for data in found]
    assert tables[0] == tables[1] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in/a.png", "a.cbz"], "a.cbz: an archive is made of another one only; in/a.png is none."),
        (["in/a.cbz", "a.png"], "a.png: in/a.cbz is an archive: its result ends in .cbz or .zip"),
    ],
)
def test_archives_and_pictures_are_not_made_of_each_other(
    folder: Path, arguments: list[str], message: str
) -> None:
    Path("in/a.png").write_bytes(page(1))
    archived("in/a.cbz", {"1.png": page(1)})
    result = upscale(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_a_bad_archive_by_name_is_one_sentence(folder: Path) -> None:
    archived("bad.cbz", {"1.png": page(1), "2.png": page(2)[:60]})
    result = upscale("bad.cbz", "out.cbz", "--json")
    assert (result.exit_code, Path("out.cbz").exists()) == (1, False)
    assert re.fullmatch(r"Error: bad\.cbz: 2\.png: damaged or cut off.*\n", result.stderr)
    assert json.loads(result.stdout)["status"] == "failed"
    assert upscale("nothing.cbz", "out.cbz").stderr.startswith("Error: nothing.cbz: cannot read")
    archived("good.cbz", {"1.png": page(1)})
    for _ in range(2):
        result = upscale("good.cbz", "out.cbz", "--skip-existing")
        assert result.exit_code == 0
    assert result.stderr == "skipped  out.cbz exists\n"


def test_pages_of_a_batch_are_counted(folder: Path) -> None:
    archived("in/book.cbz", {f"{number}.jpg": page(number, "jpg") for number in range(4)})
    Path("in/single.jpg").write_bytes(page(9, "jpg"))
    result = batch("--json", "-v")
    assert "2 done (5 pictures), 0 skipped, 0 failed; " in result.stderr
    rows = {row["output"]: row["pictures"] for row in map(json.loads, result.stdout.splitlines())}
    assert rows == {"out/book.cbz": 4, "out/single.png": 1}
    with zipfile.ZipFile("out/book.cbz") as book:
        assert book.namelist() == [f"{number}.jpg" for number in range(4)]


def _made_for_another_version(archive: bytearray) -> None:
    at = archive.rfind(b"PK\x01\x02")
    archive[at + 6 : at + 8] = (99).to_bytes(2, "little")


def _named_in_no_utf8(archive: bytearray) -> None:
    at = archive.rfind(b"PK\x01\x02")
    archive[at + 8 : at + 10] = (0x800).to_bytes(2, "little")
    archive[at + 46] = 0xFF


@pytest.mark.parametrize("spoil", [_made_for_another_version, _named_in_no_utf8])
def test_a_directory_that_cannot_be_read_is_a_sentence(
    folder: Path, spoil: Callable[[bytearray], None]
) -> None:
    """Also for who counts pages, beside the work or for `info`."""
    archived("good.cbz", {"a.png": page(1)})
    content = bytearray(Path("good.cbz").read_bytes())
    spoil(content)
    Path("in/bad.cbz").write_bytes(content)
    job = Job(Path("in/bad.cbz"), Path("out/bad.cbz"))
    counted = progress._ManyPictures(1)
    counted.count_pages([job])
    assert counted.figures().counted == "0/1"
    for result in (batch(), CliRunner().invoke(cli, ["info", "in/bad.cbz"])):
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert "in/bad.cbz: not an archive, or damaged: " in result.stderr.splitlines()[-1]


def test_a_name_that_grows_too_long_for_an_archive(folder: Path) -> None:
    """It fits in two bytes' length until the page gets a longer extension."""
    archived("in/long.cbz", {"a" * 65_531 + ".png": page(1)})
    assert batch().exit_code == 0
    result = batch("-f", "webp", "--overwrite")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert re.search(r"in/long\.cbz: a{100}\.\.\..{100}: too long a name", result.stderr)
