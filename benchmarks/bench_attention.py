"""Networks with attention: windows alone against the processor's peak, whole ones beside PyTorch.

    python benchmarks/bench_attention.py --windows [--size 256x256]
    python benchmarks/bench_attention.py [--backend cpu] [--size 256x256] [--rounds 3] FILE ...

FILE is a network that `models import` takes, or `swinir-light`: that network, with random weights.
PyTorch's side is spandrel's network on the same device, in inference mode; where torch or spandrel
are missing, ours is shown alone. Results are compared before they are timed, and rounds go through
both in turn. `--memory` adds the peak of each in a separate process, on the processor.
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.program import make_picture
from benchmarks.rounds import measure
from tests.helpers import weight_files
from tests.helpers.family_weights import filled, swinir
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu.measuring import vector_peak
from waifu2x.lowering.ops.attention import AttendWindows
from waifu2x.networks.activations import leaky
from waifu2x.networks.attention import PlanesFrom, WindowAttention
from waifu2x.networks.builder import GraphBuilder
from waifu2x.networks.model import Model
from waifu2x.networks.readers import read_model
from waifu2x.networks.windows import Windows
from waifu2x.system.machine import core_count

SHAPES = [
    ("SwinIR-light", Windows(8, 8), 6, 10),
    ("SwinIR", Windows(8, 8), 6, 30),
    ("swin_unet", Windows(6, 6), 6, 16),
    ("DAT-light", Windows(8, 32), 3, 10),
    ("DAT", Windows(8, 32), 3, 30),
    ("HAT", Windows(16, 16), 6, 30),
]
Run = Callable[[Any], Any]
"""A network on an 8-bit picture; its result as float32, (rows, columns, planes)."""


def windows_alone(size: tuple[int, int], rounds: int) -> None:
    """A table of the step on all cores, of maps of a size."""
    cores = core_count()
    peaked = vector_peak(cores)
    print(f"{cores} cores, peak {2 * peaked / 1e9:.0f} GFLOP/s in fp32, maps of {size}\n")
    print("| | window | heads | planes | ms | GFLOP/s | of the peak |")
    print("|---|---|---|---|---|---|---|")
    for name, windows, heads, depth in SHAPES:
        model = model_of(windows, heads, depth)
        seconds = step_seconds(model, size, rounds)
        node = next(one for one in model.nodes if isinstance(one, WindowAttention))
        rate = node.multiply_adds * math.prod(size) / seconds
        print(
            f"| {name} | {windows.rows}x{windows.columns} | {heads} | {depth} |"
            f" {seconds * 1e3:.1f} | {2 * rate / 1e9:.0f} | {rate / peaked:.0%} |"
        )


def model_of(windows: Windows, heads: int, depth: int) -> Model:
    """A network that is attention, but for a product before and one behind it."""
    rng = np.random.default_rng(1)
    net, planes = GraphBuilder("attention", 3), heads * depth

    def linear(source: int, read: int, made: int) -> int:
        weight = rng.normal(size=(made, read, 1, 1)).astype(np.float32) / math.sqrt(read)
        return net.convolution(source, weight, np.zeros(made, np.float32), leaky(1.0, made))

    qkv = linear(0, 3, 3 * planes)
    bias = rng.normal(size=(heads, *windows.bias_sides)).astype(np.float32)
    queries, keys, values = (PlanesFrom(qkv, part * planes) for part in range(3))
    value = net.append(WindowAttention(queries, keys, values, planes, windows, depth**-0.5, bias))
    linear(value, planes, 3)
    return net.model()


def step_seconds(model: Model, size: tuple[int, int], rounds: int) -> float:
    """Seconds of the step on all cores: its share of the network's time, median."""
    network: Any = open_backend("cpu").compile([model], "fp32")
    pixels = picture(size)
    small = np.ascontiguousarray(pixels[:37, :41])
    check(
        network.run(Call(small, np.float32)),
        open_backend("numpy").compile([model], "fp32").run(Call(small, np.float32)),
    )
    (compiled,) = network.models
    steps = compiled.packed.program.steps
    (number,) = (n for n, step in enumerate(steps) if isinstance(step, AttendWindows))

    def once() -> float:
        compiled.ticks.clear()
        whole = timed(network.run, Call(pixels, np.float32))
        share: float = compiled.ticks[number] / sum(compiled.ticks.values())
        return whole * share

    return measure({"": once}, rounds)[""]


def whole_networks(names: list[str], backend: str, size: tuple[int, int], options: Any) -> None:
    """A table of networks beside PyTorch's."""
    pixels = picture(size)
    print(f"{backend}, {options.precision}, {size[1]}x{size[0]}\n")
    print("| | ours | PyTorch | ratio | our memory | its memory |\n|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = file_of(name, Path(folder))
            runs = {"ours": ours(path, backend, options.precision)}
            if torch_is_here():
                runs["torch"] = torchs(path, backend)
                small = pixels[:40, :56]
                check(runs["ours"](small), runs["torch"](small), least=35)
            timers: dict[str, Callable[[], float]] = {
                key: partial(timed, run, pixels) for key, run in runs.items()
            }
            found = measure(timers, options.rounds)
            memory = {key: memory_of(key, path, size, options) for key in runs}
        other = found.get("torch", math.nan)
        print(
            f"| {name} | {found['ours']:.3f} s | {other:.3f} s | {other / found['ours']:.1f} |"
            f" {memory['ours']} | {memory.get('torch', '-')} |",
            flush=True,
        )


def file_of(name: str, folder: Path) -> Path:
    """A file of weights: the one that is named, or one that is made in a folder."""
    if name != "swinir-light":
        return Path(name)
    weights = filled(swinir(60, (6,) * 4, 2, "direct", blocks=6))
    rows, columns = np.divmod(np.arange(64), 8)
    apart = [each[:, None] - each + 7 for each in (rows, columns)]
    for key in weights:
        if key.endswith("relative_position_index"):
            weights[key] = (apart[0] * 15 + apart[1]).astype(np.float32)
    for group, block in itertools.product(range(4), (1, 3, 5)):
        # These are for pictures of 16x16: PyTorch's side makes those for others.
        key = f"layers.{group}.residual_group.blocks.{block}.attn_mask"
        weights[key] = np.zeros((4, 64, 64), np.float32)
    path = folder / "swinir-light.pth"
    path.write_bytes(weight_files.pth({"params": weights}))
    return path


def ours(path: Path, backend: str, precision: Any) -> Run:
    network = open_backend(backend).compile([read_model(path)], precision)
    return lambda pixels: network.run(Call(np.ascontiguousarray(pixels), np.float32))


def torch_is_here() -> bool:
    try:
        import spandrel  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def torchs(path: Path, backend: str) -> Run:
    """spandrel's network; in fp16 on a GPU, where it takes that."""
    import torch
    from spandrel import ModelLoader

    network = ModelLoader("cuda" if backend == "cuda" else "cpu").load_from_file(path)
    is_half = backend == "cuda" and network.supports_half
    if is_half:
        network = network.half()

    def run(pixels: Any) -> Any:
        with torch.inference_mode():
            planes = torch.from_numpy(np.ascontiguousarray(pixels)).to(network.device)
            planes = (planes.half() if is_half else planes.float()) / 255
            made = network(planes.permute(2, 0, 1)[None])[0]
            return made.permute(1, 2, 0).float().cpu().numpy()

    return run


def check(result: Any, expected: Any, least: float = 100) -> None:
    """Raises SystemExit unless both agree within this many dB."""
    error = float(np.mean((result.astype(np.float64).clip(0, 1) - expected.clip(0, 1)) ** 2))
    if error > 10 ** (-least / 10):
        raise SystemExit(f"wrong: {-10 * math.log10(error):.0f} dB")


def memory_of(side: str, path: Path, size: tuple[int, int], options: Any) -> str:
    """Returns the peak MiB of a process that runs one side once; "-" without --memory."""
    if not options.memory or options.backend != "cpu":
        return "-"
    size_text = f"{size[1]}x{size[0]}"
    command = [sys.executable, __file__, str(path), "--size", size_text, "--one", side]
    command += ["--precision", options.precision]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def one_run(side: str, path: Path, size: tuple[int, int], precision: str) -> None:
    """Prints the most memory that a run adds to what the process and its libraries have."""
    run = ours(path, "cpu", precision) if side == "ours" else torchs(path, "cpu")
    run(picture((40, 40)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(picture(size))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{after // 1024} MiB ({(after - before) // 1024} for the picture)")


def timed(run: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def picture(size: tuple[int, int]) -> Any:
    """One of (rows, columns, 3), 8 bits."""
    return np.array(make_picture(size[1], size[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="FILE")
    parser.add_argument("--windows", action="store_true", help="windows alone")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--size", default="256x256")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    size = rows, columns
    if options.one:
        one_run(options.one, Path(options.networks[0]), size, options.precision)
        return
    if options.windows:
        windows_alone(size, options.rounds)
    if options.networks:
        whole_networks(options.networks, options.backend, size, options)


if __name__ == "__main__":
    main()
