"""The same network in PyTorch, as cuDNN and its compiler run it: the peers of GPU engines.

Each peer is a network on the device, ready for a float32 picture (1, planes, height, width) that is
enlarged and padded: conversions of pixels are not counted against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from waifu2x.model import Model

Peer = tuple[Callable[[Any], Any], Any]
"""A function of a tensor, and what turns the float32 picture into its tensor."""


def network(model: Model) -> torch.nn.Sequential:
    """The layers of a model, fp32, on the device."""
    layers: list[torch.nn.Module] = []
    for layer in model.convolutions:
        convolution = torch.nn.Conv2d(layer.in_planes, layer.out_planes, 3)
        convolution.weight.data = torch.from_numpy(layer.weight.copy())
        convolution.bias.data = torch.from_numpy(layer.bias.copy())
        layers.append(convolution)
        if layer.slope != 1:
            layers.append(torch.nn.LeakyReLU(layer.slope))
    return torch.nn.Sequential(*layers).cuda().eval()


def cudnn_fp32(model: Model) -> Peer:
    """cuDNN on the fp32 units, TF32 off."""
    built = network(model)

    def run(planes: Any) -> Any:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return built(planes)

    return run, lambda planes: planes


def cudnn_tf32(model: Model) -> Peer:
    """cuDNN on the matrix units, values rounded to 10 bits, planes innermost."""
    built = network(model).to(memory_format=torch.channels_last)

    def run(planes: Any) -> Any:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
            return built(planes)

    return run, lambda planes: planes.to(memory_format=torch.channels_last)


def cudnn_fp16(model: Model) -> Peer:
    """cuDNN in fp16, planes innermost."""
    built = network(model).half().to(memory_format=torch.channels_last)
    return built, lambda planes: planes.half().to(memory_format=torch.channels_last)


def compiled_fp16(model: Model) -> Peer:
    """The best of torch.compile's tuner in fp16, planes innermost."""
    built, prepare = cudnn_fp16(model)
    return torch.compile(built, mode="max-autotune-no-cudagraphs"), prepare


PEERS: dict[str, Callable[[Model], Peer]] = {
    "cuDNN fp32": cudnn_fp32,
    "cuDNN TF32": cudnn_tf32,
    "cuDNN fp16": cudnn_fp16,
    "torch.compile fp16": compiled_fp16,
}


def prepared(pixels: NDArray[np.uint8], model: Model) -> Any:
    """A picture, or several of one size (n, height, width, planes), enlarged and padded."""
    pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
    planes = torch.from_numpy(pictures.copy()).cuda().float().permute(0, 3, 1, 2) / 255
    large = planes.repeat_interleave(model.scale, 2).repeat_interleave(model.scale, 3)
    return torch.nn.functional.pad(large, (model.offset,) * 4, mode="replicate")


def graph_of(run: Callable[[Any], Any], planes: Any) -> Callable[[], None]:
    """The work captured once, to be replayed: without the host's part of small pictures."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.inference_mode():
        for _ in range(3):
            run(planes)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            run(planes)
    replay: Callable[[], None] = graph.replay
    return replay


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Of one run, by the device's events around several."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.inference_mode():
        before.record()
        for _ in range(repeats):
            work()
        after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) * 1e-3 / repeats
