"""`waifu2x bench`."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.backends import open_backend
from waifu2x.cli.command import Command
from waifu2x.cli.options.settings import environment_without, takes_settings
from waifu2x.cli.output.report import show, tell
from waifu2x.errors import BackendError
from waifu2x.networks import catalogue, model_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_PIXELS = 200 * 200
"""The least pixels of a picture whose time predicts that of larger ones."""


@click.command(cls=Command, short_help="Measure this machine, layer by layer.")
@takes_settings("bench")
def bench(
    model: str, noise: str, size: tuple[int, int], tune: bool, as_json: bool, **computing: Any
) -> None:
    """Measure this machine: each layer, the whole network, the whole program, at twice the size.

    \b
    waifu2x bench                 the default model
    waifu2x bench -m upconv_7     another one, and the default's time beside it

    GFLOP/s are effective: they count a convolution's multiply-adds by its definition, also where
    Winograd's algorithm does with a fifth. The share of the peak counts what is done; the peak is
    what the unit reaches on data in its nearest cache, measured now.
    """
    import numpy as np  # late: helps need not wait for it

    backend, device, precision = (computing[name] for name in ("backend", "device", "precision"))
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    if len(device) > 1:
        raise click.UsageError("Measure one --device at a time.")
    *_, network = model_set.find(model).models(2, None if noise == "none" else int(noise))
    opened = open_backend(backend, device[0], tell)
    planes = pixels[..., : network.in_planes].copy()
    if tune:
        for trial in opened.tune(network, precision, planes):
            tell(f"{trial.layer:12} {trial.seconds * 1e3:8.3f} ms  {trial.option}")
    measured = opened.measure(network, precision, planes)
    opened.close()
    call = ["--backend", opened.name, "--device", str(device[0]), "--precision", precision]
    program = _program_seconds(pixels, [*call, "-m", model, "-n", noise], runs=3)
    estimates: dict[str, float] = {}
    if width * height >= _LEAST_PIXELS:
        estimates[model] = _full_hd_seconds(pixels, program, [*call, "-m", model, "-n", noise])
    if estimates and model_set.find(model).name != catalogue.DEFAULT:
        usual = [*call, "-m", catalogue.DEFAULT, "-n", noise]
        seconds = _program_seconds(pixels, usual, runs=2)
        estimates[catalogue.DEFAULT] = _full_hd_seconds(pixels, seconds, usual)
    rows = [
        {
            "layer": layer.name,
            "ms": layer.seconds * 1e3,
            "gflops": 2 * layer.multiply_adds / layer.seconds / 1e9 if layer.seconds else 0.0,
            "share_of_peak": layer.share_of_peak,
            "peak_gflops": 2 * layer.peak / 1e9 if math.isfinite(layer.peak) else None,
        }
        for layer in measured.layers
    ]
    made = height * width * network.scale**2
    gflops = 2 * network.multiply_adds * made / measured.seconds / 1e9
    if as_json:
        document = {
            "backend": opened.name,
            "device": opened.device.name,
            "detail": opened.device.detail,
            "size": [width, height],
            "layers": rows,
            "network": {"ms": measured.seconds * 1e3, "gflops": gflops},
            "program": {"ms": program * 1e3},
            "seconds_of_1080p": estimates,
        }
        show(json.dumps(document, indent=2))
        return
    show(f"{opened.name}: {opened.device.name}, {opened.device.detail}")
    large = f"{width * network.scale}x{height * network.scale}"
    show(f"{model}: {width}x{height} -> {large}, {precision}")
    wide = max(len("whole network"), *(len(layer.name) for layer in measured.layers))
    show(f"{'layer':{wide}} {'ms':>8} {'GFLOP/s':>8} {'of peak':>8} {'peak':>7}")
    for layer, row in zip(measured.layers, rows, strict=True):
        if not layer.multiply_adds:
            show(f"{layer.name:{wide}} {row['ms']:8.1f}")
            continue
        line = f"{layer.name:{wide}} {row['ms']:8.1f} {row['gflops']:8.0f}"
        if row["peak_gflops"] is not None:
            line += f" {row['share_of_peak']:8.0%} {row['peak_gflops']:7.0f}"
        show(line)
    show(f"{'whole network':{wide}} {measured.seconds * 1e3:8.1f} {gflops:8.0f}")
    show(f"{'whole program':{wide}} {program * 1e3:8.1f}")
    takes = [f"{_text(seconds)} with {name}" for name, seconds in estimates.items()]
    if takes:
        show(f"a 1080p picture (1920x1080 to 3840x2160) takes about {', '.join(takes)}")


def _text(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= 10 else 1 if seconds >= 1 else 2}f} s"


def _full_hd_seconds(pixels: NDArray[Any], seconds: float, options: list[str]) -> float:
    """Estimates the program's seconds for a picture of 1920 x 1080 from this one's: its start, and
    work in proportion to the pixels."""
    start = min(seconds, _program_seconds(pixels[:16, :16], options, runs=1))
    own, least = (math.prod(each.shape[:2]) for each in (pixels, pixels[:16, :16]))
    return start + (seconds - start) * (1920 * 1080 - least) / (own - least)


def _program_seconds(pixels: NDArray[Any], options: list[str], *, runs: int) -> float:
    """Measures `waifu2x upscale` on a PNG file as a process; returns the least seconds of some
    runs."""
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Picture

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.png", Path(folder) / "out.png"
        write_picture(Picture(pixels), source, "png")
        command = [sys.executable, "-m", "waifu2x", "upscale", "--overwrite", "--config", ""]
        command += ["-s", "2", *options, str(source), str(target)]
        seconds = []
        for _ in range(runs):
            start = time.perf_counter()
            done = subprocess.run(
                command,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env=environment_without(),
            )
            seconds.append(time.perf_counter() - start)
            if done.returncode:
                said = done.stderr.strip().rpartition("\n")[2].removeprefix("Error: ")
                raise BackendError(said or f"waifu2x upscale ended with {done.returncode}")
        return min(seconds)
