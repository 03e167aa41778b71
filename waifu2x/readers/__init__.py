"""Files of models, each format in its own module: a path in, a Model out."""

from __future__ import annotations

from pathlib import Path

from waifu2x.errors import ModelError
from waifu2x.model import Model
from waifu2x.readers import chainer, ncnn, recognised, safetensors, torch_files, waifu2x_json
from waifu2x.readers.limits import read_file
from waifu2x.readers.tensors import MAX_TENSOR_BYTES


def parse_named(content: bytes, name: str) -> Model:
    """The network in the bytes of a .pth or .safetensors file; `name` stands for it in messages."""
    parse = safetensors.parse if name.lower().endswith(".safetensors") else torch_files.parse
    return recognised.build(parse(content, name), name)


def _read_named(path: Path) -> Model:
    return parse_named(read_file(path, MAX_TENSOR_BYTES), str(path))


_READERS = {
    ".json": waifu2x_json.read_model,
    ".json.gz": waifu2x_json.read_model,
    ".param": ncnn.read_model,
    ".npz": chainer.read_model,
    ".pth": _read_named,
    ".safetensors": _read_named,
}
SUFFIXES = tuple(_READERS)
NAMED_SUFFIXES = (".pth", ".safetensors")
"""Of files of weights by name."""


def read_model(path: Path) -> Model:
    """The network in a file of waifu2x JSON, ncnn (.param, with its .bin beside it), Chainer,
    PyTorch (.pth) or safetensors.

    Raises ModelError, one sentence with the file, if it cannot be read, is damaged or holds what a
    Model cannot express.
    """
    for suffix, read in _READERS.items():
        if path.name.lower().endswith(suffix):
            return read(path)
    raise ModelError(f"{path}: not a model file: expected {', '.join(SUFFIXES)}")
