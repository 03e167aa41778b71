"""The same network in PyTorch, as cuDNN and its compiler run it: the peers of GPU engines.

Each peer is a network on the device, ready for a float32 picture (1, planes, height, width) that is
enlarged and padded: conversions of pixels are not counted against it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.torch_attention import WindowsOf, between_planes
from waifu2x.networks.activations import Activation
from waifu2x.networks.attention import ChannelAttention, WindowAttention
from waifu2x.networks.expressions import GELU, MISH, SIGMOID, SILU, TANH
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    DepthwiseConvolution,
    Enlarge,
    Gate,
    GroupNorm,
    Interpolate,
    LayerNorm,
    Mean,
    Multiply,
    MultiplyMaps,
    PixelShuffle,
    PixelUnshuffle,
    Slice,
    TransposedConvolution,
)

Peer = tuple[Callable[[Any], Any], Any]
"""A function of a tensor, and what turns the float32 picture into its tensor."""


class Graph(torch.nn.Module):  # type: ignore[misc]
    """A model's nodes as PyTorch has them, one after the other, but for those of `lead`."""

    def __init__(self, model: Model, fused: bool = False) -> None:
        """`fused`: attention in windows by PyTorch's kernel for attention, not by products."""
        super().__init__()
        self.nodes = model.nodes
        self.lead = lead(model)
        self.parts = torch.nn.ModuleDict()
        for value, node in enumerate(model.nodes, 1):
            match node:
                case Convolution():
                    made, read, side, _ = node.weight.shape
                    layer: Any = torch.nn.Conv2d(read, made, side, node.stride, node.padding)
                    weight = node.weight
                case TransposedConvolution():
                    made, read, side, _ = node.weight.shape
                    layer = torch.nn.ConvTranspose2d(read, made, side, node.stride, node.crop)
                    weight = node.weight.transpose(1, 0, 2, 3)
                case DepthwiseConvolution():
                    weight = node.weight
                    planes, _, side, _ = weight.shape
                    layer = torch.nn.Conv2d(
                        planes, planes, side, padding=node.padding, groups=planes
                    )
                case WindowAttention():
                    self.parts[str(value)] = WindowsOf(node, fused)
                    continue
                case ChannelAttention():
                    self.parts[str(value)] = _Constants(node.temperature)
                    continue
                case LayerNorm() | GroupNorm():
                    self.parts[str(value)] = _Constants(node.weight, node.bias)
                    continue
                case Dense():
                    layer, weight = torch.nn.Linear(*node.weight.shape[::-1]), node.weight
                case _:
                    continue
            layer.weight.data = torch.from_numpy(weight.copy())
            layer.bias.data = torch.from_numpy(node.bias.copy())
            self.parts[str(value)] = torch.nn.Sequential(layer, _activation(node.activation))

    def forward(self, picture: Any) -> Any:
        """The network's output for pictures (n, planes, height, width) as `prepared` has them."""
        found = [picture] * (self.lead + 1)
        for value, node in enumerate(self.nodes[self.lead :], self.lead + 1):
            match node:
                case Convolution() | TransposedConvolution() | DepthwiseConvolution() | Dense():
                    found.append(self.parts[str(value)](found[node.source]))
                case Enlarge():
                    large = torch.nn.functional.interpolate(
                        found[node.source], scale_factor=node.factor, mode="nearest"
                    )
                    found.append(large)
                case PixelShuffle():
                    found.append(torch.pixel_shuffle(found[node.source], node.factor))
                case PixelUnshuffle():
                    found.append(torch.pixel_unshuffle(found[node.source], node.factor))
                case Crop():
                    inner = slice(node.pixels, -node.pixels or None)
                    found.append(found[node.source][:, :, inner, inner])
                case Add():
                    scaled = found[node.source]
                    scaled = scaled * node.factor if node.factor != 1 else scaled
                    found.append(scaled + found[node.other])
                case Gate():
                    source = found[node.source]
                    found.append((source + found[node.other]) * (torch.sigmoid(source) - 0.5))
                case Interpolate():
                    factor = node.up / node.down
                    made = torch.nn.functional.interpolate(
                        found[node.source], scale_factor=factor, mode="bicubic"
                    )
                    found.append(made)
                case Concatenate():
                    found.append(torch.cat([found[source] for source in node.sources], 1))
                case Slice():
                    found.append(found[node.source][:, node.first : node.first + node.planes])
                case MultiplyMaps():
                    found.append(found[node.source] * found[node.other])
                case WindowAttention():
                    maps = (found[source] for source in node.sources)
                    found.append(self.parts[str(value)](*maps))
                case ChannelAttention():
                    (temperature,) = self.parts[str(value)]()
                    source, values = found[node.queries.source], found[node.values.source]
                    found.append(between_planes(node, temperature, source, values))
                case LayerNorm():
                    moved = found[node.source].permute(0, 2, 3, 1)
                    weight, bias = self.parts[str(value)]()
                    norm = torch.nn.functional.layer_norm
                    normed = norm(moved, (len(weight),), weight, bias, node.eps)
                    found.append(normed.permute(0, 3, 1, 2))
                case GroupNorm():
                    norm = torch.nn.functional.group_norm
                    constants = self.parts[str(value)]()
                    found.append(norm(found[node.source], node.groups, *constants, node.eps))
                case Mean():
                    found.append(found[node.source].mean((2, 3)))
                case Multiply():
                    found.append(found[node.source] * found[node.factors][:, :, None, None])
                case _:
                    raise TypeError(f"no {type(node).__name__} in PyTorch yet")
        return found[-1]


class _Constants(torch.nn.Module):  # type: ignore[misc]
    """Vectors that go where the network goes and take its type."""

    def __init__(self, *vectors: NDArray[np.float32]) -> None:
        super().__init__()
        for place, vector in enumerate(vectors):
            self.register_buffer(str(place), torch.from_numpy(vector.copy()))

    def forward(self) -> tuple[Any, ...]:
        return tuple(self.buffers())


def lead(model: Model) -> int:
    """The nodes at the start that only enlarge and crop the picture."""
    for count, node in enumerate(model.nodes):
        if not isinstance(node, Enlarge | Crop) or node.source != count:
            return count
    return len(model.nodes)


def _activation(activation: Activation) -> torch.nn.Module:
    slopes = activation.slopes
    if activation.function == SIGMOID:
        return torch.nn.Sigmoid()
    if activation.function == SILU:
        return torch.nn.SiLU()
    if activation.function in (GELU, MISH, TANH):
        layers = {GELU: torch.nn.GELU, MISH: torch.nn.Mish, TANH: torch.nn.Tanh}
        return layers[activation.function]()
    if activation.is_linear:
        return torch.nn.Identity()
    if (slopes == slopes[0]).all():
        return torch.nn.ReLU() if slopes[0] == 0 else torch.nn.LeakyReLU(float(slopes[0]))
    layer = torch.nn.PReLU(len(slopes))
    layer.weight.data = torch.from_numpy(slopes.copy())
    return layer


def network(model: Model, fused: bool = False) -> torch.nn.Module:
    """A model, fp32, on the device."""
    return Graph(model, fused).cuda().eval()


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


def cudnn_fp16(model: Model, fused: bool = False) -> Peer:
    """cuDNN in fp16, planes innermost."""
    built = network(model, fused).half().to(memory_format=torch.channels_last)
    return built, lambda planes: planes.half().to(memory_format=torch.channels_last)


class _OutOfTime(BaseException):
    """Not an Exception, which a compiler may take for its own."""


class Compiled:
    """A network by torch.compile, for each size of pictures: the best that its tuner finds, or its
    usual way where that takes too long (a network of a hundred convolutions: minutes)."""

    def __init__(self, built: torch.nn.Module, seconds: float) -> None:
        """`seconds` are how long it may tune; 0 for its usual way."""
        self._built = built
        self._seconds = seconds
        self._ways: dict[tuple[int, ...], Callable[[Any], Any]] = {}
        self.is_tuned = True
        """Whether it has ended in time so far."""

    def __call__(self, planes: Any) -> Any:
        """The output for a tensor; a size is compiled at its first call."""
        size = tuple(planes.shape)
        if size not in self._ways:
            self._ways[size] = self._way(planes)
        return self._ways[size](planes)

    def _way(self, planes: Any) -> Callable[[Any], Any]:
        def give_up(number: int, frame: Any) -> None:
            raise _OutOfTime

        self._built(planes)  # Makes what is made once, such as masks, outside of what is compiled.
        if not self._seconds:
            self.is_tuned = False
            return torch.compile(self._built, dynamic=False)  # type: ignore[no-any-return]
        tuned = torch.compile(self._built, mode="max-autotune-no-cudagraphs", dynamic=False)
        before = signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            tuned(planes)
        except _OutOfTime:
            self.is_tuned = False
            torch._dynamo.reset()
            return torch.compile(self._built, dynamic=False)  # type: ignore[no-any-return]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return tuned  # type: ignore[no-any-return]


def compiled_fp16(model: Model, seconds: float, fused: bool = False) -> Peer:
    """torch.compile in fp16, planes innermost: see Compiled."""
    built, prepare = cudnn_fp16(model, fused)
    return Compiled(built, seconds), prepare


PEERS: dict[str, Callable[[Model], Peer]] = {
    "cuDNN fp32": cudnn_fp32,
    "cuDNN TF32": cudnn_tf32,
    "cuDNN fp16": cudnn_fp16,
}


def prepared(pixels: NDArray[np.uint8], model: Model) -> Any:
    """A picture, or several of one size (n, height, width, planes), padded as the model says, then
    enlarged and cropped by its first nodes."""
    pictures = pixels[np.newaxis] if pixels.ndim == 3 else pixels
    more = [-size % model.multiple + model.padding for size in pictures.shape[1:3]]
    pads = [(0, 0), (model.padding, more[0]), (model.padding, more[1]), (0, 0)]
    mode = {"replicate": "edge", "reflect": "reflect", "zero": "constant"}[model.border]
    padded = np.pad(pictures, pads, mode=mode)  # type: ignore[call-overload]
    planes = torch.from_numpy(padded).cuda().float().permute(0, 3, 1, 2) / 255
    for node in model.nodes[: lead(model)]:
        if isinstance(node, Enlarge):
            planes = planes.repeat_interleave(node.factor, 2).repeat_interleave(node.factor, 3)
        elif isinstance(node, Crop):
            planes = planes[:, :, node.pixels : -node.pixels, node.pixels : -node.pixels]
    return planes.contiguous()


def result(peer: Peer, pixels: NDArray[np.uint8], model: Model) -> NDArray[np.float32]:
    """Returns a peer's result of a picture, (rows, columns, planes), clipped to [0, 1]."""
    run, prepare = peer
    with torch.inference_mode():
        planes = run(prepare(prepared(pixels, model)))[0].float().clamp(0, 1)
    height, width = pixels.shape[0] * model.scale, pixels.shape[1] * model.scale
    values: NDArray[np.float32] = planes.permute(1, 2, 0)[:height, :width].cpu().numpy()
    return values


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
    """Seconds of one run of `work`, by the device's events around several."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.inference_mode():
        before.record()
        for _ in range(repeats):
            work()
        after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) * 1e-3 / repeats
