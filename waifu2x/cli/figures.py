"""Measures this machine for comparison with others: networks, a picture, a folder, a film.

`docs/reference/figures.md` describes the document. It names the device and versions of software,
and nothing of the user, the machine's name, or its folders.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from waifu2x import __version__
from waifu2x.backends import Precision, open_backend
from waifu2x.cli.options.settings import environment_without
from waifu2x.errors import BackendError, ModelError
from waifu2x.networks import catalogue, model_set
from waifu2x.system.machine import core_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""The version of the document."""
_NETWORKS = (
    *("cunet/art", "upconv_7/art", "vgg_7/art", "anime4k/l", "anime4k/s", "cugan/se"),
    *("realesrgan/animevideo", "realesrgan/anime", "span/photo"),
)
"""Those that are measured, as far as they are installed."""
_LIBRARIES = ("numpy", "numba", "llvmlite", "pyopencl", "av", "pillow")
_PICTURES, _FRAMES = 24, 48
_RUNS = 2
"""The runs of each program: the first fills caches."""


def measure(
    backend: str,
    device: int,
    precision: Precision,
    size: tuple[int, int],
    on_step: Callable[[str], None],
) -> dict[str, Any]:
    """Measures everything, for pictures of `size` (width, height); `on_step` takes the name of each
    part before it is measured. Raises BackendError."""
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    opened = open_backend(backend, device, on_step)
    try:
        name, about = opened.name, opened.device
        networks = []
        for model, network in _networks():
            on_step(model)
            planes = np.ascontiguousarray(pixels[..., : network.in_planes])
            seconds = opened.measure(network, precision, planes).seconds
            networks.append({"model": model, "scale": network.scale, "ms": 1e3 * seconds})
    finally:
        opened.close()
    options = ["--backend", name, "--device", str(device), "--precision", precision]
    with tempfile.TemporaryDirectory() as folder:
        programs = _programs(Path(folder), pixels, options, on_step)
    versions = {library: _version(library) for library in _LIBRARIES}
    return {
        "waifu2x_figures": VERSION,
        "program": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": core_count(),
            "python": platform.python_version(),
            "libraries": {library: found for library, found in versions.items() if found},
        },
        "device": {"backend": name, "name": about.name, "detail": about.detail},
        "precision": precision,
        "size": [width, height],
        "networks": networks,
        **programs,
    }


def _networks() -> Iterator[tuple[str, Any]]:
    """Yields the names and networks of the sets that are installed."""
    for name in _NETWORKS:
        try:
            *_, network = model_set.find(name).models(2, None)
        except ModelError:
            continue
        yield name, network


def _version(library: str) -> str:
    """Returns the version of an installed package; empty without it."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _programs(
    folder: Path, pixels: NDArray[Any], options: list[str], on_step: Callable[[str], None]
) -> dict[str, Any]:
    """Measures whole programs, from their start to their end."""
    from waifu2x.formats.write import write_picture
    from waifu2x.imaging.picture import Picture

    pictures = folder / "in"
    pictures.mkdir()
    for number in range(_PICTURES):
        rolled = np.ascontiguousarray(np.roll(pixels, number, axis=1))
        write_picture(Picture(rolled), pictures / f"{number}.png", "png")
    usual = ["-m", catalogue.DEFAULT, "-s", "2", *options]
    on_step("one picture")
    words = ["upscale", "--overwrite", *usual, str(pictures / "0.png"), str(folder / "out.png")]
    found: dict[str, Any] = {
        "picture": {"model": catalogue.DEFAULT, "seconds": least_seconds(words, _RUNS)}
    }
    on_step("a folder")
    words = ["batch", "--overwrite", *usual, str(pictures), str(folder / "out")]
    found["folder"] = {
        "model": catalogue.DEFAULT,
        "pictures": _PICTURES,
        "seconds": least_seconds(words, _RUNS),
    }
    if importlib.util.find_spec("av") is None:
        return found
    on_step("a film")
    film = folder / "in.mp4"
    _write_film(film, pixels)
    words = ["video", "--overwrite", "-m", catalogue.FILM_DEFAULT, *options]
    seconds = least_seconds([*words, str(film), str(folder / "out.mp4")], _RUNS)
    found["film"] = {"model": catalogue.FILM_DEFAULT, "frames": _FRAMES, "seconds": seconds}
    return found


def _write_film(path: Path, pixels: NDArray[Any]) -> None:
    """Writes a film of the picture, which moves."""
    import av

    height, width, _ = pixels.shape
    with av.open(str(path), "w") as made:
        stream = made.add_stream("mpeg4", Fraction(24))
        stream.width, stream.height, stream.pix_fmt = width & ~1, height & ~1, "yuv420p"
        for number in range(_FRAMES):
            moved = np.roll(pixels, number, axis=1)[: height & ~1, : width & ~1]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(moved), format="rgb24")
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))


def least_seconds(words: Sequence[str], runs: int) -> float:
    """Returns the least seconds of some runs of the program. Raises BackendError if it fails."""
    command = [sys.executable, "-m", "waifu2x", words[0], "--config", "", *words[1:]]
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment_without()
        )
        seconds.append(time.perf_counter() - start)
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2].removeprefix("Error: ")
            raise BackendError(said or f"waifu2x {words[0]} ended with {done.returncode}")
    return min(seconds)
