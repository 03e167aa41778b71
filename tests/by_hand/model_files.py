"""Files of spandrel's families of upscalers: each is read right, or refused in a sentence.

python tests/by_hand/model_files.py [FAMILY ...]

Small networks with random weights are saved in the ways of the field: plain, wrapped and prefixed,
in fp32, fp16 and bf16, as .pth, .safetensors and, by each of PyTorch's two exporters, as .onnx.
waifu2x reads them without PyTorch, and the definition that the tests use runs them. That is held to
PyTorch in double precision, and .onnx files to onnxruntime too. Prints a table: PSNR in dB of two
pictures, where the peak is the largest value of the result but 1 at least; - where the other side
cannot take a picture of that size; or what the refusal says. Exit code 1 below 100 dB against
PyTorch, or where a family is refused that loads.

Needs torch, spandrel, spandrel_extra_arches, safetensors, onnx, onnxscript and onnxruntime, which
no extra brings.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers import family_weights, obvious
from waifu2x.errors import ModelError
from waifu2x.networks.readers import read_model

LEAST = 100.0
SIZES = ((25, 22), (32, 24))
Weights = dict[str, Any]
Floats = NDArray[np.float64]


class Family(NamedTuple):
    """A network of spandrel."""

    module: str
    network: str
    options: dict[str, Any]
    loads: bool = True
    onnx_loads: bool = True

    def make(self) -> Any:
        """The network with random weights, for inference."""
        package = "spandrel_extra_arches" if self.module == "SRFormer" else "spandrel"
        module = import_module(f"{package}.architectures.{self.module}")
        net = getattr(module, self.network)(**self.options).eval()
        net.load_state_dict(drawn(net))
        return net


_SWIN: dict[str, Any] = {"img_size": 32, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3]}
_SWIN |= {"window_size": 8, "mlp_ratio": 2, "upscale": 2}
_DAT: dict[str, Any] = {"img_size": 64, "embed_dim": 32, "split_size": [4, 8], "depth": [4]}
_DAT |= {"num_heads": [4], "expansion_factor": 2, "upscale": 2}
_PLKSR: dict[str, Any] = {"dim": 16, "n_blocks": 2, "upscaling_factor": 2, "kernel_size": 13}

FAMILIES = {
    "Compact": Family("Compact", "Compact", {"num_feat": 16, "num_conv": 3, "upscale": 2}),
    "Compact 4x": Family("Compact", "Compact", {"num_feat": 24, "num_conv": 2, "upscale": 4}),
    "ESRGAN 4x": Family("ESRGAN", "ESRGAN", {"num_filters": 16, "num_blocks": 2}),
    "ESRGAN 2x, unshuffled": Family(
        "ESRGAN",
        "ESRGAN",
        {"in_nc": 12, "num_filters": 16, "num_blocks": 1, "shuffle_factor": 2},
    ),
    "ESRGAN+": Family("ESRGAN", "ESRGAN", {"num_filters": 16, "num_blocks": 1, "plus": True}),
    "SPAN 2x": Family(
        "SPAN", "SPAN", {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 16, "upscale": 2}
    ),
    "Real-CUGAN 2x": Family("RealCUGAN", "UpCunet2x", {}),
    "Real-CUGAN 3x": Family("RealCUGAN", "UpCunet3x", {}),
    "Real-CUGAN 4x": Family("RealCUGAN", "UpCunet4x", {}),
    "RCAN": Family(
        "RCAN",
        "RCAN",
        {"scale": 2, "n_resgroups": 2, "n_resblocks": 2, "n_feats": 16, "reduction": 4},
    ),
    "RCAN, unshuffled": Family(
        "RCAN",
        "RCAN",
        {
            "scale": 2,
            "n_resgroups": 1,
            "n_resblocks": 2,
            "n_feats": 16,
            "reduction": 4,
            "unshuffle_mod": True,
        },
    ),
    "RealPLKSR": Family("PLKSR", "RealPLKSR", _PLKSR),
    "RealPLKSR, norms by pixel": Family(
        "PLKSR", "RealPLKSR", {**_PLKSR, "layer_norm": True, "use_ea": False}
    ),
    "MoSR": Family("MoSR", "MoSR", {"upscale": 2, "n_block": 2, "dim": 16}),
    "MoSR, a mean": Family(
        "MoSR",
        "MoSR",
        {"upscale": 2, "n_block": 2, "dim": 16, "upsampler": "gps"},
        onnx_loads=False,
    ),
    "SwinIR": Family(
        "SwinIR", "SwinIR", {**_SWIN, "upsampler": "pixelshuffledirect"}, onnx_loads=False
    ),
    "SwinIR, nearest pixels": Family(
        "SwinIR",
        "SwinIR",
        {**_SWIN, "upscale": 4, "upsampler": "nearest+conv", "resi_connection": "3conv"},
        onnx_loads=False,
    ),
    "SwinIR 1x": Family("SwinIR", "SwinIR", {**_SWIN, "upscale": 1}, onnx_loads=False),
    "HAT": Family(
        "HAT",
        "HAT",
        {**_SWIN, "num_heads": [2, 2], "squeeze_factor": 6, "upsampler": "pixelshuffle"},
        onnx_loads=False,
    ),
    "SRFormer": Family(
        "SRFormer",
        "SRFormer",
        {**_SWIN, "embed_dim": 16, "num_heads": [2, 2], "upsampler": "pixelshuffledirect"},
        onnx_loads=False,
    ),
    "DRCT": Family(
        "DRCT",
        "DRCT",
        {
            **_SWIN,
            "embed_dim": 16,
            "depths": [6],
            "num_heads": [4],
            "gc": 8,
            "upsampler": "pixelshuffle",
        },
        onnx_loads=False,
    ),
    "DAT": Family("DAT", "DAT", {**_DAT, "upsampler": "pixelshuffle"}, onnx_loads=False),
    "DAT-light": Family(
        "DAT",
        "DAT",
        {**_DAT, "upsampler": "pixelshuffledirect", "resi_connection": "3conv"},
        onnx_loads=False,
    ),
    "PLKSR": Family("PLKSR", "PLKSR", _PLKSR, loads=False),
    "RealPLKSR with DySample": Family(
        "PLKSR", "RealPLKSR", {**_PLKSR, "dysample": True}, onnx_loads=False
    ),
    "MoSR with DySample": Family(
        "MoSR",
        "MoSR",
        {"upscale": 2, "n_block": 1, "dim": 16, "upsampler": "dys"},
        onnx_loads=False,
    ),
    "OmniSR": Family("OmniSR", "OmniSR", {"num_feat": 16, "up_scale": 2}, onnx_loads=False),
    "SAFMN": Family(
        *("SAFMN", "SAFMN", {"dim": 16, "n_blocks": 2, "upscaling_factor": 2}),
        onnx_loads=False,
    ),
    "RGT": Family(
        "RGT",
        "RGT",
        {"embed_dim": 16, "depth": [2], "num_heads": [2], "mlp_ratio": 2},
        loads=False,
        onnx_loads=False,
    ),
    "ATD": Family(
        "ATD",
        "ATD",
        {
            "embed_dim": 16,
            "depths": (2,),
            "num_heads": (2,),
            "num_tokens": 8,
            "upscale": 2,
            "upsampler": "pixelshuffledirect",
        },
        loads=False,
        onnx_loads=False,
    ),
    "Swin2SR": Family(
        "Swin2SR", "Swin2SR", {**_SWIN, "upsampler": "pixelshuffledirect"}, False, False
    ),
    "SCUNet": Family("SCUNet", "SCUNet", {"config": [1] * 7, "dim": 16}, False, False),
}
_DERIVED = ("attn_mask", "attn_mask_0", "attn_mask_1", "rpe_biases", "init_pos", "mean", "std")
"""Tensors that follow from others: of no training."""


def drawn(net: Any) -> Weights:
    """Random weights of a network; what follows from other tensors stays as it is."""
    weights = {}
    for key, value in net.state_dict().items():
        shape = {key: tuple(value.shape)}
        is_drawn = value.dtype.is_floating_point and key.rpartition(".")[2] not in _DERIVED
        made = torch.from_numpy(family_weights.filled(shape)[key]) if is_drawn else value
        # Biases of one number come as such.
        weights[key] = made.reshape(value.shape)
    if "upsampler.0.weight" in weights and "conv_cat.weight" in weights:
        # SPAN works on levels up to 255, and its result does not.
        weights["upsampler.0.weight"] = weights["upsampler.0.weight"] / 255**2
    return weights


def prefixed(weights: Weights) -> Weights:
    return {f"module.{key}": value for key, value in weights.items()}


def as_kind(weights: Weights, kind: Any) -> Weights:
    return {
        key: value.to(kind) if value.dtype.is_floating_point else value
        for key, value in weights.items()
    }


def save_safetensors(weights: Weights, path: Path) -> None:
    save = import_module("safetensors.torch").save_file
    save({key: value.contiguous() for key, value in weights.items()}, path)


FORMS: dict[str, tuple[str, Any, Callable[[Weights, Path], None]]] = {
    "pth": ("pth", None, torch.save),
    "pth, params_ema, bf16": (
        "pth",
        torch.bfloat16,
        lambda weights, path: torch.save({"params_ema": weights, "iter": 7}, path),
    ),
    "pth, old zip-less form, params, module.": (
        "pth",
        None,
        lambda weights, path: torch.save(
            {"params": prefixed(weights)}, path, _use_new_zipfile_serialization=False
        ),
    ),
    "pth, state_dict, fp16": (
        "pth",
        torch.float16,
        lambda weights, path: torch.save({"state_dict": weights, "epoch": 1}, path),
    ),
    "safetensors": ("safetensors", None, save_safetensors),
    "safetensors, module., fp16": (
        "safetensors",
        torch.float16,
        lambda weights, path: save_safetensors(prefixed(weights), path),
    ),
}


RENAMED: dict[str, tuple[str, str, str, str, str]] = {
    "pth, names of BasicSR": ("body.{}.rdb{}", "conv_body", "conv_up{}", "conv_hr", "conv_last"),
    "pth, names of RealSR": (
        "RRDB_trunk.{}.RDB{}",
        "trunk_conv",
        "upconv{}",
        "HRconv",
        "conv_last",
    ),
}
"""ESRGAN's blocks, what is behind them, what enlarges, and the last two layers, by other names."""


def renamed(weights: Weights, names: tuple[str, str, str, str, str]) -> Weights:
    """ESRGAN's weights, named after modules in a row, under newer names."""
    block, trunk, up, hr, last = names
    ups = max(int(key.split(".")[1]) for key in weights) // 3 - 1
    others = {0: "conv_first", 3 * ups + 2: hr, 3 * ups + 4: last}
    others |= {3 * number: up.format(number) for number in range(1, ups + 1)}
    made = {}
    for key, value in weights.items():
        part = re.fullmatch(r"model\.1\.sub\.(\d+)\.RDB(\d)\.(conv\w+)(?:\.0)?\.(\w+)", key)
        row = re.fullmatch(r"model\.(\d+)\.(\w+)", key)
        if part:
            key = f"{block.format(part[1], part[2])}.{part[3]}.{part[4]}"
        elif row:
            key = f"{others[int(row[1])]}.{row[2]}"
        else:
            key = f"{trunk}.{key.rpartition('.')[2]}"
        made[key] = value
    return made


def export(family: Family, path: Path, *, dynamo: bool) -> str:
    """Makes an .onnx file for pictures of any size, in a process of its own, as PyTorch may end it.
    Returns why there is none, or nothing."""
    process = multiprocessing.get_context("fork").Process(
        target=_export, args=(family, path, dynamo)
    )
    process.start()
    process.join(300)
    if process.is_alive():
        process.kill()
        process.join()
    if process.exitcode:
        path.unlink(missing_ok=True)
        return "PyTorch refuses" if process.exitcode == 1 else f"PyTorch ends by {process.exitcode}"
    return ""


class OfOnePicture(torch.nn.Module):  # type: ignore[misc]
    """A network without its other arguments, which exporters would make inputs of a file."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, picture: Any) -> Any:
        """The network's result."""
        return self.net(picture)


def _export(family: Family, path: Path, dynamo: bool) -> None:
    net = OfOnePicture(family.make())
    picture = torch.rand(1, 3, 64, 64)
    names = {"input_names": ["input"], "output_names": ["output"]}
    # PyTorch prints its graph where it refuses one.
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    if dynamo:
        size = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
        torch.onnx.export(
            *(net, (picture,), str(path)),
            **names,
            dynamo=True,
            dynamic_shapes=(size,),
            external_data=False,
            verbose=False,
        )
    else:
        free = {"input": {2: "h", 3: "w"}, "output": {2: "h", 3: "w"}}
        torch.onnx.export(*(net, (picture,), str(path)), **names, dynamic_axes=free, dynamo=False)


def by_torch(net: Any, pixels: Floats) -> Floats:
    """The result of a network for a picture (rows, columns, planes), in double precision."""
    picture = torch.from_numpy(pixels.transpose(2, 0, 1)[np.newaxis].copy())
    with torch.inference_mode():
        result: Floats = net.double()(picture)[0].numpy().transpose(1, 2, 0)
    return result.astype(np.float64)


def by_onnxruntime(path: Path, pixels: Floats) -> Floats:
    """The same by onnxruntime from a file, in the precision of the file."""
    runtime = import_module("onnxruntime")
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kind = np.float16 if "float16" in session.get_inputs()[0].type else np.float32
    picture = pixels.transpose(2, 0, 1)[np.newaxis].astype(kind)
    (result,) = session.run(None, {session.get_inputs()[0].name: picture})
    return np.asarray(result[0], np.float64).transpose(1, 2, 0)


def decibels(made: Floats, expected: Floats) -> float:
    """PSNR of a result; the peak is the largest value that is expected, but 1 at least."""
    error = float(np.square(made - expected).mean())
    peak = max(1.0, float(abs(expected).max()))
    return 20 * math.log10(peak) - 10 * math.log10(error) if error else math.inf


class Row(NamedTuple):
    """The findings on a file."""

    text: str
    is_right: bool


def checked(path: Path, net: Any, loads: bool, *others: Callable[[Floats], Floats]) -> Row:
    """Reads a file and compares what it makes."""
    try:
        model = read_model(path)
    except ModelError as error:
        return Row(f"refused: {str(error).removeprefix(f'{path}: ')}", not loads)
    sides: list[Callable[[Floats], Floats]] = [partial(by_torch, net), *others]
    found: list[list[float]] = [[] for _ in sides]
    for size in SIZES:
        pixels = np.random.default_rng(1).random((*size, model.in_planes))
        made = obvious.values(model, pixels)[-1]
        made = made[: size[0] * model.scale, : size[1] * model.scale]
        for each, other in zip(found, sides, strict=True):
            # Not every network or file takes every size, or makes all of a result.
            try:
                expected = other(pixels)
            except Exception:
                expected = np.empty(0)
            fits = expected.shape == made.shape
            each.append(decibels(made, expected) if fits else math.nan)
    shown = [["-" if math.isnan(value) else f"{value:.0f}" for value in each] for each in found]
    text = ", ".join(" and ".join(each) for each in shown)
    measured = [value for value in found[0] if not math.isnan(value)]
    return Row(f"{text} dB", bool(measured) and min(measured) >= LEAST)


def main(wanted: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = read = 0
    wrong = []
    print("| family | file | against PyTorch in fp64, and onnxruntime |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, family) in enumerate(FAMILIES.items()):
            if wanted and name not in wanted:
                continue
            for form, row in files_of(family, Path(folder), number):
                print(f"| {name} | {form} | {row.text} |", flush=True)
                rows += not row.text.startswith("not exported")
                read += row.text.endswith(" dB")
                if not row.is_right:
                    wrong.append(f"{name}, {form}")
    print(f"\n{rows} files: {read} read, {rows - read} refused; wrong: {wrong or 'none'}")
    if wrong:
        raise SystemExit(1)


def files_of(family: Family, folder: Path, number: int) -> Iterator[tuple[str, Row]]:
    """Some forms of a family's file, others for each family, and what became of them."""
    names = [*FORMS, *FORMS]
    first = number * 2 % len(FORMS)
    forms = names[first : first + (2 if family.loads else 1)]
    if family.module == "ESRGAN":
        forms += RENAMED
    for form in forms:
        net = family.make()
        suffix, kind, save = FORMS.get(form, FORMS["pth"])
        weights = renamed(net.state_dict(), RENAMED[form]) if form in RENAMED else net.state_dict()
        if kind is not None:
            weights = as_kind(weights, kind)
            net.load_state_dict(as_kind(weights, torch.float32))
        path = folder / f"m.{suffix}"
        save(weights, path)
        yield form, checked(path, net, family.loads)
    # One exporter's file tells why a family cannot be read.
    for dynamo in (False, True)[: 1 + family.onnx_loads]:
        form = f"onnx, by {'torch.export' if dynamo else 'TorchScript'}"
        path = folder / f"m{int(dynamo)}.onnx"
        path.unlink(missing_ok=True)
        why = export(family, path, dynamo=dynamo)
        if why:
            yield form, Row(f"not exported: {why}", True)
            continue
        yield (
            form,
            checked(path, family.make(), family.onnx_loads, partial(by_onnxruntime, path)),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
