"""`waifu2x bench`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waifu2x.backends import open_backend
from waifu2x.cli.command import Command
from waifu2x.cli.options import level_option, network_options
from waifu2x.cli.report import show, tell
from waifu2x.networks import model_set

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _size(context: Any, parameter: Any, value: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", value, re.ASCII)
    if not match or "0" in match.groups():
        raise click.BadParameter(f"{value!r}: expected a size like 960x540.")
    return int(match[1]), int(match[2])


@click.command(cls=Command, short_help="Measure this machine, layer by layer.")
@network_options
@level_option
@click.option(
    "--size", callback=_size, default="960x540", show_default=True, help="Of the input picture."
)
@click.option(
    "--tune",
    is_flag=True,
    help="On a GPU's backend: first try how each layer is best computed on this device, and keep"
    " what is found for all later runs.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def bench(
    backend: str,
    device: tuple[int, ...],
    precision: Any,
    model: str,
    noise: str,
    size: tuple[int, int],
    tune: bool,
    as_json: bool,
) -> None:
    """Measure this machine: each layer, the whole network, the whole program, at twice the size.

    GFLOP/s count a convolution's multiply-adds by its definition, whatever the algorithm saves; the
    share is of the peak that the same unit reaches on data in its nearest cache, measured here.
    """
    import numpy as np  # late, so that a help need not wait for it

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
    program = _time_program(pixels, opened.name, device[0], precision, model, noise)
    opened.close()
    rows = [
        {
            "layer": layer.name,
            "ms": layer.seconds * 1e3,
            "gflops": 2 * layer.multiply_adds / layer.seconds / 1e9 if layer.seconds else 0.0,
            "share_of_peak": layer.multiply_adds / layer.seconds / layer.peak
            if layer.seconds
            else 0.0,
            "peak_gflops": 2 * layer.peak / 1e9,
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
        }
        show(json.dumps(document, indent=2))
        return
    show(f"{opened.name}: {opened.device.name}, {opened.device.detail}")
    large = f"{width * network.scale}x{height * network.scale}"
    show(f"{model}: {width}x{height} -> {large}, {precision}")
    show(f"{'layer':16} {'ms':>8} {'GFLOP/s':>9} {'of peak':>8} {'peak':>7}")
    for row in rows:
        show(
            f"{row['layer']:16} {row['ms']:8.1f} {row['gflops']:9.0f}"
            f" {row['share_of_peak']:8.0%} {row['peak_gflops']:7.0f}"
        )
    show(f"{'whole network':16} {measured.seconds * 1e3:8.1f} {gflops:9.0f}")
    show(f"{'whole program':16} {program * 1e3:8.1f}")


def _time_program(
    pixels: NDArray[Any],
    backend: str,
    device: int,
    precision: str,
    model: str,
    noise: str,
) -> float:
    """Seconds of `waifu2x upscale` on a PNG file, as a process of its own."""
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Picture

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.png", Path(folder) / "out.png"
        write_picture(Picture(pixels), source, "png")
        command = [sys.executable, "-m", "waifu2x", "upscale", "--overwrite"]
        command += ["-m", model, "-n", noise]
        command += ["--backend", backend, "--device", str(device)]
        command += ["--precision", precision, str(source), str(target)]
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
        return min(seconds)
