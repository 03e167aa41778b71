"""The kernels of `kernels/*.cl` through NVIDIA's compilers: the other half of `dialect.h`.

It needs no GPU, and tells of each kernel what its registers cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.helpers.attention import attention_model, channel_attention_model
from tests.helpers.graphs import (
    RandomGraph,
    fit_padding,
    grouped_convolutions,
    kernels_of_many_taps,
    multiplied_maps,
    norms,
    norms_of_groups,
    reduced_maps,
    sampled_head,
)
from waifu2x.backends import Device
from waifu2x.backends.cuda.compilers import nvcc
from waifu2x.backends.cuda.compilers.cached import target
from waifu2x.backends.gpu.device import peak, source
from waifu2x.backends.gpu.device.planar import DevicePlanes, PlaneKernels
from waifu2x.backends.gpu.device.runtime import Limits, Macros
from waifu2x.backends.gpu.executor import DevicePixels
from waifu2x.backends.gpu.fp32.executor import Fp32Executor
from waifu2x.backends.gpu.plan.launch_plan import Ends, LaunchPlans
from waifu2x.backends.gpu.transformed_mean import Transforms
from waifu2x.backends.tta import TRANSFORMS
from waifu2x.imaging.planar import DEPTHS, SITINGS, SUBSAMPLINGS, PlaneFormat
from waifu2x.lowering.lower import lower
from waifu2x.networks import model_set
from waifu2x.networks.activations import elementwise, leaky
from waifu2x.networks.expressions import ACTIVATIONS
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Convolution,
    Crop,
    Enlarge,
    Interleave,
    Node,
    PixelShuffle,
    PixelUnshuffle,
)
from waifu2x.networks.windows import Windows

CHIPS = [61, 75, 80, 86, 89, 90, 120]
CHIPS_IN_FULL = 90
"""For this one everything is compiled, for the others what is closest to the limits."""
LIKE_ANOTHER = 86
"""Its multiprocessors have what those of 89 have."""
COUNTS = {"IN_PLANES", "OUT_PLANES", "SUB_PLANES", "SUB_BLOCKS", "STORED", "PLANES", "PART_PLANES"}
COUNTS |= {"SOURCE_BLOCKS", "TARGET_BLOCKS", "BLOCKS", "INPUTS", "OUTPUTS"}
"""Macros that only say how many planes there are."""


class Build(NamedTuple):
    """One kernel as it is specialised."""

    stem: str
    macros: tuple[tuple[str, str | int], ...]
    usual: bool
    """Rather than one that only the tuner may choose."""


class Recorder:
    """A Runtime of a GPU that only notes what would be compiled for it."""

    device = Device("recorder", "")
    limits = Limits(
        is_cpu=False,
        compute_units=100,
        max_group=1024,
        local_bytes=48 << 10,
        vector=32,
        max_buffer=1 << 40,
    )

    def __init__(self) -> None:
        self.builds: dict[tuple[str, tuple[Any, ...]], Build] = {}
        self.usual = True

    def build(self, stem: str, macros: Macros) -> Any:
        key = stem, tuple(item for item in macros.items() if item[0] not in COUNTS)
        self.builds.setdefault(key, Build(stem, tuple(macros.items()), self.usual))
        return SimpleNamespace(kernel=lambda name, group, shared: None)

    def allocate(self, size: int, **options: Any) -> Any:
        return SimpleNamespace(size=size, release=lambda: None)

    def prepare(self, wanted: Any) -> None:
        pass

    def upload(self, buffer: Any, array: Any) -> None:
        pass

    def handle(self, buffer: Any) -> int:
        return 0

    def packer(self, codes: str) -> Any:
        return lambda *values: values

    def launch(self, kernel: Any, groups: Any, *arguments: Any) -> None:
        pass

    def timed(self) -> Any:
        raise InterruptedError


class Choice:
    """A Choose that takes the nth candidate of each step."""

    def __init__(self, index: int) -> None:
        self._index = index
        self.more = False

    def __call__(self, step: int, candidates: Sequence[Any], work: str) -> Any:
        self.more |= len(candidates) > self._index + 1
        return candidates[min(self._index, len(candidates) - 1)]


def everything() -> Model:
    """A network with what those of the field do not have."""

    def convolution(source: int, read: int, made: int, kind: str = "leaky") -> Convolution:
        weight, bias = np.ones((made, read, 3, 3), np.float32), np.zeros(made, np.float32)
        activation = leaky(0.1, made) if kind == "leaky" else elementwise(ACTIVATIONS[kind], made)
        return Convolution(source, weight, bias, activation)

    curved = [convolution(9 + n, 64 if n else 12, 64, name) for n, name in enumerate(ACTIVATIONS)]
    nodes: tuple[Node, ...] = (
        convolution(0, 3, 32, "sigmoid"),
        convolution(1, 32, 64, "sigmoid"),
        convolution(2, 64, 64),
        Crop(2, 1),
        Add(3, 4, 0.2),
        PixelShuffle(5, 2),
        PixelUnshuffle(6, 2),
        Enlarge(7, 2),
        convolution(8, 64, 12),
        *curved,
        convolution(9 + len(ACTIVATIONS), 64, 24),
    )
    return fit_padding("everything", 3, nodes, "reflect")


def attention() -> Iterator[Model]:
    """Windows and heads of the field: SwinIR and its light form, swin_unet, DAT, HAT, SRFormer."""
    for windows, depth in (
        (Windows(8, 8, 4, 4), 30),
        (Windows(8, 8), 10),
        (Windows(6, 6, 3, 3, shifts_single=False), 16),
        (Windows(6, 6), 32),
        (Windows(8, 32, 4, 16, filled_to=32), 30),
        (Windows(16, 16, overlap=4), 30),
        (Windows(16, 16, 8, 8, cell=2), 30),
    ):
        yield attention_model(windows, depth=depth)
    for heads, depth in ((6, 10), (6, 30), (1, 64)):
        yield channel_attention_model(heads, depth)
        yield channel_attention_model(heads, depth, window=8)
    yield channel_attention_model(4, 16, period=8)
    yield spread()
    yield sampled_head(2, 4)
    yield sampled_head(3, 1, planes=40)
    yield sampled_head(1, 2, planes=4)


def spread() -> Model:
    """Pixels at other places, by vectors and one plane after the other."""
    net = RandomGraph(3, 0)
    value = net.append(Interleave(net.random_convolution(0, 40, 3, 1, 1, "linear"), 8))
    value = net.append(Interleave(net.concatenate(value, 0, value), 8, inverse=True))
    net.random_convolution(value, 3, 3, 1, 1, "linear")
    return net.model(multiple=8)


def builds() -> list[Build]:
    """The kernels that the fp32 executor compiles for a GPU, for pixels of bytes; those of TTA and
    those of YUV planes."""
    recorder: Any = Recorder()
    with pytest.raises(InterruptedError):
        peak.multiply_add_peak(recorder)
    names = [("vgg_7/art", 2, None), ("upconv_7/art", 2, None), ("cunet/art", 2, None)]
    models = [model_set.find(name).models(scale, noise)[0] for name, scale, noise in names]
    operations = [multiplied_maps(), kernels_of_many_taps(), grouped_convolutions(), norms()]
    operations += [norms_of_groups(), reduced_maps()]
    models += [everything(), *operations, *attention()]
    programs = [lower(model) for model in models]
    transforms = Transforms(recorder)
    for dtype in map(np.dtype, (np.uint8, np.uint16, np.float32)):
        pixels = DevicePixels(recorder.allocate(0), dtype, (1, 5, 7, 3))
        total = DevicePixels(recorder.allocate(0), np.dtype(np.float32), pixels.shape)
        transforms.transform(pixels, TRANSFORMS[2][1], pixels)
        transforms.add(total, TRANSFORMS[2][1], total, first=True)
        transforms.finish(total, 2, pixels)
    conversions = PlaneKernels(recorder)
    windows = DevicePixels(recorder.allocate(0), np.dtype(np.float32), (1, 5, 7, 15))
    of_frames = Model("of frames", 15, (Crop(0, 0),), 0, frames=5)
    kinds = [PlaneFormat(bits, "444", "rgb") for bits in DEPTHS]
    for bits, subsampling, siting in product(DEPTHS, SUBSAMPLINGS, SITINGS):
        kinds.append(PlaneFormat(bits, subsampling, siting=siting))
    for kind in kinds:
        planes = DevicePlanes(kind, (5, 7), recorder.allocate(0))
        conversions.to_pixels(planes, total, range(5), 0)
        conversions.to_planes(total, planes, range(3), 0)
        conversions.to_windows(planes, windows, of_frames)
    levels = np.dtype(np.uint8)
    choice = Choice(0)
    while True:
        for program in programs:
            plans = LaunchPlans(recorder, Fp32Executor(recorder, program, choice))
            assert plans.build(Ends(1, levels, levels), (64, 64))
        if not choice.more:
            return list(recorder.builds.values())
        choice = Choice(choice._index + 1)
        recorder.usual = False


@pytest.mark.parametrize(
    ("compiler", "chip"),
    [
        pytest.param(
            *("nvrtc", chip),
            marks=pytest.mark.long if chip == LIKE_ANOTHER else pytest.mark.matrix,
        )
        for chip in CHIPS
    ]
    + [pytest.param("nvcc", 80, marks=pytest.mark.matrix)],
)
def test_every_kernel_compiles_and_the_usual_ones_fit_the_registers(
    compiler: str, chip: int, request: pytest.FixtureRequest
) -> None:
    found = nvcc.find() if compiler == "nvcc" else request.getfixturevalue("nvrtc_here")
    if found is None:
        pytest.skip("nvcc is not here")
    architecture = target((chip // 10, chip % 10), found.supported())
    if architecture is None or not architecture.startswith("sm_"):
        pytest.skip(f"this {compiler} makes no code for sm_{chip}")
    wanted = builds()
    stems = {"direct", "winograd", "peak", "planewise", "avg_pool", "linear", "transform", "planar"}
    stems |= {"attention", "channel_attention", "plane_attention"}
    stems |= {"depthwise", "layer_norm", "norm_vector"}
    assert stems == {build.stem for build in wanted}
    if compiler == "nvcc":  # which has the same parts: one kernel of each source will do
        wanted = list({build.stem: build for build in wanted if build.usual}.values())
    elif chip != CHIPS_IN_FULL:
        wanted = [
            build
            for build in wanted
            if build.usual
            and build.stem
            in ("winograd", "direct", "planar", "attention", "channel_attention", "plane_attention")
        ]

    def report(number: int) -> str:
        stem, macros, _ = wanted[number]
        defined, lines = source.definitions(dict(macros))
        options = ["--ptxas-options=-v", *defined]
        return found.compile(f"{stem}.cl", lines + source.of(stem), architecture, options).log

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(report, range(len(wanted))))
    for build, text in zip(wanted, reports, strict=True):
        figures = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", text)
        assert figures, text
        assert len(figures) % 3 == 0, text
        # ptxas may trade a register for room for one more group. The tuner may choose what spills
        # a little more, where that is faster all the same.
        assert sum(map(int, figures)) <= (16 if build.usual else 256), (build, text)
