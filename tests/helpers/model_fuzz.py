"""Damaged model files, at random but always the same: run as a program with bounded memory.

`python -m tests.helpers.model_fuzz CASES SEED` reads CASES of each kind of file, each changed in
one to three places, also inside archives whose checksums are then right again. Each must be a Model
or a ModelError, within some seconds. Prints how many were refused.
"""

from __future__ import annotations

import io
import json
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.helpers import onnx_files, weight_files
from tests.helpers.weight_files import Pickle
from waifu2x.errors import ModelError
from waifu2x.networks.model import Model
from waifu2x.networks.readers import chainer, parse_named, waifu2x_json
from waifu2x.networks.readers.ncnn import reader as ncnn

MOST_MEMORY = 900 << 20
"""Bytes of address space beyond what the program has when it begins."""
MOST_SECONDS = 20

PARAM = b"""7767517
6 7
Input data 0 1 data 2=3
Convolution a 1 1 data a 0=4 1=3 4=1 5=1 6=108 9=2 -23310=1,0.1
Split s 1 2 a a0 a1
BinaryOp n 1 1 a0 b 0=2 1=1 2=0.5
Eltwise e 2 1 b a1 c 0=1
Deconvolution d 1 1 c out 0=3 1=4 3=2 4=1 5=1 6=192
"""
BIN = bytes(4 + 108 * 4 + 16 + 4 + 192 * 4 + 12)
"""Its weights."""


def changed(content: bytes, rng: Random) -> bytes:
    """Bits turned, parts cut, repeated or moved, counts made large."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(7):
            case 0 | 1:
                if data:
                    data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + rng.randint(1, 16)]
            case 4:
                data[at:at] = data[at : at + rng.randint(1, 64)] * rng.choice([1, 1, 50])
            case 5:
                size = rng.choice([1, 2, 4, 8])
                large = rng.choice([0xFF, 0x7F, 1]) << 8 * (size - 1)
                data[at : at + size] = large.to_bytes(size, "little")
            case 6:
                digits = [n for n, byte in enumerate(data) if 48 <= byte <= 57]
                if digits:
                    place = rng.choice(digits)
                    data[place : place + 1] = rng.choice([b"-1", b"0", b"99999", b"1e9", b"64"])
    return bytes(data)


def members_changed(content: bytes, rng: Random) -> bytes:
    """A zip file with one of its members changed, its checksums right."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(packed, "w") as target:
        names = source.namelist()
        which = rng.choice([*names, *[each for each in names if each.endswith(".pkl")] * 5])
        for name in names:
            raw = source.read(name)
            target.writestr(name, changed(raw, rng) if name == which else raw)
    return packed.getvalue()


def npz_file() -> bytes:
    rng = np.random.default_rng(1)
    arrays = {}
    for number, (made, read) in enumerate([(4, 3), (3, 4)], 1):
        arrays[f"conv{number}/W"] = rng.normal(size=(made, read, 3, 3)).astype(np.float32)
        arrays[f"conv{number}/b"] = np.zeros(made, np.float32)
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def json_file() -> bytes:
    return waifu2x_json.dump(chainer.parse(npz_file(), "m")[0])


def onnx_file() -> bytes:
    """A picture padded to a multiple and unshuffled, by operators on sizes, and a shuffle."""
    rng = np.random.default_rng(2)
    weights: dict[str, Any] = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": np.zeros(4, np.float16),
        "last": rng.normal(size=(12, 4, 1, 1)).astype(np.float32),
        "slope": np.full((4, 1, 1), 0.1, np.float32),
        "axis": np.array(2),
        "two": np.array([2]),
        "zero": np.array([0]),
        "zeros": np.zeros(7, np.int64),
        "half": np.array(0.5, np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    node = onnx_files.node
    nodes = [
        node("Shape", ["input"], ["shape"]),
        node("Gather", ["shape", "axis"], ["rows"], axis=0),
        node("Unsqueeze", ["rows", "zero"], ["row"]),
        node("Mod", ["row", "two"], ["more"]),
        node("Concat", ["zeros", "more"], ["pads"], axis=0),
        node("Cast", ["b"], ["bias"], to=1),
        node("Conv", ["input", "w", "bias"], ["a"], pads=[1, 1, 1, 1]),
        node("PRelu", ["a", "slope"], ["c"]),
        node("Sigmoid", ["c"], ["d"]),
        node("Sub", ["d", "half"], ["e"]),
        node("Mul", ["c", "e"], ["f"]),
        node("Split", ["f"], ["g", "h"], axis=1, num_outputs=2),
        node("Concat", ["h", "g"], ["i"], axis=1),
        node("Conv", ["i", "last"], ["j"]),
        node("DepthToSpace", ["j"], ["k"], blocksize=2, mode="CRD"),
        node("Resize", ["input", "", "scales"], ["base"], mode="nearest"),
        node("Add", ["k", "base"], ["output"]),
    ]
    return onnx_files.model(nodes, weights)


def _param(text: bytes, weights: bytes) -> Model:
    return ncnn.parse(text, weights, "m.param")


def kinds() -> dict[str, tuple[Callable[[Random], Any], Callable[[Any], Model]]]:
    """How to make a damaged file of each kind, and how to read it."""
    tensors = weight_files.compact(1, 3, 0)
    new, old = weight_files.pth(tensors), weight_files.pth({"params": tensors}, legacy=True)
    safe, npz, text = weight_files.safetensors(tensors), npz_file(), json_file()
    pickle = Pickle()
    pickle.add(tensors)
    onnx = onnx_file()
    return {
        "zip": (lambda rng: changed(new, rng), lambda file: parse_named(file, "m.pth")),
        "pickle": (lambda rng: members_changed(new, rng), lambda file: parse_named(file, "m.pth")),
        "legacy": (lambda rng: changed(old, rng), lambda file: parse_named(file, "m.pth")),
        "safetensors": (
            lambda rng: changed(safe, rng),
            lambda file: parse_named(file, "m.safetensors"),
        ),
        "onnx": (lambda rng: changed(onnx, rng), lambda file: parse_named(file, "m.onnx")),
        "param": (lambda rng: (changed(PARAM, rng), BIN), lambda pair: _param(*pair)),
        "bin": (lambda rng: (PARAM, changed(BIN, rng)), lambda pair: _param(*pair)),
        "npz": (
            lambda rng: rng.choice([changed, members_changed])(npz, rng),
            lambda file: chainer.parse(file, "m")[1],
        ),
        "json": (
            lambda rng: changed(text, rng),
            lambda file: waifu2x_json.parse(file, "m")[1],
        ),
    }


def main(cases: int, seed: int) -> None:
    bound_memory()
    refused, read = 0, 0
    for kind, (make, parse) in kinds().items():
        for case in range(cases):
            file = make(Random(f"{kind} {seed} {case}"))
            signal.alarm(MOST_SECONDS)
            try:
                model = parse(file)
            except ModelError as error:
                refused += 1
                if "\n" in error.args[0]:
                    raise AssertionError(f"{kind}, seed {seed}, case {case}: two lines") from error
            except BaseException as error:
                raise AssertionError(f"{kind}, seed {seed}, case {case}") from error
            else:
                read += 1
                assert isinstance(model, Model)
            signal.alarm(0)
    print(json.dumps({"refused": refused, "read": read}))


def bound_memory() -> None:
    import resource

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY, hard))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
