"""`waifu2x compare IN OUT`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from waifu2x import comparison
from waifu2x.cli.report import tell
from waifu2x.errors import ImageError
from waifu2x.pictures.formats import Quality
from waifu2x.pictures.picture import Frames, Picture
from waifu2x.pictures.read import read
from waifu2x.pictures.write import write
from waifu2x.tiling import Box


@click.command("compare", short_help="Say and show how much two pictures differ.")
@click.argument("first", metavar="IN", type=click.Path(path_type=Path))
@click.argument("second", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--picture",
    "sheet",
    type=click.Path(path_type=Path),
    metavar="PNG",
    help="Write this PNG: IN, OUT and how they differ, side by side, with crops four times as large"
    " where they differ most.",
)
@click.option("--overwrite", is_flag=True, help="Replace that PNG if it exists.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def compare(first: Path, second: Path, sheet: Path | None, overwrite: bool, as_json: bool) -> None:
    """Say how much the pictures IN and OUT differ: PSNR, SSIM, the largest difference.

    The smaller one is enlarged to the other's size first, by Lanczos. Transparency is laid over
    white. Of an animation, the first picture counts.
    """
    if sheet is not None and sheet.suffix.lower() != ".png":
        raise click.UsageError(f"{sheet}: the picture is a PNG: give it a name in .png.")
    one, other = (read(path).pictures[0] for path in (first, second))
    try:
        found = comparison.compare(one, other)
    except ImageError as error:
        raise ImageError(f"{first}, {second}: {error}") from error
    boxes: list[Box] = []
    if sheet is not None:
        pixels, boxes = comparison.side_by_side(found)
        write(Frames((Picture(pixels),)), sheet, "png", Quality(), replace=overwrite)
    height, width = found.first.shape[:2]
    resized = {"first": first, "second": second, None: None}[found.resized]
    if as_json:
        click.echo(json.dumps(_document(found, resized, boxes)))
        return
    if resized is not None:
        tell(f"{resized}: enlarged to {width}x{height} to be compared")
    click.echo(f"PSNR {found.psnr:.2f} dB" if math.isfinite(found.psnr) else "PSNR infinite: equal")
    click.echo(f"SSIM {found.ssim:.4f}")
    click.echo(f"largest difference {found.largest * 255:.1f} of 255 levels")
    click.echo(f"{found.differing:.2%} of the pixels differ")
    for number, box in enumerate(boxes, 1):
        click.echo(f"crop {number}: {box.width}x{box.height} pixels at {box.left}, {box.top}")


def _document(
    found: comparison.Comparison, resized: Path | None, boxes: list[Box]
) -> dict[str, object]:
    height, width = found.first.shape[:2]
    return {
        "width": width,
        "height": height,
        "resized": None if resized is None else str(resized),
        "psnr": found.psnr if math.isfinite(found.psnr) else None,
        "ssim": found.ssim,
        "largest": found.largest,
        "differing": found.differing,
        "crops": [[box.left, box.top, box.width, box.height] for box in boxes],
    }
