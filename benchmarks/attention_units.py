"""Networks with attention by the matrix units of an NVIDIA GPU beside its multiply-add units.

    python benchmarks/attention_units.py [--seconds 400] [--size 960x540] [STAGE ...]

Each stage runs in a process, which prints as it goes and is stopped when its time is over; what
failed is named at the end, and the other stages go on. A stage for a network, of random weights but
for Anime4K: how many dB results of matrix units keep of those of the multiply-add units,
milliseconds of a call by each in turn and of the network alone by the device's clock, memory, and
the steps that take longest. `windows` times attention alone, `contract` runs the tests of it.
Tables come last.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.bench_attention import SHAPES, file_of, model_of, picture
from tests.helpers import family_weights, weight_files
from waifu2x.backends import Precision, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cuda.tensor.attention import attention_shape, numbered_keys
from waifu2x.backends.cuda.tensor.units import UNITS_VARIABLE, matrix_peak
from waifu2x.lowering.lower import lower
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.lowering.plan.box import round_up
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers import read_model

ROOT = Path(__file__).parents[1]
LIGHT_WINDOW = (8, 32)
BINDING = "matrix units", "memory", "exponentials", "fp32"
"""The least work of attention. How much shared memory is read depends on the kernel."""
ROUNDS = 7
BYTES_A_SECOND = 4.3e12
"""An H200's, as a copy on the device reaches them."""
CLOCKS_A_SECOND = 132 * 1.98e9
"""Clocks of an H200's multiprocessors together, at their highest rate."""
EXPONENTIALS_A_CLOCK, FLOATS_A_CLOCK, SHARED_A_CLOCK = 16, 128, 128
"""Rates of a multiprocessor: powers of two, instructions of fp32, bytes of shared memory."""
SIDES: tuple[tuple[str, str, Precision], ...] = (
    ("multiply-add", "fma", "fp32"),
    ("matrix, fp16", "wgmma", "fp16"),
    ("matrix, fp32", "wgmma", "fp32"),
)
"""Name, WAIFU2X_CUDA_UNITS and precision."""


def read(weights: Any) -> Model:
    """A network of weights by their names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.pth"
        path.write_bytes(weight_files.pth(weights))
        return read_model(path)


def dat_light() -> Model:
    shapes = family_weights.dat(60, (18,), (6,), 2, 2, LIGHT_WINDOW)
    return read({"params": family_weights.filled(shapes, window=LIGHT_WINDOW)})


def swinir_light() -> Model:
    with tempfile.TemporaryDirectory() as folder:
        return read_model(file_of("swinir-light", Path(folder)))


def swin_unet() -> Any:
    return family_weights.filled(family_weights.swin_unet(2, 96), factor=0.4, prefix="unet.")


def shipped(name: str) -> Model:
    (model,) = model_set.find(name).models(2, None)
    return model


HD = 540, 960
NETWORKS: dict[str, Callable[[], Model]] = {
    "dat-light": dat_light,
    "swinir-light": swinir_light,
    "swin_unet": lambda: read(swin_unet()),
    "mosr": lambda: read(family_weights.filled(family_weights.mosr(64, 3))),
    "spanf3-balanced": lambda: read(
        family_weights.filled(family_weights.spanf3(64, 8), factor=0.8)
    ),
    "spanf3-performance": lambda: read(
        family_weights.filled(family_weights.spanf3(48, 5), factor=0.8)
    ),
    "anime4k-l": lambda: shipped("anime4k/l"),
}
LEAST_SECONDS = {"contract": 150, "windows": 120}
"""The most that a stage may take; others 110."""
STAGES = ("dat-light", "swinir-light", "windows", "contract", *list(NETWORKS)[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    parser.add_argument("--seconds", type=int, default=400, help="for all stages")
    parser.add_argument("--size", default="960x540", help="of the networks' pictures")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone == "windows":
        windows(options.table)
    elif options.alone == "contract":
        contract()
    elif options.alone:
        columns, rows = map(int, options.size.split("x"))
        network(options.alone, (rows, columns), options.table)
    else:
        all_stages(options.stages or STAGES, options.seconds, options.size)


def all_stages(stages: Any, seconds: int, size: str) -> None:
    """Runs each stage in a process, and prints their results."""
    end, failed, tables = time.monotonic() + seconds, [], []
    with tempfile.TemporaryDirectory() as folder:
        for stage in stages:
            table = Path(folder) / stage
            left = min(LEAST_SECONDS.get(stage, 110), end - time.monotonic())
            print(f"== {stage}", flush=True)
            if left < 10:
                failed.append(f"{stage}: no time left")
                continue
            command = [sys.executable, __file__, "--alone", stage, "--table", str(table)]
            command += ["--size", size]
            try:
                status = subprocess.run(command, timeout=left, check=False).returncode
                if status:
                    failed.append(f"{stage}: exit code {status}")
            except subprocess.TimeoutExpired:
                failed.append(f"{stage}: took more than {left:.0f} s")
            if table.exists():
                tables.append(table.read_text())
    print("\n| | ms a call | ms alone | dB | MiB |\n|---|---|---|---|---|")
    print("".join(tables), end="")
    print("\n".join(failed) or "no stage failed", flush=True)


def network(name: str, size: tuple[int, int], table: Path) -> None:
    """A network on all sides."""
    model, pixels = NETWORKS[name](), picture(size)
    networks: dict[str, Any] = {}
    backends: dict[str, Any] = {}
    found: dict[str, tuple[float, int]] = {}
    expected = None
    for side, units, precision in SIDES:
        os.environ[UNITS_VARIABLE] = units
        start = time.perf_counter()
        backend: Any = open_backend("cuda")
        made = backend.compile([model], precision)
        result = made.run(Call(pixels, np.float32))
        decibels = math.inf if expected is None else quality(result, expected)
        expected = result if expected is None else expected
        backends[side], networks[side] = backend, made
        found[side] = decibels, backend.bytes >> 20
        took = time.perf_counter() - start
        print(f"{name}, {side}: {made.arithmetic}, {decibels:.1f} dB, {took:.1f} s", flush=True)
    figures: dict[str, list[float]] = {side: [] for side in networks}
    for turn in range(ROUNDS + 2):
        for side, made in networks.items():
            start = time.perf_counter()
            made.run(Call(pixels, np.uint8))
            if turn > 1:
                figures[side].append(time.perf_counter() - start)
    with table.open("w") as file:
        for side, units, precision in SIDES:
            os.environ[UNITS_VARIABLE] = units
            measured = backends[side].measure(model, precision, pixels)
            call, (decibels, memory) = statistics.median(figures[side]), found[side]
            line = f"| {name}, {side} | {call * 1e3:.2f} | {measured.seconds * 1e3:.2f} |"
            print(f"{line} {decibels:.1f} | {memory} |", file=file, flush=True)
            print(f"{line}\n{slowest(measured.layers)}", flush=True)


def slowest(layers: Any) -> str:
    """The kinds of steps that take longest: their milliseconds and how many there are."""
    seconds: Counter[str] = Counter()
    count = Counter(layer.name for layer in layers)
    for layer in layers:
        seconds[layer.name] += layer.seconds
    kinds = (f"{time * 1e3:.2f} {name} ({count[name]})" for name, time in seconds.most_common(12))
    return "    " + ", ".join(kinds)


def quality(result: Any, expected: Any) -> float:
    """dB of a result."""
    error = np.mean((result.astype(np.float64).clip(0, 1) - expected.clip(0, 1)) ** 2)
    return float(-10 * np.log10(error)) if error else math.inf


def windows(table: Path) -> None:
    """Attention alone, of maps of 960x540: its time, and the shares that it reaches of what binds
    it: the memory, matrix units, exponentials, fp32 units or shared memory."""
    pixels = picture(HD)
    with table.open("w") as file:
        for name, shape, heads, depth in SHAPES:
            model = model_of(shape, heads, depth)
            step = next(one for one in lower(model).steps if isinstance(one, AttendWindows))
            expected = None
            for side, units, precision in SIDES:
                os.environ[UNITS_VARIABLE] = units
                backend: Any = open_backend("cuda")
                result = backend.compile([model], precision).run(Call(pixels, np.float32))
                expected = result if expected is None else expected
                measured = backend.measure(model, precision, pixels)
                layer = next(each for each in measured.layers if "attention" in each.name)
                line = f"| attention of {name}, {side} | | {layer.seconds * 1e3:.3f} |"
                line += f" {normalized_quality(result, expected):.1f} | |"
                if units != "fma":
                    peak = matrix_peak(backend.runtime, "mma")
                    terms = 1 if precision == "fp16" else 2
                    bounds = least_seconds(step, terms, backend.runtime.shared_bytes, peak)
                    binding = max(BINDING, key=bounds.__getitem__)
                    share = bounds[binding] / layer.seconds
                    rate = 2 * layer.multiply_adds / layer.seconds / 1e12
                    each = ", ".join(f"{least * 1e6:.0f} {kind}" for kind, least in bounds.items())
                    line += f" {rate:.1f} TFLOP/s; {share:.0%} of {binding}; µs: {each} |"
                print(line, flush=True)
                print(line, file=file, flush=True)


def least_seconds(step: AttendWindows, terms: int, shared: int, peak: float) -> dict[str, float]:
    """Seconds of a map of 960x540 by each unit alone, were it never idle; `peak` is multiply-adds a
    second of `mma`."""
    cut = attention_shape(step, terms, shared)
    windows, depth = step.windows, step.planes // step.heads
    tiles = -(-windows.rows * windows.columns // 16)
    keys = round_up(numbered_keys(windows)[1], cut.step)
    areas = math.prod(HD) / (windows.rows * windows.columns)
    # Products of 16 queries, 16 keys and 8 planes; of two terms there are three, of ones two.
    squares = areas * step.heads * tiles * keys / 16
    products = {1: 1, 2: 3}[terms]
    eights = products * (round_up(cut.keys.eights, 2) + cut.values.eights) + terms
    logits = squares * 256
    planes = sum(round_up(n * step.planes, 32) for n in (3, 1))
    # Operands of both products, each term once, and a pair of biases for two logits.
    near = terms * (round_up(cut.keys.eights, 2) + round_up(cut.values.eights, 2)) * 256
    own = windows.keys(0) * windows.keys(1) * windows.rows * windows.columns
    return {
        "matrix units without padding": areas * step.heads * own * 2 * depth * products / peak,
        "matrix units": squares * eights * 16 * 16 * 8 / peak,
        "memory": planes * 2 * terms * math.prod(HD) / BYTES_A_SECOND,
        "exponentials": logits / EXPONENTIALS_A_CLOCK / CLOCKS_A_SECOND,
        # The highest, the exponent and rounding; of two terms what rounding lost, and its rounding.
        "fp32": logits * {1: 2.5, 2: 5}[terms] / FLOATS_A_CLOCK / CLOCKS_A_SECOND,
        "shared memory": squares * (near + 512) / SHARED_A_CLOCK / CLOCKS_A_SECOND,
    }


def normalized_quality(result: Any, expected: Any) -> float:
    """dB of a result of any range, of the root of its mean square."""
    error = np.mean((result.astype(np.float64) - expected) ** 2)
    return (
        float(10 * np.log10(np.mean(expected.astype(np.float64) ** 2) / error))
        if error
        else math.inf
    )


def contract() -> None:
    """The tests of attention, by each of the units. Exits with what pytest says."""
    worst = 0
    for units, chosen in (("wgmma", "cuda"), ("mma", "cuda and (shifted or planes)")):
        environment = {**os.environ, UNITS_VARIABLE: units, "WAIFU2X_REQUIRE": "cuda"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:benchmark"]
        command += ["-p", "no:cacheprovider", "tests/backends/test_attention.py", "-k", chosen]
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        print(f"contract by {units}: exit code {status}", flush=True)
        worst = max(worst, abs(status))
    sys.exit(worst)


if __name__ == "__main__":
    main()
