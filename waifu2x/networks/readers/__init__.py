"""Reads files of models, each format in its own module: a path in, a Model out."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.errors import ModelError

if TYPE_CHECKING:
    from waifu2x.networks.model import Model

# Imported when needed: all together take as long as a small picture.
_MODULES = {
    ".json": "waifu2x_json",
    ".json.gz": "waifu2x_json",
    ".param": "ncnn.reader",
    ".npz": "chainer",
}
NAMED_SUFFIXES = (".pth", ".pt", ".ckpt", ".safetensors", ".onnx")
"""Suffixes of files that hold a whole network, and tensors of any size: weights by name, and ONNX.
"""
SUFFIXES = (*_MODULES, *NAMED_SUFFIXES)


def parse_named(content: bytes, name: str) -> Model:
    """Returns the network in the bytes of a file of weights by name or of ONNX.

    `name` stands for the file in messages. Weights are those of PyTorch or safetensors, whichever
    the bytes are.
    """
    import numpy as np

    # The graph refuses weights that become infinite: no warning need say so before.
    with np.errstate(over="ignore", invalid="ignore"):
        if name.lower().endswith(".onnx"):
            from waifu2x.networks.readers.onnx.reader import parse as parse_onnx

            return parse_onnx(content, name)
        from waifu2x.networks.readers import checkpoints, safetensors
        from waifu2x.networks.readers.pytorch import files

        claims = name.lower().endswith(".safetensors") and not content.startswith(b"PK")
        parse = safetensors.parse if claims or content[8:9] == b"{" else files.parse
        return checkpoints.build(parse(content, name), name)


def content_files(path: Path) -> tuple[Path, ...]:
    """Returns the files that `read_model` reads for a path: of ncnn, the .bin file too."""
    return (path, path.with_suffix(".bin")) if path.name.lower().endswith(".param") else (path,)


def read_model(path: Path) -> Model:
    """Returns the network in a file of waifu2x JSON, ncnn (.param, with its .bin beside it),
    Chainer, PyTorch (.pth, .pt, .ckpt), safetensors or ONNX.

    Raises ModelError, one sentence with the file, if it cannot be read, is damaged or holds what a
    Model cannot express.
    """
    from waifu2x.networks.digests import file_states, note_files  # with NumPy

    states = file_states(content_files(path))
    model = _read(path)
    note_files(model, states)
    return model


def _read(path: Path) -> Model:
    name = path.name.lower()
    if name.endswith(NAMED_SUFFIXES):
        from waifu2x.networks.readers.limits import MAX_TENSOR_BYTES, read_file

        return parse_named(read_file(path, MAX_TENSOR_BYTES), str(path))
    for suffix, module in _MODULES.items():
        if name.endswith(suffix):
            model: Model = import_module(f"waifu2x.networks.readers.{module}").read_model(path)
            return model
    raise ModelError(f"{path}: not a model file: expected {', '.join(SUFFIXES)}")
