"""Reads weights of waifu2x-chainer: .npz files, zip files of arrays named after the layers."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers.architectures import Layer, build
from waifu2x.networks.readers.limits import (
    DAMAGED_ZIP,
    ModelBudget,
    open_archive,
    read_file,
    read_member,
)
from waifu2x.networks.readers.waifu2x_json import NetworkWeights

_HEADER = re.compile(
    rb"\x93NUMPY(?:\x01\x00..|\x02\x00....)\{'descr': '(?P<dtype>[<>|=]?(?:f[248]|[iu][1248]))',"
    rb" 'fortran_order': (?P<fortran>True|False),"
    rb" 'shape': \((?P<shape>(?:\d{1,9}L?(?:, ?|(?=\)))){0,8})\),? ?\}[ ]*\n",
    re.DOTALL,
)
"""The header of a .npy file of numbers, as NumPy writes it: versions 1 and 2."""


def read_model(path: Path) -> Model:
    """Returns the network in an .npz file. Raises ModelError."""
    return parse(read_file(path), str(path))[1]


def parse(raw: bytes, name: str) -> tuple[NetworkWeights, Model]:
    """Returns the checked content of an .npz file, and its network.

    `name` stands for the file in messages. Raises ModelError if it is damaged or of an
    architecture other than VGG7 and UpConv7.
    """
    stored = _arrays(raw, name)
    if "conv_pre/W" in stored:
        found = "upresnet10" if any("/fc1/" in each for each in stored) else "resnet10"
        raise ModelError(f"{name}: {found} is not supported: only vgg7 and upconv7 are")
    count = len({key.partition("/")[0] for key in stored})
    last = stored.get(f"conv{count}/W")
    doubles = last is not None and last.shape[2:] == (4, 4)
    if doubles and last is not None and last.ndim == 4:  # that layer has no bias
        stored.setdefault(f"conv{count}/b", np.zeros(last.shape[1], np.float32))
    names = {f"conv{number}/{part}" for number in range(1, count + 1) for part in "Wb"}
    if not stored or set(stored) != names:
        raise ModelError(f"{name}: not a stack of convolutions: only vgg7 and upconv7 can be read")
    layers = []
    for number in range(1, count + 1):
        weight, bias = stored[f"conv{number}/W"], stored[f"conv{number}/b"]
        if weight.ndim != 4 or bias.ndim != 1:
            raise ModelError(f"{name}: conv{number} is not a convolution")
        if doubles and number == count:  # in Chainer, as in Torch, (in_planes, out_planes, kH, kW)
            weight = np.ascontiguousarray(weight.swapaxes(0, 1))
            layers.append(Layer("transposed", weight, bias))
        else:
            layers.append(Layer("convolution", weight, bias))
    weights = NetworkWeights("upconv_7" if doubles else f"vgg_{count}", layers)
    return weights, build(name, *weights)


def _arrays(raw: bytes, name: str) -> dict[str, NDArray[np.float32]]:
    """Returns the arrays of an .npz file; numpy.load would allocate whatever a header asks for."""
    arrays: dict[str, NDArray[np.float32]] = {}
    budget = ModelBudget(name)
    try:
        with open_archive(io.BytesIO(raw), budget) as archive:
            for member in archive.namelist():
                key = member.removesuffix(".npy")
                where = f"{name}: {key[:60]}"
                arrays[key] = _array(read_member(archive, member, where), where, budget)
    except (OSError, *DAMAGED_ZIP) as error:
        why = str(error)[:80] or "cut off"
        raise ModelError(f"{name}: not a readable .npz file: {why}") from error
    return arrays


def _array(content: bytes, where: str, budget: ModelBudget) -> NDArray[np.float32]:
    """Returns the array of a .npy file. Raises ValueError if it is damaged."""
    header = _HEADER.match(content)
    if header is None:
        raise ValueError("no header of an array of numbers")
    dtype = np.dtype(header["dtype"].decode())
    shape = [int(each) for each in re.findall(rb"\d+", header["shape"])]
    if math.prod(shape) * dtype.itemsize != len(content) - header.end():
        raise ValueError(f"{dtype} numbers of shape {tuple(shape)} in {len(content)} bytes")
    budget.take_bytes(max(len(content), math.prod(shape) * 4))
    flat = np.frombuffer(content, dtype, offset=header.end())
    values = flat.reshape(shape, order="F" if header["fortran"] == b"True" else "C")
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, order="C")
    if not np.isfinite(narrow).all():
        raise ModelError(f"{where}: it holds a value that is not a finite float32")
    return narrow
