"""Tests the CUDA backend without a device: sources, weights, choices, the compiler.

Where there is a device, the contract in test_backends.py tests the results of its kernels, and
tensor_maps.py those of each step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.by_hand.tensor_maps import unpacked
from tests.helpers import emulated_mma
from tests.helpers.attention import attention_model, channel_attention_model
from tests.helpers.graphs import RandomGraph, fit_padding, multiplied_maps, sampled_head
from waifu2x.backends import Device
from waifu2x.backends.cuda.arguments import Address, Struct, parameters, structs
from waifu2x.backends.cuda.compilers import Compiler, cached, nvcc, nvrtc
from waifu2x.backends.cuda.compilers.cached import target
from waifu2x.backends.cuda.compilers.nvrtc import Nvrtc
from waifu2x.backends.cuda.tensor import pack, runs
from waifu2x.backends.cuda.tensor.candidates import candidates, ranked
from waifu2x.backends.cuda.tensor.conv import (
    TensorConvStep,
    has_sparse_taps,
    sparse_taps,
)
from waifu2x.backends.cuda.tensor.executor import TensorExecutor, arranged, scales
from waifu2x.backends.cuda.tensor.layout import MapLayout, batch_grid, layouts
from waifu2x.backends.cuda.tensor.shape import (
    COLUMNS,
    MmaShape,
    RowsShape,
    TensorJob,
    WgmmaShape,
)
from waifu2x.backends.cuda.tensor.units import Units, available_units, choose_units, matrix_peak
from waifu2x.backends.cuda.tensor.vectors import Vectors
from waifu2x.backends.gpu.backend import lowered
from waifu2x.backends.gpu.device import launch, source
from waifu2x.backends.gpu.device.runtime import Limits, Macros, ReadyLaunch
from waifu2x.backends.gpu.executor import Batch, BufferPlace, DevicePixels, PassWork
from waifu2x.backends.gpu.plan import tile_plan
from waifu2x.backends.gpu.plan.tuning import Option
from waifu2x.errors import BackendError
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.conv import Conv
from waifu2x.lowering.passes.fusing import fused
from waifu2x.lowering.plan.box import Box
from waifu2x.networks import model_set
from waifu2x.networks.activations import Activation, elementwise, leaky
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.expressions import ACTIVATIONS, LEAKY, Expression
from waifu2x.networks.model import Model
from waifu2x.networks.nodes import (
    Add,
    Convolution,
    Dense,
    Enlarge,
    Gate,
    Interpolate,
    InterpolateTo,
    MaxPool,
    Mean,
    Multiply,
    Node,
    PixelShuffle,
    PixelUnshuffle,
    TransposedConvolution,
)
from waifu2x.networks.windows import Windows
from waifu2x.system.resources import shipped_kernels

CHIPS = {
    (7, 5): 64 << 10,
    (8, 0): 163 << 10,
    (8, 6): 99 << 10,
    (8, 9): 99 << 10,
    (9, 0): 227 << 10,
    (10, 0): 227 << 10,
    (12, 0): 99 << 10,
}
"""Compute capability, and the shared memory that a block may have (CUDA C++ Programming Guide)."""


FULLY = ((7, 5), (8, 0), (9, 0))
"""Chips whose kernels differ; for the others those that need most registers will do."""
QUICK = {(7, 5), (8, 9)}
"""The chips that every change is tested for; for (9, 0) it takes two minutes."""


class Recorded:
    """A runtime that only notes which kernels it is asked for."""

    allocated = 0

    def __init__(self, capability: tuple[int, int]) -> None:
        self.capability = capability
        self.shared_bytes = CHIPS[capability]
        self.device = Device("recorded", "")
        self.limits = Limits(False, 132, 1024, 48 << 10, 32, 1 << 40)
        self.wanted: dict[object, tuple[str, Macros]] = {}
        self.launched = 0
        self._end = 1 << 20

    def free_memory(self) -> int:
        return 1 << 40

    def allocate(self, size: int, **options: Any) -> Any:
        self._end += size + 256

        class Memory:
            address = self._end

            def release(self) -> None: ...

        memory = Memory()
        memory.size = size  # type: ignore[attr-defined]
        return memory

    def upload(self, buffer: Any, array: NDArray[Any]) -> None:
        assert buffer.size >= array.nbytes

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        for stem, macros in wanted:
            self.wanted[(stem, *macros.items())] = (stem, macros)

    def build(self, stem: str, macros: Macros) -> Any:
        self.prepare([(stem, macros)])

        class Program:
            def kernel(self, name: str, group: int, shared: int = 0) -> Any:
                return object()

        return Program()

    def handle(self, buffer: Any) -> int:
        return int(buffer.address)

    def packer(self, codes: str) -> Callable[..., bytes]:
        return struct.Struct(codes).pack

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        for one in launches:
            self.launch(one.kernel, one.groups)

    def launch(self, kernel: Any, groups: tuple[int, int, int], *arguments: Any) -> None:
        assert all(size > 0 for size in groups)
        self.launched += 1

    @contextmanager
    def timed(self) -> Iterator[list[tuple[None, float]]]:
        yield [(None, 1.0)]


def usual(step: int, candidates: Sequence[Option], work: str) -> Option:
    """A tuning.Choose that takes the usual candidate."""
    return candidates[0]


def record(
    runtime: Any, model: Model, units: Units, terms: int, size: tuple[int, int], pictures: int = 1
) -> None:
    """Whatever an executor does for pictures of a size."""
    program = arranged(lowered(model), units, terms)
    executor = TensorExecutor(runtime, program, units, terms, usual)
    found = tile_plan.find(executor, size, pictures, tile_plan.MapMemory(1 << 37, 1 << 37, 1 << 37))
    dtype, (height, width) = np.dtype(np.uint8), (size[0] * model.scale, size[1] * model.scale)
    before = DevicePixels(runtime.allocate(1), dtype, (pictures, *size, model.in_planes))
    after = DevicePixels(runtime.allocate(1), dtype, (pictures, height, width, model.out_planes))
    buffers = runtime.allocate(found.scratch), runtime.allocate(found.kept)
    vectors = runtime.allocate(executor.vector_bytes(pictures))
    makers = [*executor.clearing(vectors, pictures)]
    for phase, ((one,),) in zip(found.phases, found.passes, strict=True):
        places = {
            value: BufferPlace(buffers[place.is_kept], place.offset, place.box)
            for value, place in one.places.items()
        }
        batch = Batch(before, after, Box(0, 0, height, width), one.tile, found.sizes)
        makers += executor.launches(PassWork(batch, one.work, places, one.sums, vectors, phase))
    runtime.queue(launch.ready(runtime, makers))


def shipped(name: str) -> Model:
    """The doubling model of a set."""
    (model,) = model_set.find(name).models(2, None)
    return model


def kernels_of_chip(capability: tuple[int, int]) -> list[tuple[str, Macros]]:
    """Every kernel and macro set of the known models on a chip, for large pictures and small."""
    runtime: Any = Recorded(capability)
    fully = capability in FULLY
    for units in available_units(capability)[:-1]:
        matrix_peak(runtime, units)
    for name in ("vgg_7/art", "upconv_7/art", "cunet/art"):
        for units in available_units(capability)[: -1 if fully else 1]:
            for terms in (1, 2) if fully else (2,):
                record(runtime, shipped(name), units, terms, (540, 960))
                if units == "wgmma":
                    record(runtime, shipped(name), units, terms, (64, 64))
    for model in (resized(), odd(), activated(), multiplied_maps()):
        for units in available_units(capability)[: -1 if fully else 1]:
            for pictures in (1, 2) if fully else (1,):
                record(runtime, model, units, 2, (64, 64), pictures)
    sampled = sampled_head(2, 4), sampled_head(3, 3, planes=27), sampled_head(1, 4, planes=4)
    for model in (*attentive(), normed(), reduced(), *sampled):
        for terms in (1, 2):
            record(runtime, model, available_units(capability)[0], terms, (64, 64))
    if fully:
        record(runtime, shipped("vgg_7/art"), available_units(capability)[0], 1, (64, 64), 5)
        for pictures in (1, 2):
            for model in (resized(), paired(), multiplied_maps()):
                record(runtime, model, available_units(capability)[0], 1, (64, 64), pictures)
    return list(runtime.wanted.values())


def attentive() -> Iterator[Model]:
    """Attention of the field, of short and long heads."""
    for windows, heads, depth in (
        (Windows(8, 8, 4, 4), 6, 10),
        (Windows(6, 6, 3, 3, shifts_single=False), 6, 16),
        (Windows(8, 32, 4, 16, filled_to=32), 3, 30),
        (Windows(8, 8, cell=2), 2, 64),
    ):
        yield attention_model(windows, heads, depth)
    for heads, depth in ((6, 10), (6, 30), (1, 64)):
        yield channel_attention_model(heads, depth)


def normed() -> Model:
    """Norms and convolutions of each plane."""
    net = RandomGraph(3, 0)
    value = net.random_convolution(0, 60, 3, 1, 1, "linear")
    for taps in (3, 7):
        value = net.add(
            net.random_depthwise(net.random_norm(value), taps, taps // 2, "gelu"), value
        )
    net.random_convolution(value, 3, 3, 1, 1, "linear")
    return net.model()


def reduced() -> Model:
    """A map scaled by what is seen of it at a sixth of its size."""
    net = RandomGraph(3, 0)
    value = net.random_convolution(0, 48, 3, 1, 1, "linear")
    few = net.random_convolution(value, 16, 1, 1, 0, "linear")
    inner = net.random_convolution(few, 16, 3, 2, 0, "linear")
    inner = net.random_convolution(net.append(MaxPool(inner, 7, 3)), 16, 3, 1, 1, "linear")
    inner = net.add(net.append(InterpolateTo(inner, few)), few)
    value = net.multiply(value, net.random_convolution(inner, 48, 1, 1, 0, "sigmoid"))
    net.random_convolution(value, 3, 3, 1, 1, "linear")
    return net.model()


def report(compiler: Compiler, capability: tuple[int, int], stem: str, chosen: Macros) -> str:
    """Names the faults of a compiled kernel; empty if there are none."""
    architecture = target(capability, compiler.supported())
    assert architecture is not None
    defined, lines = source.definitions(chosen)
    options = ["--ptxas-options=-v", *defined]
    output = compiler.compile(f"{stem}.cu", lines + source.of(stem), architecture, options)
    assert output.code.startswith(b"\x7fELF"), "no cubin"
    clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    return "" if clean in output.log else f"{stem} {dict(chosen)}: {output.log[-300:]}"


@pytest.mark.parametrize(
    "capability",
    [
        pytest.param(chip, marks=pytest.mark.matrix if chip in QUICK else pytest.mark.long)
        for chip in CHIPS
    ],
    ids=lambda capability: f"sm_{capability}",
)
def test_kernels_compile_without_spills(nvrtc_here: Nvrtc, capability: tuple[int, int]) -> None:
    wanted = kernels_of_chip(capability)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(partial(report, nvrtc_here, capability), *zip(*wanted, strict=True))
        assert not [text for text in reports if text]


@pytest.mark.matrix
@pytest.mark.parametrize("capability", [(7, 5), (9, 0)], ids=lambda capability: f"sm_{capability}")
def test_nvcc_takes_every_source(capability: tuple[int, int]) -> None:
    compiler = nvcc.find()
    if compiler is None:
        pytest.skip("nvcc is not here")
    wanted = dict(kernels_of_chip(capability))
    assert len(wanted) > 4
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(
            partial(report, compiler, capability), *zip(*wanted.items(), strict=True)
        )
        assert not [text for text in reports if text]


BARE = """
import json, sys
from pathlib import Path
from waifu2x.backends.cuda.compilers import cached, nvcc, nvrtc

nvrtc._toolkits = lambda: []
for stem, macros, capability in json.loads(sys.argv[1]):
    code = cached.compiled(stem, macros, capability=tuple(capability), cuda=(12, 0))
    print("cubin" if code.startswith(b"\x7fELF") else code.splitlines()[0].decode())
"""


@pytest.mark.matrix
def test_nothing_but_a_wheel_is_needed(nvrtc_here: Nvrtc, tmp_path: Path) -> None:
    """No program on PATH, no toolkit: a kernel of each language, for a chip that NVRTC knows and
    for one that nobody does yet."""
    planewise = next(found for found in kernels_of_chip((8, 6)) if found[0] == "tensor_planewise")
    other = "peak", {"VECTOR": "float4", "WIDTH": 4, "GROUP": 64, "CHAINS": 2, "REPEATS": 8}
    wanted = [(*planewise, (8, 6)), (*other, (8, 6)), (*other, (99, 0))]
    folders = {
        "WAIFU2X_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(wanted)],
        env={"PATH": str(tmp_path), **folders, **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("cubin", "cubin")
    assert third.startswith("//")  # PTX, for the driver


def value_at(block: NDArray[np.float16], row: int, plane: int, group: int) -> np.float16:
    """A weight where the kernels look for it: see `swizzle_phase` in kernels/tensor.cuh."""
    phase = row & 7 if group == 64 else row >> 1 & 3
    return np.float16(block[row, ((plane // 8) ^ phase) * 8 + plane % 8])


@pytest.mark.parametrize(("inputs", "outputs", "side"), [(32, 32, 3), (64, 128, 3), (256, 64, 1)])
@pytest.mark.parametrize("units", ["wgmma", "mma"])
def test_weights_are_where_kernels_read_them(
    inputs: int, outputs: int, side: int, units: Units
) -> None:
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(outputs, inputs, side, side)).astype(np.float32)
    job = TensorJob(inputs, 64 if inputs % 64 == 0 else 32, outputs, side, 2, last=False)
    group, width, groups = job.group, job.width, inputs // job.group
    shape = candidates(job, units, (9, 0), CHIPS[9, 0])[0]
    found = shape.pack(weight, width, group, 2)
    assert found.shape == (outputs // width, 3 * groups, side**2, width, group)
    for _ in range(500):
        o, i = int(rng.integers(outputs)), int(rng.integers(inputs))
        ky, kx = rng.integers(side, size=2)
        row = o % width
        if units == "mma":
            # A thread of a quad stores 8 neighbours of 32 planes: two of each matrix product of 8.
            quarter, pair, odd = o % 32 // 8, o % 8 // 2, o % 2
            row += pair * 8 + quarter * 2 + odd - o % 32
        terms = [
            value_at(
                found[o // width, k_block * groups + i // group, ky * side + kx],
                row,
                i % group,
                group,
            )
            for k_block in range(3)
        ]
        exact = weight[o, i, ky, kx]
        assert terms[0] == terms[2] == np.float16(exact)
        assert abs(float(terms[0]) + float(terms[1]) - float(exact)) <= 2e-7 * abs(exact) + 3e-8


@pytest.mark.parametrize(("inputs", "group", "side"), [(64, 64, 3), (64, 32, 2), (32, 32, 3)])
def test_weights_in_registers_are_fragments(inputs: int, group: int, side: int) -> None:
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(128, inputs, side, side)).astype(np.float32)
    found = pack.pack_rows(weight, 64, group, 1)
    assert found.shape == (2, inputs // group, side**2, group // 16, 128, 4, 2)
    for _ in range(500):
        o, i = int(rng.integers(128)), int(rng.integers(inputs))
        ky, kx = rng.integers(side, size=2)
        # Rows 16 * warp + 8 * half + lane // 4 of 64, columns 8 * half + 2 * (lane % 4) of 16.
        thread = o % 64 // 16 * 32 + o % 8 * 4 + i % 8 // 2
        word = i % 16 // 8 * 2 + o % 16 // 8
        place = (o // 64, i // group, ky * side + kx, i % group // 16, thread, word, i % 2)
        assert found[place] == np.float16(weight[o, i, ky, kx])


def test_weights_of_three_rows_are_neighbours() -> None:
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(64, 96, 3, 3)).astype(np.float32)
    found = pack.pack_rolling(weight, 32, 32, 1)
    assert found.shape == (2, 3, 3, 5, 32, 32)
    for row in range(3):
        for part in range(3):
            # Row `row` of input is tap ky of that row of output whose number modulo 3 is `part`.
            ky = (row - part) % 3
            for o, i, kx in rng.integers((64, 96, 3), size=(50, 3)):
                block = found[o // 32, i // 32, kx, 2 - row + part]
                assert value_at(block, o % 32, i % 32, 32) == np.float16(weight[o, i, ky, kx])


@pytest.mark.parametrize("outputs", [3, 12])
def test_weights_of_few_planes_are_columns(outputs: int) -> None:
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(outputs, 128, 3, 3)).astype(np.float32)
    width = TensorJob(128, 64, outputs, 3, 1, last=True).width
    found = pack.pack_last(weight, width, 64, 1)
    assert found.shape == (1, 2, 3, width, 64)
    for o in range(outputs):
        for i in (0, 63, 64, 127):
            for ky in range(3):
                for kx in range(3):
                    value = value_at(found[0, i // 64, ky], kx * outputs + o, i % 64, 64)
                    assert value == np.float16(weight[o, i, ky, kx])
    assert all(value_at(found[0, 0, 0], row, 5, 64) == 0 for row in range(3 * outputs, width))


@pytest.mark.parametrize("inputs", [3, 1, 4])
@pytest.mark.parametrize("is_last", [False, True])
def test_weights_of_the_first_layer_are_fragments(inputs: int, is_last: bool) -> None:
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(64, inputs, 3, 3)).astype(np.float32)
    found = pack.pack_first(weight, 256 / 255, is_last)
    values = (3 * inputs + 1) // 2 * 2
    for o in range(64):
        # A thread of a quad has eight neighbours: two of each matrix product.
        eight, column = divmod(o % 32, 8) if is_last else (o % 8 // 2, o % 32 // 8 * 2 + o % 2)
        for ky in range(3):
            for kx in range(3):
                for plane in range(inputs):
                    k = ky * values + kx * inputs + plane
                    # The fragment of mma m16n8k16 (PTX ISA): column lane / 4, values by pairs.
                    k16, inside = divmod(k, 16)
                    word, pair = divmod(inside, 8)
                    lane, half = column * 4 + pair // 2, pair % 2
                    high, low = found[o // 32, k16, eight, lane, :, word, half].astype(float)
                    expected = float(weight[o, plane, ky, kx]) * 256 / 255
                    assert abs(high + low - expected) <= 2e-7 * abs(expected) + 3e-8


def test_planes_of_folded_values_and_of_parts_are_padded_each() -> None:
    folded = MapLayout((32,), 2, 64, 1)
    assert folded.stored == 128
    assert folded.planes(0, (20,)).tolist() == [
        32 * pixel + plane for pixel in range(4) for plane in range(20)
    ]
    parts = MapLayout((32, 64, 32), 1, 32, 1)
    assert parts.planes(1, (40, 3)).tolist() == [*range(40), 64, 65, 66]


@pytest.mark.parametrize(
    ("fold", "planes", "count"), [(1, 64, 1), (2, 64, 3), (1, 32, 2), (2, 32, 5)]
)
def test_maps_are_unpacked_as_kernels_store_them(fold: int, planes: int, count: int) -> None:
    """`piece_at` and `target_at` of kernels/tensor.cuh, once more."""
    layout = MapLayout((planes,), fold, 64 if planes * fold**2 % 64 == 0 else 32, 1)
    box, grid = Box(0, 0, 6, 10), batch_grid(count)
    to = layout.arguments(box, grid, 0, 0)
    raw = np.zeros(layout.bytes(box, grid), np.uint8)
    values = raw.view(np.float16)
    exact = np.random.default_rng(5).normal(size=(count, 6, 10, planes)).astype(np.float16)
    for (picture, y, x, c), value in np.ndenumerate(exact):
        plane = c + (y % fold * fold + x % fold) * planes
        row = y // fold + picture // grid.across * to.rows
        column = x // fold + picture % grid.across * to.columns
        phase = column & 7 if layout.group == 64 else column >> 1 & 3
        place = plane // layout.group * to.group * 16 + (plane % layout.group // 8 ^ phase) * 16
        place += (row * to.pitch + column) * layout.group * 2 + plane % 8 * 2
        values[place // 2] = value
    assert np.array_equal(unpacked(raw, layout, box, count), exact)


PEAK = "tensor_peak"
"""It takes no struct."""


class Place(NamedTuple):
    """A struct within others."""

    top: int
    left: int
    plane: int


KERNEL = """
struct Place {
    int top, left;  // of a pixel
    int plane;
};

struct Wide {
    const float* weight;
    int number;
};

struct Fields {
    const void* source;
    Place place;
    float slope;    // of all; planes
    unsigned long long* target;
    double scale;
    int number;
    Wide wide;
    Place places[COUNT];
};

extern "C" __global__ void __launch_bounds__(THREADS)
kernel(const __grid_constant__ Fields p,
       const __grid_constant__ Place q) {
"""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(source, "read", {"kernel.cu": KERNEL}.__getitem__)
    parameters.cache_clear()
    yield
    parameters.cache_clear()


@pytest.mark.usefixtures("kernel")
def test_arguments_are_structs_of_c() -> None:
    first = {
        "target": Address(5),
        "source": Address(1 << 40),
        "number": 7,
        "scale": 2.5,
        "slope": np.float32(0.5),
        "place": Place(1, 2, 3),
        "wide": {"number": 8, "weight": 9},
        "places": [Place(1, 1, 1), {"plane": 2, "top": 2, "left": 2}],
    }
    codes, values = structs("kernel", first, Place(8, 9, 10))
    expected = struct.pack(
        "PiiifPdi4xPi4x6i3i",
        *(1 << 40, 1, 2, 3, 0.5, 5, 2.5, 7, 9, 8),
        *(1, 1, 1, 2, 2, 2, 8, 9, 10),
    )
    assert struct.pack(codes, *values) == expected
    codes, values = structs("kernel", {**first, "place": None, "source": None, "wide": None}, None)
    assert values == [0, 0, 0, 0, 0.5, 5, 2.5, 7, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]
    for wrong in ({"slope": None}, {**first, "sloop": 1}, {**first, "place": {"top": 1}}):
        with pytest.raises(TypeError, match=r"^struct (Fields|Place): "):
            structs("kernel", wrong, None)
    with pytest.raises(ValueError, match="argument"):
        structs("kernel", first)


def codes_of(struct: Struct) -> str:
    """The codes of a struct, two elements of arrays."""
    aligned = "0P" if struct.is_wide else ""
    codes = (codes_of_field(*field) for field in struct.fields.values())
    return f"{aligned}{''.join(codes)}{aligned}"


def codes_of_field(kind: str | Struct, is_array: bool) -> str:
    return (kind if isinstance(kind, str) else codes_of(kind)) * (2 if is_array else 1)


def layout_checks(found: Struct) -> Iterator[str]:
    """Yields assertions in C++ on the layout of a struct, and of those in it."""
    yield f"static_assert(sizeof({found.name}) == {struct.calcsize(codes_of(found))});"
    before = ""
    for name, (kind, is_array) in found.fields.items():
        before += codes_of_field(kind, is_array)
        place = f"offsetof({found.name}, {name}) + sizeof({found.name}::{name})"
        yield f"static_assert({place} == {struct.calcsize(before)});"
        if isinstance(kind, Struct):
            yield from layout_checks(kind)


@pytest.mark.parametrize(
    "stem", sorted(path.stem for path in shipped_kernels().glob("tensor_*.cu") if path.stem != PEAK)
)
def test_structs_lie_as_compilers_lay_them_out(stem: str, tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("no g++ is here")
    found = parameters(stem)
    assert found
    checks = [check for each in found for check in layout_checks(each)]
    known = {name for check in checks for name in re.findall(r"offsetof\((\w+)", check)}
    text = source.read(f"{stem}.cu")
    bodies = re.findall(r"^struct (\w+) (\{.*?^\};)", text, re.DOTALL | re.MULTILINE)
    written = [f"struct {name} {body}" for name, body in bodies if name in known]
    head = "#include <cstddef>\n#include <cstdint>\n#define MOST_TASKS 2\nstruct float2;\n"
    path = tmp_path / "structs.cc"
    path.write_text(head + "\n".join((*written, *checks)))
    command = ["g++", "-fsyntax-only", "-Werror", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_programs_that_matrix_units_run() -> None:
    for name in ("vgg_7/art", "upconv_7/art", "cunet/art"):
        program = lower(shipped(name))
        assert runs.runs(program, layouts(program, 1))
        for pictures in (1, 3):
            runtime: Any = Recorded((9, 0))
            record(runtime, shipped(name), "wgmma", 2, (36, 40), pictures)
            assert runtime.launched >= len(program.steps) - 8
    # Few planes of the picture at once, and a mean of few planes, are for other units.
    many = (conv(0, 3, 48), PixelShuffle(1, 4))
    vector = np.ones((3, 3), np.float32), np.zeros(3, np.float32), leaky(0.1, 3)
    mean = (conv(0, 3, 3), Mean(1), Dense(2, *vector), Multiply(1, 3))
    for nodes in (many, mean):
        program = lower(fit_padding("other", 3, nodes))
        assert not runs.runs(program, layouts(program, 1))


def compact(scale: int) -> Model:
    """Zeros around, slopes of each plane's own, and the picture added, enlarged."""
    nodes: list[Node] = []
    for made, read in ((64, 3), (64, 64), (3 * scale**2, 64)):
        weight = np.full((made, read, 3, 3), 0.1 / read, np.float32)
        bias = np.zeros(made, np.float32)
        activation = Activation(LEAKY, np.linspace(-1, 2, made, dtype=np.float32))
        if made != 64:
            activation = leaky(1, made)
        nodes.append(Convolution(len(nodes), weight, bias, activation, padding=1))
    nodes += [PixelShuffle(3, scale), Enlarge(0, scale), Add(4, 5)]
    return fit_padding("compact", 3, tuple(nodes), "zero")


def resized() -> Model:
    """Half as large as it was made."""
    model = compact(4)
    return fit_padding("resized", 3, (*model.nodes, Interpolate(len(model.nodes), 1, 2)), "zero")


def paired() -> Model:
    """Two convolutions at the end that are one kernel, zeros around the map between them."""
    nodes = tuple(
        replace(conv(number, *planes), padding=1)
        for number, planes in enumerate(((3, 64), (64, 64), (64, 3)))
    )
    return fit_padding("paired", 3, nodes, "zero")


def odd() -> Model:
    """A network of layers that the other networks here lack, though files may have them."""
    weight, bias = np.ones((3, 64, 3, 3), np.float32), np.zeros(3, np.float32)
    nodes = (
        PixelUnshuffle(0, 2),
        replace(conv(1, 12, 64), padding=1),
        Gate(2, 2),
        TransposedConvolution(3, weight, bias, leaky(0.1, 3), 3),
        Convolution(4, np.ones((3, 3, 1, 1), np.float32), bias, leaky(1, 3)),
        TransposedConvolution(5, np.ones((3, 3, 2, 2), np.float32), bias, leaky(0.1, 3), 2),
    )
    return fit_padding("odd", 3, nodes)


def activated() -> Model:
    """Every activation behind layers of each kind."""
    net = GraphBuilder("activated", 3)

    def conv(source: int, made: int, function: Expression) -> int:
        weight = np.ones((made, net.planes(source), 3, 3), np.float32)
        activation = Activation(function, np.linspace(-1, 2, made, dtype=np.float32))
        return net.convolution(source, weight, np.zeros(made, np.float32), activation, padding=1)

    value = 0
    for function in ACTIVATIONS.values():
        value = conv(conv(conv(value, 32, function), 64, function), 3, function)
        weight, bias = np.ones((64, 64), np.float32), np.zeros(64, np.float32)
        wide = conv(value, 64, function)
        factors = net.dense(net.mean(wide), weight, bias, elementwise(function, 64))
        value = net.multiply(wide, factors)
    conv(value, 3, ACTIVATIONS["leaky"])
    return net.model()


@pytest.mark.parametrize("pictures", [1, 3])
@pytest.mark.parametrize("name", ["compact", "resized", "odd", "activated", "multiplied"])
def test_networks_of_other_makers_run_on_matrix_units(name: str, pictures: int) -> None:
    models = {"compact": compact(3), "resized": resized(), "odd": odd(), "activated": activated()}
    models["multiplied"] = multiplied_maps()
    model = models[name]
    program = lower(model)
    assert runs.runs(program, layouts(program, 1))
    runtime: Any = Recorded((9, 0))
    record(runtime, model, "wgmma", 2, (36, 40), pictures)
    takes = scales("wgmma", 2)
    steps = fused(program, scales=takes, resizes=takes, own_gates=takes).steps
    # Sums are cleared before all else; a mean and the layer behind it are one launch.
    assert runtime.launched == len(steps) + (name == "activated")


def conv(source: int, inputs: int, outputs: int) -> Convolution:
    weight = np.zeros((outputs, inputs, 3, 3), np.float32)
    return Convolution(source, weight, np.zeros(outputs, np.float32), leaky(0.1, outputs))


def test_slopes_stand_beside_biases() -> None:
    bias = np.array([1, 2], np.float32)
    follows = pack.pack_epilogue(
        bias, Activation(LEAKY, np.array([3, -4], np.float32)), [1, 32], 64
    )
    assert follows[:, [1, 32]].tolist() == [[1, 2], [3, -4]]
    assert not follows[:, [0, *range(2, 32), *range(33, 64)]].any()


@pytest.mark.parametrize("capability", CHIPS)
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize(
    "planes",
    [
        (32, 32, 3),
        (64, 64, 3),
        (128, 256, 3),
        (256, 12, 3),
        (128, 3, 3),
        (512, 128, 1),
        (128, 512, 1),
        (768, 12, 1),
    ],
)
def test_every_chip_has_a_shape_for_every_convolution(
    capability: tuple[int, int], terms: int, planes: tuple[int, int, int]
) -> None:
    inputs, outputs, side = planes
    job = TensorJob(inputs, 64 if inputs % 64 == 0 else 32, outputs, side, terms, last=outputs < 32)
    for units in available_units(capability)[:-1]:
        shapes = candidates(job, units, capability, CHIPS[capability])
        assert shapes
        for shape in shapes:
            assert shape.shared(job) <= CHIPS[capability]
            if isinstance(shape, WgmmaShape):
                assert shape.rows % shape.warpgroups == 0


def test_factors_stand_in_pairs() -> None:
    """As convolutions read them: for each picture, behind vectors of whatever length."""
    net = GraphBuilder("squeezed", 3)
    weight, bias = np.ones((64, 3, 3, 3), np.float32), np.zeros(64, np.float32)
    wide = net.convolution(0, weight, bias, leaky(0.1, 64))
    few = np.ones((5, 64), np.float32), np.zeros(5, np.float32), leaky(0.0, 5)
    factors = net.dense(net.mean(wide), *few)
    factors = net.dense(factors, np.ones((64, 5), np.float32), bias, leaky(1.0, 64))
    weight = np.ones((64, 64, 1, 1), np.float32)
    value = net.convolution(net.multiply(wide, factors), weight, bias, leaky(0.1, 64))
    net.convolution(value, np.ones((3, 64, 1, 1), np.float32), bias[:3], leaky(1.0, 3))
    program = fused(lower(net.model()))
    (scaled,) = (step for step in program.steps if isinstance(step, Conv) and step.factors)
    runtime: Any = Recorded((9, 0))
    vectors = Vectors(runtime, program)
    assert scaled.factors is not None
    assert vectors.vector_places[scaled.factors] % 2 == 0
    assert vectors.places(runtime.allocate(1 << 10), 3).vectors_each % 2 == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_hides_infinite_sums_is_made_by_kernels_that_look_at_sums(name: str) -> None:
    """`tensor_rows` looks at what it stores: nothing is to be made a number on the way there."""
    function = ACTIVATIONS[name]
    net = GraphBuilder(name, 3)
    value = 0
    for made in (64, 64, 3):
        weight = np.ones((made, net.planes(value), 3, 3), np.float32)
        activation = elementwise(function, made)
        value = net.convolution(value, weight, np.zeros(made, np.float32), activation, padding=1)
    runtime: Any = Recorded((9, 0))
    middle = TensorExecutor(runtime, lower(net.model()), "wgmma", 1, usual)._steps[1]
    assert isinstance(middle, TensorConvStep)
    with np.errstate(invalid="ignore"):
        hides = np.isfinite(elementwise(function, 2)(np.array([np.inf, -np.inf]))).any()
    assert any(isinstance(shape, RowsShape) for shape in middle._candidates) == (not hides)


@pytest.mark.matrix
@pytest.mark.parametrize(("planes", "terms"), [(32, 2), (64, 1)])
def test_every_shape_of_mma_makes_the_same_on_emulated_warps(
    planes: int, terms: int, tmp_path: Path
) -> None:
    """Teams, loose warps, rings of rows and none of these, as every chip takes them."""
    if not shutil.which("g++"):
        pytest.skip("no g++ is here")
    group = 64 if planes % 64 == 0 else 32
    assert not emulated_mma.differing(
        TensorJob(planes, group, planes, 3, terms, last=False), tmp_path
    )


def test_small_pictures_get_more_blocks() -> None:
    job = TensorJob(64, 64, 64, 3, 1, last=False)
    large, small = (MmaShape(rows, 2, (32, 64), b_stages=3) for rows in (4, 2))
    assert ranked(job, [large, small], 1080, 1920, 132) == ([large, small], "large")
    assert ranked(job, [large, small], 60, 60, 132) == ([small, large], "small")
    # As many rows for the busiest multiprocessor: the order stays.
    assert ranked(job, [large, small], 264, 2 * COLUMNS, 132) == ([large, small], "small")
    # Few tiles of many planes are divided by planes, too.
    deep = TensorJob(256, 64, 128, 3, 1, last=False)
    best = ranked(deep, candidates(deep, "wgmma", (9, 0), CHIPS[9, 0]), 40, 40, 132)[0][0]
    assert best.width(deep) == 32


def test_few_tiles_have_the_rows_that_fill_the_last_round() -> None:
    dense = TensorJob(256, 32, 64, 3, 1, last=False)
    shapes = candidates(dense, "wgmma", (9, 0), CHIPS[9, 0])
    # 8 tiles across: 34 down of eight rows, or 46 of six, are three rounds.
    best, size_class = ranked(dense, shapes, 272, 482, 132)
    assert (shapes[0].rows, best[0].rows, size_class) == (8, 6, "middle")
    assert set(best) == set(shapes)
    assert ranked(dense, shapes, 1080, 1920, 132) == (shapes, "large")


def test_units_of_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    expected: dict[tuple[int, int], tuple[Units, ...]] = {
        (6, 1): ("fma",),
        (7, 5): ("mma", "fma"),
        (9, 0): ("wgmma", "mma", "fma"),
        (12, 0): ("mma", "fma"),
    }
    for capability, units in expected.items():
        assert available_units(capability) == units
    monkeypatch.delenv("WAIFU2X_CUDA_UNITS", raising=False)
    assert choose_units((9, 0)) == "wgmma"
    monkeypatch.setenv("WAIFU2X_CUDA_UNITS", "mma")
    assert choose_units((9, 0)) == "mma"
    with pytest.raises(BackendError, match="WAIFU2X_CUDA_UNITS=mma: this device has fma"):
        choose_units((6, 1))


@pytest.mark.parametrize(
    ("capability", "supported", "architecture"),
    [
        ((9, 0), [75, 80, 90], "sm_90a"),
        ((8, 9), [75, 80, 86, 89], "sm_89"),
        ((8, 9), [75, 80, 86], "sm_86"),
        ((12, 1), [90, 100, 120], "sm_120"),
        ((12, 0), [80, 90], "compute_90"),
        ((6, 1), [75, 80], None),
    ],
)
def test_code_for_chips_that_a_compiler_does_not_know(
    capability: tuple[int, int], supported: list[int], architecture: str | None
) -> None:
    assert target(capability, supported) == architecture


@pytest.fixture
def fake_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that writes "code" and counts its runs; the only compiler to be found."""
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    path = home / "bin" / "nvcc"
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --list-gpu-code ]; then echo sm_80; exit; fi\n'
        f"echo run >> {home}/runs\n"
        f"if [ -e {home}/broken ]; then echo 'x.cu(3): error: no such thing' >&2; exit 1; fi\n"
        'while [ "$1" != -o ]; do shift; done\n'
        'printf code > "$2"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "find", lambda cuda: None)
    return home


def run_count(home: Path) -> int:
    log = home / "runs"
    return len(log.read_text().splitlines()) if log.exists() else 0


def compiled(stem: str, macros: Macros, capability: tuple[int, int] = (8, 0)) -> bytes:
    """For a driver of CUDA 12.4."""
    return cached.compiled(stem, macros, capability=capability, cuda=(12, 4))


def test_a_warm_start_needs_no_compiler(fake_nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled("tensor_first", {"A": 1}) == b"code"
    assert run_count(fake_nvcc) == 1
    monkeypatch.setattr(nvcc, "find", lambda: None)
    assert compiled("tensor_first", {"A": 1}) == b"code"
    assert cached.has_kept()
    reason = (
        r"lacks a kernel: its kernels are compiled once, by NVRTC for CUDA 12.4 or older, which is"
        r" not here; run `pip install 'waifu2x-kernels\[cuda\]'`, or use another backend$"
    )
    for stem, chosen, capability in (
        ("tensor_first", {"A": 2}, (8, 0)),
        ("tensor_mma", {"A": 1}, (8, 0)),
        ("tensor_first", {"A": 1}, (8, 6)),
    ):
        with pytest.raises(BackendError, match=reason):
            compiled(stem, chosen, capability)


def test_a_damaged_entry_is_compiled_again(fake_nvcc: Path, tmp_path: Path) -> None:
    compiled("tensor_first", {})
    (entry,) = (tmp_path / "cache" / "cuda").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"x")
    assert compiled("tensor_first", {}) == b"code"
    assert run_count(fake_nvcc) == 2


def test_a_compiler_that_fails_is_a_sentence(fake_nvcc: Path) -> None:
    (fake_nvcc / "broken").touch()
    with pytest.raises(BackendError, match=r"cannot compile tensor_first.cu for sm_80 \(x.cu\(3\)"):
        compiled("tensor_first", {})


def test_a_compiler_that_is_too_new_is_a_sentence(fake_nvcc: Path) -> None:
    with pytest.raises(BackendError, match=r"nvcc is too new for this device \(sm_61\); run `pip"):
        compiled("direct", {}, (6, 1))


@pytest.mark.matrix
def test_nvrtc_that_fails_is_a_sentence(
    nvrtc_here: Nvrtc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    with pytest.raises(
        BackendError, match=r"^NVRTC \d+ cannot compile tensor_first.cu for sm_80 \("
    ) as e:
        compiled("tensor_first", {})  # its macros are missing
    assert "error" in str(e.value)
    assert "\n" not in str(e.value)
    damaged = tmp_path / "libnvrtc.so.12"
    damaged.write_text("no library")
    monkeypatch.setattr(nvrtc, "find", lambda cuda: Nvrtc(damaged, 12))
    with pytest.raises(BackendError, match=r"libnvrtc.so.12: .*; install it anew, or use another"):
        compiled("tensor_first", {})


@pytest.mark.parametrize(
    ("twelve", "thirteen"),
    [
        ("cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13"),
        ("cuda_nvrtc/bin/nvrtc64_120_0.dll", "cu13/bin/x86_64/nvrtc64_130_0.dll"),
    ],
)
def test_nvrtc_is_taken_from_wheels_then_from_toolkits_if_the_driver_takes_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twelve: str, thirteen: str
) -> None:
    wheels, toolkit = tmp_path / "nvidia", tmp_path / "toolkit"
    monkeypatch.setattr(nvrtc, "_wheels", lambda: sorted(wheels.iterdir()))
    monkeypatch.setattr(nvrtc, "_toolkits", lambda: [toolkit])

    def found(cuda: int) -> Path | None:
        one = nvrtc.find(cuda)
        return one.path if one else None

    def put(path: Path) -> Path:
        path.parent.mkdir(parents=True)
        for name in (path.name, path.name.replace("nvrtc", "nvrtc-builtins"), f"{path.name}.alt"):
            (path.parent / name).touch()
        return path

    wheels.mkdir()
    assert found(13) is None
    kit = put(toolkit / "lib64/libnvrtc.so.12")
    assert (found(13), found(12), found(11)) == (kit, kit, None)
    newer = put(wheels / thirteen)
    assert (found(13), found(12)) == (newer, kit)
    older = put(wheels / twelve)
    assert (found(13), found(12), found(11)) == (older, older, None)


def test_an_old_driver_is_a_sentence() -> None:
    assert cached.missing((11, 8)) == (
        "its kernels are compiled once, and NVRTC needs a driver for CUDA 12.0 or newer, not 11.8;"
        " update NVIDIA's driver, or use another backend"
    )


def test_sources_hold_what_they_include() -> None:
    text = source.read("tensor_wgmma.cu")
    assert '#include "' not in text
    assert "store_row" in text


def test_what_an_enlargement_repeats_is_multiplied_once() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(32, 64, 3, 3)).astype(np.float32)
    same = Convolution(2, weight, np.zeros(32, np.float32), leaky(0.1, 32), padding=1)
    first = replace(conv(0, 3, 64), padding=1)
    model = fit_padding("enlarged", 3, (first, Enlarge(1, 2), same))
    step = next(
        step for step in lower(model).steps if isinstance(step, Conv) and step.depth_to_space > 1
    )
    assert has_sparse_taps(step)
    taps = sparse_taps(step)
    assert taps.shape == (128, 64, 2, 2)
    # Pixel (1, 0) reads the rows from the second on, and the columns from the first on.
    lower_left = taps[64:96]
    assert np.allclose(lower_left.sum((2, 3)), weight.sum((2, 3)), atol=1e-5)
    assert np.array_equal(lower_left, step.weight[64:96, :, 1:, :2])
    assert not has_sparse_taps(replace(step, weight=np.ones_like(step.weight)))
    assert not has_sparse_taps(replace(step, depth_to_space=1))
