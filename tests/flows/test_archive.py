"""CBZ and ZIP archives of pictures, through `batch`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.helpers.contents import decode, encode, identity_models, noise
from waifu2x.api import Upscaler
from waifu2x.backends import Progress
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.flows.archive import ArchivePage, MakePage, upscale_archive, upscale_page
from waifu2x.flows.jobs import Job, Output
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
        return upscale_page(name, content, output, upscaler.enlarger, on_progress=on_progress)

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
            "ch1/01.png.png",
            "ch1/01.jpg.png",
            "__MACOSX/._01.png",
        ]
        assert {member.date_time for member in book.infolist()} == {DATE}
        assert book.read("ComicInfo.xml") == b"<ComicInfo/>"
        for name, seed in (("ch1/02.png", 2), ("ch1/01.png.png", 1)):
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
        assert book.namelist() == ["a.bmp.png", "a.png.png", "a.bmp.png.png"]
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


def test_an_archive_by_name_is_for_batch(folder: Path) -> None:
    archived("in/book.cbz", {"1.png": page(1)})
    result = CliRunner().invoke(cli, ["upscale", "in/book.cbz", "book.cbz"])
    assert result.exit_code == 2
    assert "archives are for `waifu2x batch`" in result.stderr
