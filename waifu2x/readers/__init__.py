"""Files of models, each format in its own module: a path in, a Model out."""

from __future__ import annotations

from pathlib import Path

from waifu2x.errors import ModelError
from waifu2x.model import Model
from waifu2x.readers import chainer, ncnn, waifu2x_json

_READERS = {
    ".json": waifu2x_json.read_model,
    ".json.gz": waifu2x_json.read_model,
    ".param": ncnn.read_model,
    ".npz": chainer.read_model,
}
SUFFIXES = tuple(_READERS)


def read_model(path: Path) -> Model:
    """The network in a file of waifu2x JSON, ncnn (.param, with its .bin beside it) or Chainer.

    Raises ModelError, one sentence with the file, if it cannot be read, is damaged or holds what a
    Model cannot express.
    """
    for suffix, read in _READERS.items():
        if path.name.lower().endswith(suffix):
            return read(path)
    raise ModelError(f"{path}: not a model file: expected {', '.join(SUFFIXES)}")
