"""Every option's default and values, each taken to the end by pictures of every kind.

What an option holds by default, and each of its values, once goes through a whole batch of pictures
with and without alpha, grey, deep, with a palette, animated: into formats that have and lack each.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.helpers.contents import encode, encoded, identity_models, noise
from waifu2x.cli import cli
from waifu2x.cli.film.in_batches import FILM_OPTIONS
from waifu2x.flows import upscaling
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter
from waifu2x.formats.write import ContentSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Picture

RGB = Image.fromarray(noise(6, 9, 3))
PICTURES: dict[str, Callable[[], bytes]] = {
    "rgb.png": lambda: encoded(RGB),
    "clear.png": lambda: encoded(Image.fromarray(noise(6, 9, 4))),
    "grey.png": lambda: encoded(RGB.convert("L")),
    "clear_grey.png": lambda: encoded(Image.fromarray(noise(6, 9, 2))),
    "bits.png": lambda: encoded(RGB.convert("1")),
    "palette.png": lambda: encoded(RGB.quantize(8), transparency=3),
    "deep.png": lambda: encode(Picture(noise(6, 9, 3, dtype=np.uint16)), "png"),
    "deep_clear.png": lambda: encode(
        Picture(noise(6, 9, 1, dtype=np.uint16), noise(6, 9, seed=1, dtype=np.uint16)), "png"
    ),
    "float.tif": lambda: encode(Picture(noise(6, 9, 3).astype(np.float32) / 255), "tif"),
    "pages.tif": lambda: encoded(RGB, "TIFF", save_all=True, append_images=[RGB.convert("L")]),
    "photo.jpg": lambda: encoded(RGB, "JPEG", dpi=(300, 300), comment=b"comment"),
    "inks.jpg": lambda: encoded(RGB.convert("CMYK"), "JPEG"),
    "animated.gif": lambda: animated("GIF"),
    "moving.webp": lambda: animated("WEBP"),
}
VALUES: dict[str, tuple[str, ...]] = {
    "--scale": ("1", "2", "1.5", "4/3"),
    "--name": ("{stem}-new.{ext}", "{stem}-{width}x{height}-{noise}-{scale}-{model}.{ext}"),
    "--width": ("7", "20"),
    "--height": ("5", "20"),
    "--longer-side": ("20",),
    "--shorter-side": ("20",),
    "--min-size": ("20", "30x10"),
    "--only-smaller-than": ("100",),
    "--quality": ("1", "100"),
    "--background": ("black", "#102030", "rgb(1, 2, 3)"),
    "--strength": ("0", "0.5"),
    "--tile": ("auto", "16"),
    "--max-pixels": ("100000",),
    "--jobs": ("auto", "1:1:1", "1:2:1"),
    "--shard": ("1/1",),
}
"""Values of options that have no list of their own; several of what a rule allows."""
NEEDS = {"--fit": ("--width", "20", "--height", "30"), "--overwrite": (), "--skip-existing": ()}
"""Other options that an option needs."""
ELSEWHERE = {
    "--input", "--output", "--format", "--model", "--backend", "--device", "--precision",
    "--best-for", "--config", "--cluster", "--retry-failed", "--watch", "--report", "--help",
    "--fail-fast", "--recursive", "--mask",
}  # fmt: skip
"""Options of what other tests take to the end: devices, files, folders."""
FEW = ("png", "jpg")
"""Formats with and without alpha, depth, animation."""
OTHERS = tuple(
    form.extensions[0] for form in table.FORMATS if form.writable and form.extensions[0] not in FEW
)


def animated(form: str) -> bytes:
    clear = RGB.convert("RGBA")
    clear.putalpha(Image.fromarray(noise(6, 9) // 128 * 255))
    frames = [RGB.rotate(180).convert("RGBA"), clear]
    return encoded(clear, form, save_all=True, append_images=frames, duration=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("every")
    (made / "in").mkdir()
    for name, make in PICTURES.items():
        (made / "in" / name).write_bytes(make())
    models = identity_models(made / "models")
    for level in (1, 2, 3):
        shutil.copy(models / "noise0_model.json", models / f"noise{level}_model.json")
    return made


def options() -> list[click.Option]:
    """Returns the options of `batch` but for those of films, which `video` has as well."""
    command = cli.get_command(click.Context(cli), "batch")
    assert command is not None
    found = [option for option in command.params if isinstance(option, click.Option)]
    return [option for option in found if option.name not in FILM_OPTIONS]


def values() -> list[tuple[str, ...]]:
    """Words of a command line, for each value of each option."""
    found: list[tuple[str, ...]] = [()]
    for option in options():
        name = option.opts[-1]
        if name in ELSEWHERE:
            continue
        needed = NEEDS.get(name, ())
        if option.is_flag:
            found.append((name, *needed))
        elif isinstance(option.type, click.Choice):
            found += [(name, value, *needed) for value in option.type.choices]
        else:
            found += [(name, value, *needed) for value in VALUES[name]]
    return found


def batch(folder: Path, target: Path, form: str, *words: str) -> Result:
    models = str(folder / "models")
    arguments = ["batch", str(folder / "in"), str(target), "-f", form, "-m", models, *words]
    return CliRunner().invoke(cli, arguments)


def is_refused(form: str, words: tuple[str, ...]) -> bool:
    """Whether the option is not for the format: that is said before the work."""
    row = table.of(form)
    match words:
        case ("--quality", _):
            return not row.quality
        case ("--compression", value):
            return value != "default" and not row.compression
        case ("--depth", value):
            return value != "auto" and int(value) not in row.depths
    return False


def check(folder: Path, target: Path, form: str, words: tuple[str, ...]) -> None:
    result = batch(folder, target, form, *words)
    assert "Traceback" not in result.output
    assert "fault of waifu2x" not in result.output
    if is_refused(form, words):
        assert result.exit_code == 2, result.output
        assert not target.exists()
        return
    assert result.exit_code == 0, result.output
    made = sorted(path for path in target.rglob("*") if path.is_file())
    assert len(made) == len(PICTURES)
    if form in FEW:
        for path in made:
            with Image.open(path) as image:
                image.load()
                assert min(image.size) >= 5


def check_other(folder: Path, target: Path, form: str, words: tuple[str, ...]) -> None:
    row = table.of(form)
    if row.plugin is not None:
        pytest.importorskip(row.plugin[0])
    check(folder, target, form, words)


@pytest.mark.parametrize("words", values(), ids=" ".join)
def test_values(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    for form in FEW:
        check(folder, tmp_path / form, form, words)


@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("words", [(), ("--quality", "1"), ("--quality", "100")], ids=" ".join)
def test_defaults_and_limits_in_other_formats(
    words: tuple[str, ...], form: str, folder: Path, tmp_path: Path
) -> None:
    check_other(folder, tmp_path / form, form, words)


@pytest.mark.matrix
@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("words", values(), ids=" ".join)
def test_values_in_other_formats(
    words: tuple[str, ...], form: str, folder: Path, tmp_path: Path
) -> None:
    check_other(folder, tmp_path / form, form, words)


STAGES: dict[str, tuple[Any, str]] = {
    "decode": (upscaling, "open_content"),
    "prepare": (Adapter, "picture"),
    "enlarge": (Enlarger, "picture"),
    "encode": (ContentSink, "add"),
    "date": (upscaling, "copy_times"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_in_one_picture_is_a_failure_of_that_picture(
    stage: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised, and wherever: the others are made, and the summary is told."""
    owner, name = STAGES[stage]
    sound, calls = getattr(owner, name), list[str]()

    def faulty(*arguments: Any, **more: Any) -> Any:
        calls.append(stage)
        if len(calls) == 3:
            raise KeyError("a fault")
        return sound(*arguments, **more)

    monkeypatch.setattr(owner, name, faulty)
    result = batch(folder, tmp_path / "out", "png", "--jobs", "1:1:1")
    assert result.exit_code == 1
    assert result.stderr.count("KeyError: 'a fault': this is a fault of waifu2x") == 1
    assert re.search(rf"^{len(PICTURES) - 1} done.*, 1 failed;", result.output, re.MULTILINE)
    assert len(list((tmp_path / "out").iterdir())) >= len(PICTURES) - 1


def test_each_option_is_taken() -> None:
    """A new option has values here, a list of its own, or a test elsewhere."""
    names = {option.opts[-1] for option in options()}
    assert names - {"--help"} >= ELSEWHERE - {"--help", "--input", "--output"}
    upscale: Any = cli.get_command(click.Context(cli), "upscale")
    assert {option.opts[-1] for option in upscale.params if isinstance(option, click.Option)} <= (
        names | ELSEWHERE
    )
