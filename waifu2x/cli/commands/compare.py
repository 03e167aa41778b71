"""`waifu2x compare IN OUT`, `waifu2x compare --models NAME,NAME IN`."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from waifu2x.api.settings.kinds import noise_level
from waifu2x.cli import completions
from waifu2x.cli.command import Command
from waifu2x.cli.interrupts import heard_at_once
from waifu2x.cli.options.arguments import check_folder
from waifu2x.cli.options.settings import takes_settings
from waifu2x.cli.output.progress import one_picture
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import ImageError, OutputError
from waifu2x.flows.jobs import Job, identities, may_write

# Imports of NumPy come late: completions and helps need not wait for it.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from waifu2x.flows.model_comparison import Result
    from waifu2x.imaging import comparison
    from waifu2x.imaging.picture import Colours, Picture
    from waifu2x.lowering.plan.box import Box

_OF_MODELS = ("scale", "noise", "reduce", "backend", "device", "precision")
"""Options that two pictures do not use."""


@click.command(
    "compare", cls=Command, short_help="Say and show how much pictures, or models, differ."
)
@click.argument(
    "first", metavar="IN", type=click.Path(path_type=Path), shell_complete=completions.pictures
)
@click.argument(
    "second",
    metavar="[OUT]",
    required=False,
    type=click.Path(path_type=Path),
    shell_complete=completions.pictures,
)
@takes_settings("compare")
def compare(
    first: Path,
    second: Path | None,
    target: Path | None,
    overwrite: bool,
    as_json: bool,
    models: list[str],
    **options: Any,
) -> None:
    """Say how much the pictures IN and OUT differ, or show what several models make of IN.

    \b
    waifu2x compare in.png out.png -o look.png
    waifu2x compare --models cunet,cugan/se,realesrgan/anime in.png

    Two pictures: PSNR, SSIM, the largest difference. The smaller one is enlarged to the other's
    size first, by Lanczos.

    With --models: IN is enlarged by Lanczos and by each set, and a picture is made of crops side by
    side, where the results differ most. A set that lacks the noise level is shown with the nearest
    that it has. --reduce takes IN for a large original: it is reduced first, and PSNR and SSIM of
    each result against it are given.

    Transparency is laid over white. Of an animation, the first picture counts.
    """
    if target is not None and target.suffix.lower() != ".png":
        raise click.UsageError(f"{target}: the picture is a PNG; give it a name in .png.")
    if models:
        if second is not None:
            raise click.UsageError("--models compares what is made of one picture; give IN alone.")
        target = target or Path(f"{first.stem}-models.png")
        _check_target(target, overwrite, first)
        _models(first, models, target, overwrite, as_json, options)
        return
    if second is None:
        raise click.UsageError("Give a second picture, OUT, or --models.")
    context = click.get_current_context()
    for name in _OF_MODELS:
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} needs --models.")
    if target is not None:
        _check_target(target, overwrite, first, second)
    _pictures(first, second, target, overwrite, as_json)


def _check_target(target: Path, overwrite: bool, *sources: Path) -> None:
    """Raises OutputError for a picture that cannot be written, or is an input itself."""
    check_folder(target.parent)
    jobs = [Job(source, target) for source in sources]
    if not may_write(jobs[0], "overwrite" if overwrite else "skip", identities(jobs)):
        raise OutputError(
            f"{target}: it exists already", "use --overwrite, or another name with -o"
        )


def _write(pixels: Any, target: Path, overwrite: bool, colours: Colours | None = None) -> None:
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Colours, Picture

    picture = Picture(pixels, colours=colours or Colours())
    write_picture(picture, target, "png", replace=overwrite)


def _pictures(
    first: Path, second: Path, target: Path | None, overwrite: bool, as_json: bool
) -> None:
    from waifu2x.formats.metadata.profiles import to_srgb
    from waifu2x.formats.read import first_picture
    from waifu2x.imaging import comparison, sheet

    one, other = (first_picture(path) for path in (first, second))
    if one.colours != other.colours:
        one, other = to_srgb(one), to_srgb(other)
    try:
        found = comparison.compare(one, other)
    except ImageError as error:
        raise error.of(f"{first}, {second}") from error
    figures = _said(found.psnr), f"SSIM {found.ssim:.4f}"
    boxes: list[Box] = []
    if target is not None:
        captions = (
            _caption(one, found.resized == "first"),
            _caption(other, found.resized == "second"),
        )
        names = first.name, second.name
        pixels, boxes = sheet.of_two(found, names, captions, figures)
        _write(pixels, target, overwrite, one.colours)
    height, width = found.first.shape[:2]
    resized = {"first": first, "second": second, None: None}[found.resized]
    if as_json:
        show(json.dumps(_document(found, resized, boxes)))
        return
    if resized is not None:
        tell(f"{resized}: enlarged to {width}x{height} to be compared")
    for figure in figures:
        show(figure)
    show(f"largest difference {found.largest * 255:.1f} of 255 levels")
    show(f"{found.differing:.2%} of the pixels differ")
    _tell_crops(boxes)
    if target is not None:
        show(f"picture: {target}")


def _said(psnr: float) -> str:
    return f"PSNR {psnr:.2f} dB" if math.isfinite(psnr) else "PSNR infinite: equal"


def _caption(picture: Picture, resized: bool) -> str:
    """Describes the size of a picture's file, and how it came to the size that is shown."""
    height, width = picture.pixels.shape[:2]
    return f"{width}x{height}, by Lanczos" if resized else f"{width}x{height}"


def _tell_crops(boxes: list[Box]) -> None:
    for number, box in enumerate(boxes, 1):
        show(f"crop {number}: {box.width}x{box.height} pixels at {box.left}, {box.top}")


def _document(
    found: comparison.Comparison, resized: Path | None, boxes: list[Box]
) -> dict[str, object]:
    height, width = found.first.shape[:2]
    return {
        "width": width,
        "height": height,
        "resized": None if resized is None else str(resized),
        "psnr": _finite(found.psnr),
        "ssim": found.ssim,
        "largest": found.largest,
        "differing": found.differing,
        "crops": _corners(boxes),
    }


def _corners(boxes: list[Box]) -> list[list[int]]:
    return [[box.left, box.top, box.width, box.height] for box in boxes]


def _finite(figure: float | None) -> float | None:
    """Returns a figure for JSON, which has no infinity."""
    return figure if figure is not None and math.isfinite(figure) else None


def _models(
    source: Path,
    names: list[str],
    target: Path,
    overwrite: bool,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from waifu2x.backends.engine.engine import Engine
    from waifu2x.flows import model_comparison
    from waifu2x.formats.read import first_picture
    from waifu2x.imaging import sheet

    scale = options.pop("scale") or Fraction(2)
    noise, reduce = options.pop("noise"), options.pop("reduce")
    if scale < 1 or (scale == 1 and noise == "none"):
        raise click.UsageError("Models enlarge or denoise; give a --scale above 1, or --noise.")
    if scale == 1 and reduce:
        raise click.UsageError("--reduce needs a --scale above 1.")
    picture, original = model_comparison.opaque(first_picture(source)), None
    level: int | Picture | None = None
    wanted = noise_level(noise)
    if wanted != "auto":
        level = wanted
    elif picture.jpeg and not reduce:  # a reduced picture is no JPEG
        level = picture
    if level is None and scale == 1:
        raise click.UsageError(f"{source} is no JPEG; give a --scale above 1, or --noise.")
    sets = model_comparison.contenders(names, scale, level, tell)
    names = [each.name for each in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise click.UsageError(f"--models has {twice} twice.")
    if reduce:
        try:
            picture, original = model_comparison.reduced(picture, scale)
        except ImageError as error:
            raise error.of(source) from error
    with (
        heard_at_once(),
        Engine(**options) as engine,
        one_picture(source.name) as (on_size, on_progress),
    ):
        for notice in engine.notices:
            tell(notice)
        height, width = (math.ceil(size * scale) for size in picture.pixels.shape[:2])
        on_size(len(names) * height, width)
        found = model_comparison.results(
            picture,
            sets,
            scale,
            engine,
            original=original,
            on_progress=on_progress,
            on_notice=functools.cache(tell),
        )
    boxes = model_comparison.boxes(found, sheet.SIDE, sheet.COUNT)
    columns = [sheet.whole(each.pixels, *_texts(each)) for each in found]
    if original is not None:
        columns.insert(0, sheet.whole(original.pixels, "original", ""))
    title = _title(picture, found[0].pixels, reduce, _noise_words(level))
    drawn = sheet.of_columns(title, columns, boxes, found[0].pixels)
    _write(drawn, target, overwrite, picture.colours)
    if as_json:
        show(json.dumps(_models_document(found, boxes, target)))
        return
    wide = max(len(each.name) for each in found)
    for each in found:
        cells = [f"{each.name:{wide}}", _figures(each), each.networks]
        show("  ".join(cell for cell in cells if cell).rstrip())
    _tell_crops(boxes)
    show(f"picture: {target}")


def _noise_words(noise: int | Picture | None) -> str:
    from waifu2x.formats.metadata.jpeg_quality import quality_of

    if noise is None:
        return ""
    if isinstance(noise, int):
        return f"noise {noise}"
    return f"noise by JPEG {quality_of(noise.jpeg)}" if noise.jpeg else ""


def _texts(result: Result) -> tuple[str, str]:
    """Returns a result's name and the line below it on a sheet."""
    figures = _figures(result)
    if figures and result.networks:
        return f"{result.name} ({result.networks})", figures
    return result.name, figures or result.networks


def _figures(result: Result) -> str:
    if result.psnr is None or result.ssim is None:
        return ""
    psnr = f"{result.psnr:.2f} dB" if math.isfinite(result.psnr) else "equal"
    return f"PSNR {psnr}  SSIM {result.ssim:.4f}"


def _title(picture: Picture, result: NDArray[Any], reduced: bool, noise: str) -> tuple[str, str]:
    (height, width), (rows, columns) = picture.pixels.shape[:2], result.shape[:2]
    cleaned = [noise] if noise else []
    if reduced:
        lines = f"{columns}x{rows}, reduced to {width}x{height}", ["and enlarged again", *cleaned]
    elif (rows, columns) == (height, width):
        lines = f"{width}x{height}", cleaned
    else:
        lines = f"{width}x{height} to {columns}x{rows}", cleaned
    return lines[0], ", ".join(lines[1])


def _models_document(found: Sequence[Result], boxes: list[Box], target: Path) -> dict[str, object]:
    height, width = found[0].pixels.shape[:2]
    return {
        "width": width,
        "height": height,
        "results": [
            {
                "name": each.name,
                "networks": each.networks or None,
                "psnr": _finite(each.psnr),
                "ssim": each.ssim,
            }
            for each in found
        ],
        "crops": _corners(boxes),
        "picture": str(target),
    }
