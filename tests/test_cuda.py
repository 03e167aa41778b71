"""What of the CUDA backend can be told without a device: sources, weights, choices, the compiler.

What its kernels compute is the contract's matter, in test_backends.py, where there is a device.
"""

from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import obvious
from waifu2x import model_set
from waifu2x.backends.cuda import compiler, tensor_pack
from waifu2x.backends.cuda.tensor_shape import (
    COLUMNS,
    MmaShape,
    WgmmaShape,
    candidates,
    layer_of,
    macros,
    ranked,
)
from waifu2x.backends.cuda.units import Units, available_units, choose_units
from waifu2x.backends.gpu import source
from waifu2x.backends.gpu.runtime import Macros
from waifu2x.errors import BackendError
from waifu2x.model import Convolution
from waifu2x.resources import shipped_kernels

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


def kernels_of_chip(capability: tuple[int, int]) -> list[tuple[str, Macros]]:
    """Every kernel and macro set that the shipped models use on a chip."""
    (model,) = model_set.find("vgg_7/art").models(2, None)
    layers = model.convolutions
    wanted: list[tuple[str, Macros]] = []
    for units in available_units(capability):
        if units == "fma":
            continue
        for terms in (1, 2):
            for index, convolution in enumerate(layers[1:], start=1):
                layer = layer_of(convolution, terms, index == len(layers) - 1)
                for shape in candidates(layer, units, capability, CHIPS[capability]):
                    chosen = {**macros(layer, shape), "STACK": 0}
                    if layer.last:
                        chosen["PIXEL"] = 8
                    wanted.append((shape.stem, chosen))
    for terms in (1, 2):
        for bits in (8, 16, 32) if terms == 1 else (8,):
            first = tensor_pack.padded(layers[0].out_planes)
            wanted.append(
                (
                    "tensor_first",
                    {
                        "PLANES": 3,
                        "PIXEL": bits,
                        "OUT_PLANES": first,
                        "GROUP": tensor_pack.group_of(first),
                        "TERMS": terms,
                        "OLD": int(capability < (8, 0)),
                        "STACK": int(bits == 8),
                    },
                )
            )
    unique = {(stem, tuple(chosen.items())): (stem, chosen) for stem, chosen in wanted}
    return list(unique.values())


@pytest.mark.parametrize("capability", CHIPS, ids=lambda capability: f"sm_{capability}")
def test_kernels_compile_without_spills(capability: tuple[int, int], tmp_path: Path) -> None:
    nvcc = compiler.find_nvcc()
    if nvcc is None:
        if "nvcc" in os.environ.get("WAIFU2X_REQUIRE", "").split(","):
            raise AssertionError("nvcc is not here")
        pytest.skip("nvcc is not here")
    options = compiler.target(capability, [10 * major + minor for major, minor in CHIPS])

    def report(number: int, stem: str, chosen: Macros) -> str:
        command = [nvcc, *options, "-O3", "-std=c++17", "-Xptxas", "-v"]
        command += [f"-D{name}={value}" for name, value in chosen.items()]
        command += ["-o", str(tmp_path / f"{number}.cubin"), str(shipped_kernels() / f"{stem}.cu")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
        return "" if clean in done.stderr else f"{stem} {dict(chosen)}: {done.stderr[-300:]}"

    wanted = kernels_of_chip(capability)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = pool.map(report, range(len(wanted)), *zip(*wanted, strict=True))
        assert not [text for text in reports if text]


def value_at(block: NDArray[np.float16], row: int, plane: int, group: int) -> np.float16:
    """A weight where the kernels look for it: see `phase` in kernels/tensor.cuh."""
    phase = row & 7 if group == 64 else row >> 1 & 3
    return np.float16(block[row, ((plane // 8) ^ phase) * 8 + plane % 8])


@pytest.mark.parametrize(("inputs", "outputs"), [(32, 32), (64, 128), (20, 9), (200, 144)])
def test_weights_are_where_products_read_them(inputs: int, outputs: int) -> None:
    (layer,) = obvious.random_model([inputs, outputs], seed=1).convolutions
    shape = layer_of(layer, 2, last=False)
    group, width = shape.group, shape.width
    packed = tensor_pack.pack_middle(layer, width, 2)
    groups = shape.inputs // group
    assert packed.shape == (shape.outputs // width, 3 * groups, 9, width, group)
    rng = np.random.default_rng(2)
    for _ in range(500):
        o, i = int(rng.integers(shape.outputs)), int(rng.integers(shape.inputs))
        ky, kx = rng.integers(3, size=2)
        real = o < outputs and i < inputs
        weight = layer.weight[o, i, ky, kx] if real else np.float32(0)
        terms = [
            value_at(
                packed[o // width, visit * groups + i // group, ky * 3 + kx],
                o % width,
                i % group,
                group,
            )
            for visit in range(3)
        ]
        assert terms[0] == terms[2] == np.float16(weight)
        assert abs(float(terms[0]) + float(terms[1]) - float(weight)) <= 2e-7 * abs(weight) + 3e-8


def test_weights_of_the_last_layer_are_columns() -> None:
    (layer,) = obvious.random_model([128, 3], seed=3).convolutions
    packed = tensor_pack.pack_last(layer, 16, 1)
    assert packed.shape == (1, 2, 3, 16, 64)
    for o in range(3):
        for i in (0, 63, 64, 127):
            for ky in range(3):
                for kx in range(3):
                    found = value_at(packed[0, i // 64, ky], kx * 3 + o, i % 64, 64)
                    assert found == np.float16(layer.weight[o, i, ky, kx])
    assert all(value_at(packed[0, 0, 0], row, 5, 64) == 0 for row in range(9, 16))


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 32), (1, 20), (4, 70)])
def test_weights_of_the_first_layer_are_fragments(inputs: int, outputs: int) -> None:
    (layer,) = obvious.random_model([inputs, outputs], seed=4).convolutions
    packed = tensor_pack.pack_first(layer, 256 / 255)
    values = (3 * inputs + 1) // 2 * 2
    for o in range(outputs):
        for ky in range(3):
            for kx in range(3):
                for plane in range(inputs):
                    k = ky * values + kx * inputs + plane
                    # The fragment of mma m16n8k16 (PTX ISA): column lane / 4, values by pairs.
                    k16, inside = divmod(k, 16)
                    word, pair = divmod(inside, 8)
                    lane, half = o % 8 * 4 + pair // 2, pair % 2
                    high, low = packed[:, o // 32, k16, o % 32 // 8, word, lane, half].astype(float)
                    expected = float(layer.weight[o, plane, ky, kx]) * 256 / 255
                    assert abs(high + low - expected) <= 2e-7 * abs(expected) + 3e-8


def layer(inputs: int, outputs: int) -> Convolution:
    weight = np.zeros((outputs, inputs, 3, 3), np.float32)
    return Convolution(weight, np.zeros(outputs, np.float32), 0.1)


@pytest.mark.parametrize("capability", CHIPS)
@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("planes", [(32, 32), (64, 64), (128, 128), (128, 3), (224, 160)])
def test_every_chip_has_a_shape_for_every_layer(
    capability: tuple[int, int], terms: int, planes: tuple[int, int]
) -> None:
    last = planes[1] == 3
    job = layer_of(layer(*planes), terms, last)
    for units in available_units(capability)[:-1]:
        shapes = candidates(job, units, capability, CHIPS[capability])
        assert shapes
        for shape in shapes:
            assert shape.shared(job) <= CHIPS[capability]
            if isinstance(shape, WgmmaShape):
                assert shape.rows % shape.warpgroups == 0


def test_small_pictures_get_more_blocks() -> None:
    large, small = MmaShape(4, 2, False), MmaShape(2, 2, False)
    assert ranked([large, small], 1080, 1920, 132) == ([large, small], "large")
    assert ranked([large, small], 60, 60, 132) == ([small, large], "small")
    # As many rows for the busiest multiprocessor: the order stays.
    assert ranked([large, small], 264, 2 * COLUMNS, 132) == ([large, small], "small")


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
    ("capability", "supported", "options"),
    [
        ((9, 0), [75, 80, 90], ["-cubin", "-gencode=arch=compute_90a,code=sm_90a"]),
        ((8, 9), [75, 80, 86, 89], ["-cubin", "-arch=sm_89"]),
        ((8, 9), [75, 80, 86], ["-cubin", "-arch=sm_86"]),
        ((12, 1), [90, 100, 120], ["-cubin", "-arch=sm_120"]),
        ((12, 0), [80, 90], ["-ptx", "-arch=compute_90"]),
        ((6, 1), [75, 80], []),
    ],
)
def test_code_for_chips_that_nvcc_does_not_know(
    capability: tuple[int, int], supported: list[int], options: list[str]
) -> None:
    assert compiler.target(capability, supported) == options


@pytest.fixture
def fake_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that writes "code" and counts its runs; the only one to be found."""
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
    return home


def runs(home: Path) -> int:
    log = home / "runs"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_warm_start_needs_no_compiler(fake_nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.compiled("tensor_first", {"A": 1}, (8, 0)) == b"code"
    assert runs(fake_nvcc) == 1
    monkeypatch.setattr(compiler, "find_nvcc", lambda: None)
    assert compiler.compiled("tensor_first", {"A": 1}, (8, 0)) == b"code"
    assert compiler.usable()
    for stem, chosen, capability in (
        ("tensor_first", {"A": 2}, (8, 0)),
        ("tensor_mma", {"A": 1}, (8, 0)),
        ("tensor_first", {"A": 1}, (8, 6)),
    ):
        with pytest.raises(BackendError, match="with nvcc, which is not here: install the CUDA"):
            compiler.compiled(stem, chosen, capability)


def test_without_compiler_and_kernels_there_is_no_backend(
    fake_nvcc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler.usable()
    monkeypatch.setattr(compiler, "find_nvcc", lambda: None)
    assert not compiler.usable()


def test_a_damaged_entry_is_compiled_again(fake_nvcc: Path, tmp_path: Path) -> None:
    compiler.compiled("tensor_first", {}, (8, 0))
    (entry,) = (tmp_path / "cache" / "cuda").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"x")
    assert compiler.compiled("tensor_first", {}, (8, 0)) == b"code"
    assert runs(fake_nvcc) == 2


def test_a_compiler_that_fails_is_a_sentence(fake_nvcc: Path) -> None:
    (fake_nvcc / "broken").touch()
    with pytest.raises(BackendError, match=r"cannot compile tensor_first.cu for sm_80 \(x.cu\(3\)"):
        compiler.compiled("tensor_first", {}, (8, 0))


def test_sources_hold_what_they_include() -> None:
    text = source.read("tensor_wgmma.cu")
    assert '#include "' not in text
    assert "store_planes" in text
