"""Files through the Python interface: made as by the command, with all their data."""

from __future__ import annotations

import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image, ImageCms

import waifu2x
from tests.helpers.networks import Doubling, use_network
from waifu2x import BackendError, ExistsError, ImageError, OutputError, UpscaledFile, Upscaler
from waifu2x.cli import cli

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
MODEL: Any = {"model": "vgg_7", "noise": None}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives each test a new working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def upscaler() -> Iterator[Upscaler]:
    with Upscaler(2, model="vgg_7") as opened:
        yield opened


def rich_png(path: Path) -> None:
    """Makes a picture with transparency, a profile, EXIF and a resolution."""
    alpha = np.full((9, 12, 1), 255, np.uint8)
    alpha[:4] = 9
    exif = Image.Exif()
    exif[0x010F] = "a maker"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.fromarray(np.dstack([PIXELS, alpha]))
    image.save(path, exif=exif, icc_profile=profile, dpi=(300, 300))


def animation(path: Path) -> None:
    """Makes three frames that are shown for different times."""
    frames = [Image.fromarray(np.roll(PIXELS, step, 0)).quantize(16) for step in (0, 2, 4)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=[50, 70, 90], loop=3)


def deep_png(path: Path) -> None:
    """Makes a grey picture of 16 bits."""
    Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257).save(path)


@pytest.mark.parametrize(
    ("make", "source", "target", "options", "words"),
    [
        (rich_png, "a.png", "b.png", {}, []),
        (rich_png, "a.png", "b.jpg", {"quality": 80, "background": (0, 0, 255)},
         ["-q", "80", "--background", "#0000ff"]),
        (rich_png, "a.png", "b.webp", {"strip": True, "scale": 1.5, "noise": 1},
         ["--strip", "-s", "1.5", "-n", "1"]),
        (animation, "a.gif", "b.gif", {"width": 20}, ["--width", "20"]),
        (deep_png, "a.png", "b.tif", {"compression": "best"}, ["--compression", "best"]),
        (deep_png, "a.png", "b.png", {"depth": 8, "tta": 2}, ["--depth", "8", "-x", "2"]),
        (deep_png, "a.png", "b", {"format": "png"}, ["-f", "png"]),
    ],
)  # fmt: skip
def test_files_are_those_of_the_command(
    folder: Path,
    make: Any,
    source: str,
    target: str,
    options: dict[str, Any],
    words: list[str],
) -> None:
    make(folder / source)
    made = waifu2x.upscale_file(source, target, **{**MODEL, **options})
    said = ["upscale", "-m", "vgg_7", "-n", "none", *words, source, f"cli/{target}"]
    (folder / "cli").mkdir()
    result = CliRunner().invoke(cli, said)
    assert result.exit_code == 0, result.output
    assert (folder / target).read_bytes() == (folder / "cli" / target).read_bytes()
    with Image.open(target) as image:
        assert image.size == (made.width, made.height)


def test_what_comes_back(folder: Path) -> None:
    rich_png(folder / "a.png")
    parts: list[float] = []
    made = waifu2x.upscale_file(
        folder / "a.png", "new/b.jpg", 2, 1, model="vgg_7", on_progress=parts.append
    )
    assert made == UpscaledFile(
        path=Path("new/b.jpg"),
        width=24,
        height=18,
        seconds=made.seconds,
        noise=1,
        notices=("JPEG holds no transparency: the picture is composed on #ffffff",),
        copied=False,
        recomputed=0,
    )
    assert made.seconds > 0
    assert sum(parts) == pytest.approx(1.0)
    shown = f"UpscaledFile(path={made.path!r}, width=24, height=18, seconds="
    assert repr(made).startswith(shown)


def test_pictures_that_were_computed_again_are_counted(
    upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [np.full((5, 7, 3), value, np.uint8) for value in (255, 20, 255)]
    first, *others = map(Image.fromarray, pages)
    first.save("pages.tif", save_all=True, append_images=others)
    again = Doubling(is_again=lambda pixels: bool(pixels.min() == 255))
    use_network(upscaler, again, monkeypatch)
    assert upscaler.upscale_file("pages.tif", "large.tif").recomputed == 2


def test_the_noise_of_a_jpeg_is_removed_by_its_quality(folder: Path) -> None:
    picture = Image.fromarray(PIXELS)
    picture.save("poor.jpg", quality=40)
    picture.save("best.jpg", quality=100, subsampling=0)
    picture.save("a.png")
    levels = {
        name: waifu2x.upscale_file(name, f"large/{name}.png").noise
        for name in ("poor.jpg", "best.jpg", "a.png")
    }
    assert levels == {"poor.jpg": 2, "best.jpg": None, "a.png": None}
    fixed = waifu2x.upscale_file("poor.jpg", "fixed.png", noise=2)
    assert fixed.noise == 2
    chosen = folder / "large/poor.jpg.png"
    assert chosen.read_bytes() == (folder / "fixed.png").read_bytes()
    with Image.open("poor.jpg") as image:
        np.testing.assert_array_equal(
            np.asarray(waifu2x.upscale(image, 2, "auto")), decoded(chosen)
        )


def test_an_upscaler_makes_many_files(folder: Path, upscaler: Upscaler) -> None:
    for name in ("a", "b"):
        deep_png(folder / f"{name}.png")
        upscaler.upscale_file(f"{name}.png", f"large/{name}.png", copy_times=True)
    assert (folder / "large/a.png").read_bytes() == (folder / "large/b.png").read_bytes()
    times = [path.stat().st_mtime_ns for path in (folder / "b.png", folder / "large/b.png")]
    assert times[0] == times[1]
    assert upscaler.engine.open_networks  # still compiled


def test_a_target_is_replaced_only_where_that_is_asked_for(
    folder: Path, upscaler: Upscaler
) -> None:
    deep_png(folder / "a.png")
    (folder / "b.png").write_bytes(b"precious")
    with pytest.raises(ExistsError, match=r"b\.png: it exists already; use overwrite=True$"):
        upscaler.upscale_file("a.png", "b.png")
    assert (folder / "b.png").read_bytes() == b"precious"
    upscaler.upscale_file("a.png", "b.png", overwrite=True)
    assert (folder / "b.png").read_bytes() != b"precious"
    with pytest.raises(OutputError, match=r"a\.png: it is an input itself; choose another output"):
        upscaler.upscale_file("a.png", "a.png", overwrite=True)


def book(path: Path) -> None:
    """Makes an archive with two pages and another file."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(("01.png", "02.jpg")):
            Image.fromarray(np.roll(PIXELS, number, 0)).save(name)
            archive.write(name)
            Path(name).unlink()
        archive.writestr("info.xml", "<series/>")


@pytest.mark.parametrize(
    ("options", "words"), [({}, []), ({"format": "webp", "quality": 80}, ["-f", "webp", "-q80"])]
)
def test_an_archive_is_that_of_the_command(
    folder: Path, options: dict[str, Any], words: list[str]
) -> None:
    book(folder / "a.cbz")
    parts: list[float] = []
    made = waifu2x.upscale_file("a.cbz", "b.cbz", 2, on_progress=parts.append, **MODEL, **options)
    assert (made.width, made.height, made.noise) == (24, 18, None)
    assert sum(parts) == pytest.approx(1.0)
    said = ["upscale", "-m", "vgg_7", "-n", "none", *words, "a.cbz", "cli.cbz"]
    assert CliRunner().invoke(cli, said).exit_code == 0
    with zipfile.ZipFile("b.cbz") as one, zipfile.ZipFile("cli.cbz") as other:
        assert one.namelist() == other.namelist()
        assert [one.read(name) for name in one.namelist()] == [
            other.read(name) for name in other.namelist()
        ]


def test_a_cancelled_archive_leaves_nothing(folder: Path, upscaler: Upscaler) -> None:
    book(folder / "a.cbz")

    def cancel(part: float) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        upscaler.upscale_file("a.cbz", "b.cbz", on_progress=cancel)
    assert [path.name for path in folder.iterdir()] == ["a.cbz"]


class CancelledError(OSError):
    """Raised by a program to end the work: even an OSError comes out as it is."""


def test_a_cancelled_file_leaves_nothing(folder: Path, upscaler: Upscaler) -> None:
    animation(folder / "a.gif")

    def cancel(part: float) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        upscaler.upscale_file("a.gif", "b.gif", on_progress=cancel)
    assert [path.name for path in folder.iterdir()] == ["a.gif"]
    assert upscaler.upscale_file("a.gif", "b.gif").height == 18


def test_a_file_that_cannot_be_dated_is_an_error_of_the_package(
    folder: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **options: Any) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    deep_png(folder / "a.png")
    monkeypatch.setattr("os.utime", refuse)
    with pytest.raises(OutputError, match=r"^b\.png: operation not permitted"):
        upscaler.upscale_file("a.png", "b.png", copy_times=True)


def test_a_picture_that_stays_is_copied(folder: Path) -> None:
    rich_png(folder / "a.png")
    made = waifu2x.upscale_file("a.png", "b.png", only_smaller_than=12, **MODEL)
    assert made.copied
    assert (made.width, made.height) == (12, 9)
    assert (folder / "b.png").read_bytes() == (folder / "a.png").read_bytes()


def test_a_file_called_minus_is_a_file(folder: Path, upscaler: Upscaler) -> None:
    deep_png(folder / "a.png")
    (folder / "a.png").rename(folder / "-")
    made = upscaler.upscale_file("-", "b.png")
    assert made.path == Path("b.png")
    upscaler.upscale_file("b.png", "-", format="png", overwrite=True)
    with Image.open(folder / "-") as image:
        assert image.size == (48, 36)


@pytest.mark.parametrize(
    ("target", "options", "error", "message"),
    [
        ("b", {}, OutputError, r"^b: its name says no format; end it in \.png, say, or use format"),
        ("b.docx", {}, OutputError, r"^b\.docx: its name says no format"),
        ("b.cbz", {}, OutputError, r"^b\.cbz: an archive can be made of an archive only"),
        ("b.png", {"format": "jpg"}, ValueError, r"^format 'jpg' contradicts the name b\.png"),
        ("b", {"format": "psd"}, ValueError, "^Expected a format of 'png', .*, but got 'psd'"),
        ("b.png", {"quality": 90}, ValueError, "^quality is for jpg, .*, and png is lossless"),
        ("b.jpg", {"quality": 101}, ValueError, "^Expected a quality from 1 to 100, .* got 101"),
        ("b.jpg", {"compression": "best"}, ValueError, "^compression is for png"),
        ("b.png", {"compression": "more"}, ValueError, "^Expected a compression of 'fast', "),
        ("b.jpg", {"depth": 16}, ValueError, "^depth 16: JPEG does not hold 16 bits a sample"),
        (
            "b.png",
            {"depth": "8"},
            ValueError,
            "^Expected a depth of 'auto', 8, 10, 12, 16, but got '8'",
        ),
        ("b.jpg", {"background": (0, 256, 0)}, ValueError, "^Expected a background of three"),
        ("b.jpg", {"background": (0, 0)}, ValueError, "^Expected a background of three"),
        ("b.png", {"max_pixels": 0}, ValueError, "^Expected max_pixels of at least 1, but got 0"),
        ("b.png", {"max_pixels": 99}, ImageError, r"^a\.png: .*99"),
    ],
)
def test_mistakes(
    folder: Path,
    upscaler: Upscaler,
    target: str,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    deep_png(folder / "a.png")
    with pytest.raises(error, match=message):
        upscaler.upscale_file("a.png", target, **options)
    assert [path.name for path in folder.iterdir()] == ["a.png"]


def test_a_missing_encoder_is_found_before_the_work(
    folder: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep_png(folder / "a.png")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    parts: list[float] = []
    with pytest.raises(OutputError, match=r"^b\.heic: HEIF needs a plugin; run `pip install "):
        upscaler.upscale_file("a.png", "b.heic", on_progress=parts.append)
    assert not parts


def test_a_source_that_is_not_there_opens_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a device was opened")

    monkeypatch.setattr("waifu2x.backends.engine.engine.open_devices", refuse)
    with pytest.raises(ImageError, match=r"missing\.png: cannot read: no such file or directory"):
        waifu2x.upscale_file("missing.png", "b.png", **MODEL)


def test_a_closed_upscaler_makes_no_file(folder: Path, upscaler: Upscaler) -> None:
    deep_png(folder / "a.png")
    upscaler.close()
    with pytest.raises(BackendError, match="this upscaler is closed; make a new one"):
        upscaler.upscale_file("a.png", "b.png")


def decoded(path: Path) -> NDArray[Any]:
    """Returns the pixels of a file."""
    with Image.open(path) as image:
        return np.asarray(image)


def test_a_file_and_an_array_become_the_same(folder: Path, upscaler: Upscaler) -> None:
    Image.fromarray(PIXELS).save("a.png")
    upscaler.upscale_file("a.png", "b.png")
    np.testing.assert_array_equal(decoded(folder / "b.png"), upscaler(PIXELS))


def pages(path: Path) -> None:
    """Makes an archive whose pages are under way together, beside files that are copied."""
    Image.fromarray(PIXELS).save("page.png")
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(8):
            archive.write("page.png", f"{number}.png")
            archive.writestr(f"{number}.txt", b"text")


@pytest.mark.parametrize("backend", ["cpu", "numpy"])
@pytest.mark.parametrize(
    ("make", "name"), [(rich_png, "a.png"), (animation, "a.gif"), (pages, "a.cbz")]
)
def test_close_within_its_own_progress_returns(
    backend: str, make: Callable[[Path], None], name: str
) -> None:
    """The rest is done or refused, and everything is freed afterwards."""
    make(Path(name))
    upscaler = Upscaler(2, model="vgg_7", noise=None, backend=backend)
    ended: list[BackendError | UpscaledFile] = []

    def work() -> None:
        try:
            ended.append(
                upscaler.upscale_file(name, f"out-{name}", on_progress=lambda _: upscaler.close())
            )
        except BackendError as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    (end,) = ended
    assert Path(f"out-{name}").exists() == isinstance(end, UpscaledFile)
    for each in threading.enumerate():
        if each.name == "waifu2x-close":
            each.join(60)
            assert not each.is_alive()
    assert upscaler.engine.bytes == 0
    with pytest.raises(BackendError, match="this upscaler is closed"):
        upscaler(PIXELS)


def test_close_within_the_progress_of_an_array() -> None:
    upscaler = Upscaler(2, model="vgg_7", noise=None)
    made: list[Any] = []
    thread = threading.Thread(
        target=lambda: made.append(upscaler(PIXELS, on_progress=lambda _: upscaler.close())),
        daemon=True,
    )
    thread.start()
    thread.join(60)
    assert [each.shape for each in made] == [(18, 24, 3)]
