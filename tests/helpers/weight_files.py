"""Files of PyTorch and safetensors, written without either: a pickle by its instructions."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.float32]]

STORAGES = {"f32": "Float", "f16": "Half", "bf16": "BFloat16", "f64": "Double"}


def raw(array: NDArray[np.float32], dtype: str) -> bytes:
    """Its numbers in a precision."""
    if dtype == "bf16":
        return (np.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return array.astype({"f32": "<f4", "f16": "<f2", "f64": "<f8"}[dtype]).tobytes()


@dataclass(frozen=True)
class View:
    """A tensor that is not all of its storage, in order."""

    storage: NDArray[np.float32]
    """(count,)."""
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    parameter: bool = False
    key: str = ""
    """Storages of the same key are one."""
    count: int = 0
    """How many numbers the storage says it has; 0: as many as it has."""
    dtype: str = ""
    """The type that the file claims; empty: the true one."""


class Pickle:
    """A pickle in the making, and the storages that it names."""

    def __init__(self, dtype: str = "f32", *, legacy: bool = False) -> None:
        self.code = b"\x80\x02"
        self.storages: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self._dtype, self._legacy = dtype, legacy

    def text(self, value: str) -> None:
        self.code += b"X" + struct.pack("<I", len(value.encode())) + value.encode()

    def number(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self.code += b"J" + struct.pack("<i", value)
        else:
            self.code += b"\x8a\x10" + value.to_bytes(16, "little", signed=True)

    def name(self, module: str, name: str) -> None:
        self.code += f"c{module}\n{name}\n".encode()

    def numbers(self, values: Sequence[int]) -> None:
        self.code += b"("
        for value in values:
            self.number(value)
        self.code += b"t"

    def add(self, value: Any) -> None:
        """A dict, a list, a tensor, a string or a number."""
        match value:
            case Mapping():
                self.name("collections", "OrderedDict")
                self.code += b")R("
                for key, each in value.items():
                    self.add(key)
                    self.add(each)
                self.code += b"u"
            case list():
                self.code += b"]("
                for each in value:
                    self.add(each)
                self.code += b"e"
            case str():
                self.text(value)
            case bool():
                self.code += b"\x88" if value else b"\x89"
            case int():
                self.number(value)
            case np.ndarray():
                strides = [int(np.prod(value.shape[n + 1 :])) for n in range(value.ndim)]
                view = View(value.reshape(-1), 0, value.shape, tuple(strides))
                self.add(view)
            case View():
                self._view(value)
            case _:
                raise TypeError(value)

    def _view(self, view: View) -> None:
        if view.parameter:
            self.name("torch._utils", "_rebuild_parameter")
            self.code += b"("
        key = view.key or str(len(self.storages))
        self.storages[key] = raw(view.storage, self._dtype)
        self.counts[key] = view.storage.size
        self.name("torch._utils", "_rebuild_tensor_v2")
        self.code += b"(("
        self.text("storage")
        self.name("torch", f"{STORAGES[view.dtype or self._dtype]}Storage")
        self.text(key)
        self.text("cpu")
        self.number(view.count or view.storage.size)
        self.code += b"NtQ" if self._legacy else b"tQ"
        self.number(view.offset)
        self.numbers(view.shape)
        self.numbers(view.strides)
        self.code += b"\x89"
        self.name("collections", "OrderedDict")
        self.code += b")RtR"
        if view.parameter:
            self.code += b"\x88"
            self.name("collections", "OrderedDict")
            self.code += b")RtR"

    def done(self) -> bytes:
        return self.code + b"."


def pth(content: Any, dtype: str = "f32", *, legacy: bool = False) -> bytes:
    """A file of PyTorch, of today's form or the one before 1.6."""
    pickle = Pickle(dtype, legacy=legacy)
    pickle.add(content)
    return old_file(pickle) if legacy else new_file(pickle)


def new_file(pickle: Pickle, extra: Mapping[str, bytes] | None = None, method: int = 0) -> bytes:
    """Its zip file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickle.done())
        archive.writestr("archive/byteorder", b"little")
        for key, content in pickle.storages.items():
            member = zipfile.ZipInfo(f"archive/data/{key}")
            member.compress_type = method
            # As PyTorch does it, so that the numbers can be used where they are.
            assert archive.fp
            gap = -(archive.fp.tell() + 30 + len(member.filename) + 4) % 64
            member.extra = b"FB" + struct.pack("<H", gap) + b"Z" * gap
            archive.writestr(member, content)
        archive.writestr("archive/version", b"3\n")
        for name, content in (extra or {}).items():
            archive.writestr(f"archive/{name}", content)
    return packed.getvalue()


def old_file(pickle: Pickle) -> bytes:
    """Its five pickles in a row, and the data."""
    system = Pickle()
    system.add({"little_endian": True, "protocol_version": 1001})
    keys = Pickle()
    keys.add(list(pickle.storages))
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    head = magic + b"\x80\x02M\xe9\x03." + system.done() + pickle.done() + keys.done()
    data = [
        struct.pack("<q", pickle.counts[key]) + content for key, content in pickle.storages.items()
    ]
    return head + b"".join(data)


def safetensors(tensors: Arrays, dtype: str = "f32", **changes: Any) -> bytes:
    """A file of safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for key, array in tensors.items():
        content = raw(array, dtype)
        header[key] = {
            "dtype": dtype.upper(),
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header | changes).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


# Weights of small networks, under the field's names.


class Random:
    """Weights that keep values about as large as they are."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.tensors: dict[str, NDArray[np.float32]] = {}

    def layer(self, key: str, made: int, read: int, taps: int = 3, *, bias: bool = True) -> None:
        size = (made, read, taps, taps)
        # As bf16 and fp16 hold them both.
        weight = self._rng.integers(-8, 9, size) / 8 / np.sqrt(read * taps**2).round()
        self.tensors[f"{key}.weight"] = coarse(weight)
        if bias:
            self.tensors[f"{key}.bias"] = coarse(self._rng.integers(-8, 9, made) / 64)

    def slopes(self, key: str, planes: int) -> None:
        self.tensors[key] = coarse(self._rng.integers(-20, 26, planes) / 16)


def coarse(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers cut off so that bf16 holds them."""
    bits = values.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return np.asarray(bits, np.uint32).view(np.float32)


def compact(scale: int = 2, planes: int = 8, count: int = 2) -> dict[str, NDArray[np.float32]]:
    net = Random(scale)
    read = 3
    for index in range(count + 1):
        net.layer(f"body.{2 * index}", planes, read)
        net.slopes(f"body.{2 * index + 1}.weight", planes)
        read = planes
    net.layer(f"body.{2 * count + 2}", 3 * scale**2, planes)
    return net.tensors


def ncnn_compact() -> tuple[str, bytes]:
    """A Compact network, 2x, as ncnn's converters write one: the contents of .param and .bin."""
    arrays = compact(2, 8, 0)
    data = b""
    for array in arrays.values():
        tag = struct.pack("<I", 0x01306B47) if array.ndim == 4 else b""
        data += tag + array.astype("<f2" if array.ndim == 4 else "<f4").tobytes()
    text = """7767517
8 9
Input data 0 1 data
Split split 1 2 data a b
Convolution /body/body.0/Conv 1 1 b c 0=8 1=3 4=1 5=1 6=216
PReLU /body/body.1/PRelu 1 1 c d 0=8
Convolution /body/body.2/Conv 1 1 d e 0=12 1=3 4=1 5=1 6=864
PixelShuffle /DepthToSpace 1 1 e f 0=2
Interp /Resize 1 1 a g 0=1 1=2.0 2=2.0
BinaryOp /Add 2 1 f g output 0=0
"""
    return text, data


NEW_NAMES = ("conv_first", "body.{}.rdb{}.conv{}", "conv_body", "conv_up{}", "conv_hr", "conv_last")
OLDER_NAMES = (
    *("conv_first", "RRDB_trunk.{}.RDB{}.conv{}", "trunk_conv"),
    *("upconv{}", "HRconv", "conv_last"),
)


def esrgan(
    names: Sequence[str] = NEW_NAMES, ups: int = 2, blocks: int = 1, read: int = 3
) -> dict[str, NDArray[np.float32]]:
    net, planes, growth = Random(ups), 8, 4
    first, block, trunk, up, hr, last = names
    net.layer(first, planes, read)
    for number in range(blocks):
        for part in (1, 2, 3):
            for k in range(1, 6):
                made = growth if k < 5 else planes
                net.layer(block.format(number, part, k), made, planes + (k - 1) * growth)
    net.layer(trunk, planes, planes)
    for number in range(1, ups + 1):
        net.layer(up.format(number), planes, planes)
    net.layer(hr, planes, planes)
    net.layer(last, 3, planes)
    return net.tensors


def old_esrgan(ups: int = 2, blocks: int = 1) -> dict[str, NDArray[np.float32]]:
    """Under the names of a sequence of modules."""
    names = {"first": "model.0", "trunk": f"model.1.sub.{blocks}"}
    renamed = {}
    for key, array in esrgan(NEW_NAMES, ups, blocks).items():
        own = key.replace("conv_first.", names["first"] + ".")
        own = own.replace("conv_body.", names["trunk"] + ".")
        own = own.replace("conv_hr.", f"model.{3 * ups + 2}.")
        own = own.replace("conv_last.", f"model.{3 * ups + 4}.")
        for number in range(1, ups + 1):
            own = own.replace(f"conv_up{number}.", f"model.{3 * number}.")
        if own.startswith("body."):
            own = own.replace("body.", "model.1.sub.").replace("rdb", "RDB")
            own = own.replace(".weight", ".0.weight").replace(".bias", ".0.bias")
        renamed[own] = array
    return renamed


def span(scale: int = 2, planes: int = 8) -> dict[str, NDArray[np.float32]]:
    net = Random(scale)
    keys = ["conv_1", "conv_2"]
    keys += [f"block_{block}.c{part}_r" for block in range(1, 7) for part in (1, 2, 3)]
    for key in keys:
        read = 3 if key == "conv_1" else planes
        net.layer(f"{key}.sk", planes, read, 1)
        net.layer(f"{key}.conv.0", 2 * read, read, 1)
        net.layer(f"{key}.conv.1", 2 * planes, 2 * read)
        net.layer(f"{key}.conv.2", planes, 2 * planes, 1)
        net.layer(f"{key}.eval_conv", planes, read)
    net.layer("conv_cat", planes, 4 * planes, 1)
    net.layer("upsampler.0", 3 * scale**2, planes)
    return net.tensors


def u_net(kind: int) -> dict[str, NDArray[np.float32]]:
    """Real-CUGAN for 2, 3 or 4 times, or waifu2x's cunet for 1."""
    net = Random(kind)
    between = 64 if kind == 4 else 3

    def transposed(key: str, made: int, read: int, taps: int) -> None:
        net.layer(key, read, made, taps)
        net.tensors[f"{key}.bias"] = np.zeros(made, np.float32)

    def block(key: str, read: int, inner: int, made: int, squeeze: bool = True) -> None:
        net.layer(f"{key}.conv.0", inner, read)
        net.layer(f"{key}.conv.2", made, inner)
        if squeeze:
            net.layer(f"{key}.seblock.conv1", made // 8, made, 1)
            net.layer(f"{key}.seblock.conv2", made, made // 8, 1)

    block("unet1.conv1", 3, 32, 64, False)
    net.layer("unet1.conv1_down", 64, 64, 2)
    block("unet1.conv2", 64, 128, 64)
    transposed("unet1.conv2_up", 64, 64, 2)
    net.layer("unet1.conv3", 64, 64)
    if kind == 1:
        net.layer("unet1.conv_bottom", 3, 64)
    else:
        transposed("unet1.conv_bottom", between, 64, 5 if kind == 3 else 4)
    block("unet2.conv1", between, 32, 64, False)
    net.layer("unet2.conv1_down", 64, 64, 2)
    block("unet2.conv2", 64, 64, 128)
    net.layer("unet2.conv2_down", 128, 128, 2)
    block("unet2.conv3", 128, 256, 128)
    transposed("unet2.conv3_up", 128, 128, 2)
    block("unet2.conv4", 128, 64, 64)
    transposed("unet2.conv4_up", 64, 64, 2)
    net.layer("unet2.conv5", 64, 64)
    net.layer("unet2.conv_bottom", between, 64)
    if kind == 4:
        net.layer("conv_final", 12, 64)
    return net.tensors


def stack(enlarges: bool) -> dict[str, NDArray[np.float32]]:
    """waifu2x's vgg_7 or upconv_7, with few planes."""
    net, read = Random(7), 3
    for index in range(6):
        net.layer(f"net.{2 * index}", 4, read)
        read = 4
    net.layer("net.12", 4 if enlarges else 3, 3 if enlarges else 4, 4 if enlarges else 3)
    if enlarges:
        net.tensors["net.12.bias"] = np.zeros(3, np.float32)
    return net.tensors
