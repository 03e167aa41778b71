"""Compares model sets on a picture: figures, crops, the sheet, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.helpers.contents import identity_models
from waifu2x.backends.engine import engine, pool
from waifu2x.cli import cli
from waifu2x.errors import ImageError
from waifu2x.flows import model_comparison
from waifu2x.flows.model_comparison import Result as Upscaled
from waifu2x.flows.model_comparison import boxes, opaque, reduced
from waifu2x.imaging.comparison import worst_boxes
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.sheet import of_columns, whole
from waifu2x.lowering.plan.box import Box
from waifu2x.networks import catalogue
from waifu2x.networks.readers import waifu2x_json
from waifu2x.networks.readers.architectures import Layer
from waifu2x.networks.readers.waifu2x_json import NetworkWeights, dump

CELL = 256
"""Pixels across a crop of a sheet; 4 between two, 8 around."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Model sets `same`, which repeats pixels, and `less`, which takes half of red from them; a
    picture a.png of 75 x 91 that is red around (50, 70), in x and y."""
    monkeypatch.chdir(tmp_path)
    identity_models(tmp_path / "same")
    kernel = np.zeros((3, 3, 3, 3), np.float32)
    kernel[range(3), range(3), 1, 1] = 0.5, 1, 1
    layer = Layer("convolution", kernel, np.zeros(3, np.float32))
    (tmp_path / "less").mkdir()
    weights = dump(NetworkWeights("vgg_1", [layer]))
    (tmp_path / "less" / "scale2.0x_model.json").write_bytes(weights)
    pixels = np.random.default_rng(0).integers(0, 200, (91, 75, 3), np.uint8)
    pixels[..., 0] = 0
    pixels[65:75, 45:55, 0] = 250
    Image.fromarray(pixels).save("a.png")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def run_models(*arguments: str) -> Result:
    """On the backend that has nothing to compile."""
    return run("--backend", "numpy", "--models", *arguments)


def sheet_of(path: str) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image)


def cell(found: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    """A crop of a sheet, counted from its lower right corner."""
    bottom, right = (
        size - 8 - place * (CELL + 4)
        for size, place in zip(found.shape, (row, column), strict=False)
    )
    return found[bottom - CELL : bottom, right - CELL : right]


def lanczos(pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """By Pillow, plane by plane in float."""
    planes = [
        np.asarray(
            Image.fromarray(plane.astype(np.float32)).resize(
                (width, height), Image.Resampling.LANCZOS
            )
        )
        for plane in np.moveaxis(pixels, -1, 0)
    ]
    levels: NDArray[np.float32] = np.rint(np.stack(planes, axis=-1).clip(0, 255))
    return levels.astype(np.uint8)


@pytest.mark.usefixtures("folder")
def test_crops_are_side_by_side_where_sets_differ() -> None:
    result = run_models("./same,./less", "a.png")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [["Lanczos"], ["./same", "2x"], ["./less", "2x"]]
    # Red is all that they differ in.
    assert lines[3].startswith("crop 1: 64x64 pixels at ")
    assert lines[-1] == "picture: a-models.png"
    left, top = map(int, lines[3].partition(" at ")[2].split(", "))
    assert left <= 90 < 110 <= left + 64
    assert top <= 130 < 150 <= top + 64
    found, source = sheet_of("a-models.png"), sheet_of("a.png")
    rows = len(lines) - 4
    large = source.repeat(2, 0).repeat(2, 1)
    crop = large[top : top + 64, left : left + 64].repeat(4, 0).repeat(4, 1)
    np.testing.assert_array_equal(cell(found, rows - 1, 1), crop)
    less = np.rint(crop * [0.5, 1, 1])
    np.testing.assert_allclose(cell(found, rows - 1, 0).astype(int), less, atol=1)
    plain = lanczos(source, 150, 182)[top : top + 64, left : left + 64].repeat(4, 0).repeat(4, 1)
    np.testing.assert_allclose(cell(found, rows - 1, 2).astype(int), plain, atol=1)


@pytest.mark.usefixtures("folder")
def test_all_sets_run_on_one_device_and_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, read = list[str](), list[Path]()
    real_open, real_read = pool.open_devices, waifu2x_json.read_model

    def open_devices(name: str, *rest: Any) -> Any:
        opened.append(name)
        return real_open(name, *rest)

    def read_model(path: Path) -> Any:
        read.append(path)
        return real_read(path)

    monkeypatch.setattr(engine, "open_devices", open_devices)
    monkeypatch.setattr(waifu2x_json, "read_model", read_model)
    assert run_models("./less,./same", "a.png").exit_code == 0
    assert opened == ["numpy"]
    assert [path.parent.name for path in read] == ["less", "same"]


@pytest.mark.usefixtures("folder")
def test_figures_are_against_the_original() -> None:
    result = run_models("./same", "--reduce", "--json", "-o", "b.png", "a.png")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    source = sheet_of("a.png")[:90, :74].astype(float)
    small = lanczos(source.astype(np.uint8), 37, 45)
    made = {"Lanczos": lanczos(small, 74, 90), "./same": small.repeat(2, 0).repeat(2, 1)}
    assert (document["width"], document["height"], document["picture"]) == (74, 90, "b.png")
    assert [row["name"] for row in document["results"]] == list(made)
    for row, pixels in zip(document["results"], made.values(), strict=True):
        psnr = 10 * np.log10(255**2 / ((source - pixels) ** 2).mean())
        assert row["psnr"] == pytest.approx(psnr, abs=0.02)
        assert 0 < row["ssim"] < 1
    # The original stands first.
    (left, top, *_), *others = document["crops"]
    crop = source[top : top + 64, left : left + 64].repeat(4, 0).repeat(4, 1)
    np.testing.assert_array_equal(cell(sheet_of("b.png"), len(others), 2), crop)
    text = run_models("./same", "--reduce", "-o", "c.png", "a.png").stdout.splitlines()
    assert f"PSNR {document['results'][1]['psnr']:.2f} dB" in text[1]


@pytest.mark.parametrize(
    ("scale", "small", "cut"),
    [
        (Fraction(2), (50, 33), (100, 66)),
        (Fraction(3), (33, 22), (99, 66)),
        (Fraction(3, 2), (67, 44), (101, 66)),
        (Fraction(7, 3), (43, 28), (100, 65)),
    ],
)
def test_what_is_reduced_is_the_size_of_what_is_made_of_it(
    scale: Fraction, small: tuple[int, int], cut: tuple[int, int]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (101, 67, 3), np.uint8)
    less, original = reduced(Picture(pixels), scale)
    assert less.pixels.shape[:2] == small
    np.testing.assert_array_equal(original.pixels, pixels[: cut[0], : cut[1]])
    expected = lanczos(original.pixels, small[1], small[0])
    np.testing.assert_allclose(less.pixels.astype(int), expected, atol=1)


def test_a_picture_too_small_to_be_reduced() -> None:
    with pytest.raises(ImageError, match=r"^a picture of 9x2 cannot be reduced 2\.5 times$"):
        reduced(Picture(np.zeros((2, 9, 3), np.uint8)), Fraction(5, 2))


def test_transparency_is_laid_over_white() -> None:
    pixels = np.full((3, 4, 1), 100, np.uint16)
    alpha = np.full((3, 4), 65535, np.uint16)
    alpha[1] = 0
    found = opaque(Picture(pixels, alpha))
    assert found.alpha is None
    assert found.pixels[..., 0].tolist() == [[100] * 4, [65535] * 4, [100] * 4]


@pytest.mark.usefixtures("folder")
def test_grey_stays_grey_and_colours_keep_their_meaning() -> None:
    with Image.open("a.png") as image:
        image.convert("L").save("grey.png")
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        image.save("profile.png", icc_profile=profile)
    for name in ("grey", "profile"):
        result = run_models("./same", f"{name}.png")
        assert result.exit_code == 0, result.output
    with Image.open("grey-models.png") as image:
        assert image.mode == "L"
    with Image.open("profile-models.png") as image:
        assert image.info["icc_profile"] == profile


@pytest.mark.usefixtures("folder")
def test_only_denoised() -> None:
    result = run_models("./same", "-s", "1", "-n", "0", "a.png")
    assert result.exit_code == 0, result.output
    # Nothing differs: no crops, a picture all the same.
    assert result.stdout.splitlines() == [
        "input",
        "./same  noise 0",
        "picture: a-models.png",
    ]
    assert sheet_of("a-models.png").shape[-1] == 3


@pytest.mark.usefixtures("folder")
def test_a_set_that_lacks_the_level_is_shown_with_what_it_can_do() -> None:
    """`same` has noise level 0, `less` none at all."""
    result = run_models("./same,./less", "-n", "2", "--json", "a.png")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "./same: no model for noise level 2: shown with level 0",
        "./less: no model for noise level 2: shown without",
    ]
    rows = json.loads(result.stdout)["results"]
    assert [(row["name"], row["networks"]) for row in rows] == [
        ("Lanczos", None),
        ("./same", "2x, noise 0"),
        ("./less", "2x"),
    ]


@pytest.mark.usefixtures("folder")
def test_a_set_that_can_do_nothing_of_it_is_left_out() -> None:
    result = run_models("./same,./less", "-s", "1", "-n", "0", "a.png")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["./less: cannot remove noise: left out"]
    assert [line.split()[0] for line in result.stdout.splitlines()[:2]] == ["input", "./same"]


@pytest.mark.usefixtures("folder")
def test_large_results_lie_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_models("./same,./less", "-o", "b.png", "a.png").exit_code == 0
    monkeypatch.setattr(model_comparison, "_LARGE", 1)
    kept, memmap = list[Any](), np.memmap

    def counted(*arguments: Any, **options: Any) -> Any:
        kept.append(memmap(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(np, "memmap", counted)
    assert run_models("./same,./less", "-o", "c.png", "a.png").exit_code == 0
    assert len(kept) == 3
    np.testing.assert_array_equal(sheet_of("b.png"), sheet_of("c.png"))


def test_differences_are_the_largest_of_any_two() -> None:
    same = np.full((40, 60, 3), 7, np.uint8)
    assert worst_boxes([same, same, same], 10, 4) == []
    one, other = same.copy(), same.copy()
    one[5, 5] = 27
    other[35, 55] = 47
    first, second = worst_boxes([same, one, other], 10, 2)
    assert (first.top <= 35 < first.bottom, first.left <= 55 < first.right) == (True, True)
    assert (second.top <= 5 < second.bottom, second.left <= 5 < second.right) == (True, True)


def test_only_sets_decide_where_crops_are() -> None:
    plain, one, other = (np.zeros((64, 64, 3), np.uint8) for _ in range(3))
    plain[:20] = 255
    other[50, 50] = 9
    made = [Upscaled("", "", pixels) for pixels in (plain, one, other)]
    (box,) = boxes(made, 16, 4)
    assert box.top <= 50 < box.bottom
    assert boxes(made[:2], 16, 1)[0].top < 20


@pytest.mark.parametrize("planes", [1, 3])
def test_long_names_keep_to_their_column(planes: int) -> None:
    pixels = np.zeros((64, 80, planes), np.uint8)
    names = ["/very/long" * 20 + "/name.pth", "b"]
    columns = [whole(pixels, name, name) for name in names]
    found = of_columns(["1x1 to 2x2 " * 20, ""], columns, [Box(0, 0, 64, 64)], pixels)
    assert found.shape[-1] == planes
    head = found[: -CELL - 8]
    assert (head[:, -8 - CELL - 4 : -8 - CELL] == 255).all()
    written = head[:, -8 - 2 * CELL - 4 : -8 - CELL - 4]
    assert (written < 128).any()
    assert (found[:, :8] == 255).all()
    assert (head[:, 8 + CELL : -8 - 2 * CELL - 4] == 255).all()


@pytest.mark.usefixtures("folder")
def test_what_models_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.Package, "models", lambda package: None)
    Image.new("RGB", (1, 9)).save("thin.png")
    Path("there.png").write_bytes(b"precious")
    both = ["--models", "./same,./less"]
    for arguments, code, message in [
        (["--models", "./same,nothing", "a.png"], 1, "Error: nothing: no such model and no such"),
        (
            ["--models", "./same,cugan", "a.png"],
            1,
            "Error: cugan: not installed; run `pip install 'waifu2x-kernels[cugan]'`",
        ),
        (["--models", "./less", "-s", "1", "-n", "0", "a.png"], 1, "Error: ./less: cannot remove"),
        (["--models", "./same,./same", "a.png"], 2, "--models has ./same twice."),
        (["--models", "./same,,", "a.png"], 2, "expected names like cunet,cugan/se."),
        (["--models", "", "a.png"], 2, "expected names like cunet,cugan/se."),
        ([*both, "a.png", "b.png"], 2, "give IN alone."),
        ([*both, "-s", "1", "a.png"], 2, "give a --scale above 1, or --noise."),
        ([*both, "-s", "0.5", "-n", "0", "a.png"], 2, "give a --scale above 1, or --noise."),
        (["--models", "./same", "-s", "1", "-n", "0", "--reduce", "a.png"], 2, "--reduce needs a"),
        ([*both, "-o", "b.jpg", "a.png"], 2, "b.jpg: the picture is a PNG"),
        ([*both, "-o", "there.png", "a.png"], 1, "there.png: it exists already; use --overwrite"),
        ([*both, "-o", "a.png", "--overwrite", "a.png"], 1, "a.png: it is an input itself"),
        ([*both, "-o", "no/b.png", "a.png"], 1, "no: no such folder"),
        ([*both, "--reduce", "thin.png"], 1, "thin.png: a picture of 1x9 cannot be reduced 2"),
        ([*both, "none.png"], 1, "none.png: cannot read: no such file"),
        (["a.png"], 2, "Give a second picture, OUT, or --models."),
        (["a.png", "a.png", "--reduce"], 2, "--reduce needs --models."),
        (["a.png", "a.png", "-s", "2"], 2, "--scale needs --models."),
        (["there.png", "a.png", "-o", "a.png", "--overwrite"], 1, "a.png: it is an input itself"),
    ]:
        result = run(*arguments)
        assert result.exit_code == code, (arguments, result.output)
        last = result.stderr.splitlines()[-1]
        assert last.startswith("Error: "), arguments
        assert message in last, (arguments, last)
        assert code == 2 or len(result.stderr.splitlines()) == 1
    assert not list(Path().glob("*-models.png"))
    assert Path("there.png").read_bytes() == b"precious"
