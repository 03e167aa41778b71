"""Files of weights by name against spandrel's own networks in PyTorch, whole pictures.

python benchmarks/against_torch.py [NETWORK ...]

Random weights of each architecture that spandrel knows and waifu2x reads are saved by PyTorch in
the ways of the field, read by waifu2x without it, and run by the definition that the tests use.
PyTorch's own result, in single precision, is compared: PSNR in dB, values in [0, 1]. Exit code 1
below 100 dB. Needs torch and spandrel, which no extra brings.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from spandrel import ModelLoader
from spandrel.architectures.Compact.__arch.SRVGG import SRVGGNetCompact
from spandrel.architectures.ESRGAN.__arch.RRDB import RRDBNet
from spandrel.architectures.RealCUGAN.__arch import upcunet_v3
from spandrel.architectures.SPAN.__arch.span import SPAN

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.helpers import obvious
from waifu2x.networks.readers import read_model

LEAST = 100.0
SIZES = ((35, 41), (36, 44))
"""Odd, and a multiple of any network's window: spandrel pads pictures its own way."""

Weights = dict[str, Any]


def main() -> None:
    wanted = sys.argv[1:]
    worst = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for name, weights in networks():
            if wanted and not any(name.startswith(each) for each in wanted):
                continue
            for form, save in FORMS.items():
                path = Path(folder) / f"{name}.{form.partition(' ')[0]}"
                save(weights, path)
                found = [compared(weights, path, size) for size in SIZES]
                worst = min(worst, *found)
                print(f"{name:24} {form:24} {' '.join(f'{each:6.1f}' for each in found)}")
    if worst < LEAST:
        raise SystemExit(f"below {LEAST:.0f} dB")


def networks() -> Iterator[tuple[str, Weights]]:
    """Random weights of small networks; Real-CUGAN has one size."""
    for scale, planes, count in ((4, 24, 4), (2, 16, 3), (1, 16, 2)):
        net = SRVGGNetCompact(num_feat=planes, num_conv=count, upscale=scale)
        yield f"compact-{scale}x", drawn(net)
    for scale in (1, 2, 4, 8):
        yield f"esrgan-{scale}x", drawn(RRDBNet(num_filters=16, num_blocks=2, scale=scale))
    yield "esrgan-plus", drawn(RRDBNet(num_filters=16, num_blocks=1, plus=True))
    weights = drawn(SPAN(num_in_ch=3, num_out_ch=3, feature_channels=16, upscale=2))
    # It works on levels up to 255, and its result does not.
    weights["upsampler.0.weight"] /= 255**2
    yield "span-2x", weights
    net = SPAN(num_in_ch=3, num_out_ch=3, feature_channels=16, upscale=4, norm=False)
    yield "span-4x-plain", drawn(net) | {"no_norm": torch.zeros(1)}
    for scale in (2, 3, 4):
        weights = drawn(getattr(upcunet_v3, f"UpCunet{scale}x")())
        yield f"cugan-{scale}x", weights
        yield f"cugan-{scale}x-pro", weights | {"pro": torch.zeros(1)}


def drawn(net: Any) -> Weights:
    """Random weights of a network, smaller than PyTorch draws them, biases and slopes included."""
    generator = torch.Generator().manual_seed(7)
    weights = {}
    for key, value in net.state_dict().items():
        if not value.dtype.is_floating_point:
            continue
        fan = max(1, value[0].numel()) if value.ndim > 1 else 1
        scale = (1.0 / fan) ** 0.5 if value.ndim > 1 else 0.1
        weights[key] = torch.randn(value.shape, generator=generator) * scale
    return weights


def compared(weights: Weights, path: Path, size: tuple[int, int]) -> float:
    """PSNR of what waifu2x reads against what spandrel makes of the same file."""
    model = read_model(path)
    descriptor = ModelLoader().load_from_file(str(path)).eval()
    pixels = np.random.default_rng(size[0]).random((*size, model.in_planes), np.float32)
    with torch.inference_mode():
        planes = torch.from_numpy(pixels.transpose(2, 0, 1)[np.newaxis].copy())
        result = descriptor.model.float()(planes)[0].numpy().transpose(1, 2, 0)
    ours: NDArray[np.float64] = obvious.run([model], pixels)
    return obvious.psnr(result.clip(0, 1), ours)


def save_new(weights: Weights, path: Path) -> None:
    torch.save(weights, path)


def save_legacy(weights: Weights, path: Path) -> None:
    torch.save({"params_ema": weights}, path, _use_new_zipfile_serialization=False)


def save_half(weights: Weights, path: Path) -> None:
    weights.update({key: value.bfloat16().float() for key, value in weights.items()})
    torch.save({"model": {key: value.bfloat16() for key, value in weights.items()}}, path)


def save_safetensors(weights: Weights, path: Path) -> None:
    from safetensors.torch import save_file

    save_file({key: value.contiguous() for key, value in weights.items()}, path)


FORMS: dict[str, Callable[[Weights, Path], None]] = {
    "pth": save_new,
    "pth legacy": save_legacy,
    "pth bf16": save_half,
    "safetensors": save_safetensors,
}


if __name__ == "__main__":
    main()
