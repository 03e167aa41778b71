"""The report of `waifu2x --version --verbose`: a machine's data for reports of faults."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from waifu2x import __version__
from waifu2x.backends import BACKEND_NAMES, list_devices
from waifu2x.cli.options import settings
from waifu2x.cli.options.settings import home_folder, short
from waifu2x.errors import BackendError, Waifu2xError, printable
from waifu2x.networks import catalogue
from waifu2x.system import cache, machine

_FORMATS = ("pillow", "tifffile", "imagecodecs", "isal", "pillow-heif", "pillow-jxl-plugin")
_LIBRARIES = (
    "numpy", "numba", "llvmlite", *_FORMATS, "click", "rich", "platformdirs", "pyopencl", "pycuda",
    "nvidia-cuda-nvrtc-cu12", "av", "dask", "distributed", "fsspec", "universal-pathlib",
)  # fmt: skip
_FEATURES = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8",
    "asimd", "asimddp", "sve", "bf16", "i8mm",
)  # fmt: skip
"""Words of /proc/cpuinfo that decide which code is compiled."""
_VARIABLES = re.compile(
    r"WAIFU2X_\w+|CUDA_VISIBLE_DEVICES|OCL_ICD_\w+|POCL_\w+|NUMBA_\w+|\w+_NUM_THREADS|PYTHON\w+"
)
"""Variables that change how the program or its libraries run."""


def report() -> Iterator[str]:
    """Yields the lines, with `~` for the home folder, whose name is often the user's."""
    home = home_folder()
    for line in _lines():
        shown = line
        if home is not None:
            shown = re.sub(rf"{re.escape(str(home))}(?![^/\s:;,)])", "~", line)
        yield printable(shown)


def _lines() -> Iterator[str]:
    yield f"waifu2x {__version__} in {Path(__file__).parents[1]}"
    yield (
        f"Python {platform.python_version()} ({platform.python_implementation()}) in {sys.prefix}"
    )
    yield f"system: {platform.platform()}, {platform.machine()}"
    yield _processor()
    yield f"libraries: {', '.join(_libraries()) or 'none'}"
    for name in BACKEND_NAMES:
        try:
            for device in list_devices(name):
                yield f"backend {name} {device.number}: {device.name}: {device.detail}"
        except BackendError as error:
            yield f"backend {name}: no: {error}"
    yield _nvidia()
    yield from _models()
    folder = cache.directory()
    yield f"cache: {folder or 'none'}{'' if folder is None else _size()}"
    yield from _settings()
    names = sorted(name for name in os.environ if _VARIABLES.fullmatch(name))
    yield f"variables: {', '.join(f'{name}={os.environ[name]}' for name in names) or 'none'}"
    yield f"terminal: {os.environ.get('TERM', '-')}, {sys.stderr.encoding if sys.stderr else '-'}"


def _processor() -> str:
    words: set[str] = set()
    name = platform.processor() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        pass
    else:
        lines = re.findall(r"^(model name|flags|Features)\s*:\s*(.*)$", text, re.M)
        found: dict[str, str] = dict(lines)
        name = found.get("model name", name)
        words = set(found.get("flags", found.get("Features", "")).split())
    features = " ".join(each for each in _FEATURES if each in words)
    memory = machine.total_memory()
    size = "" if memory is None else f", {memory / 2**30:.1f} GiB"
    return (
        f"processor: {name}, {machine.core_count()} cores{size}; {features or 'no features known'}"
    )


def _libraries() -> Iterator[str]:
    for name in _LIBRARIES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue


def _nvidia() -> str:
    """Describes NVIDIA's driver by the kernel's files, even where CUDA does not work."""
    try:
        first, *_ = Path("/proc/driver/nvidia/version").read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return "NVIDIA's kernel module: not here"
    return f"NVIDIA's kernel module: {' '.join(first.split())}"


def _models() -> Iterator[str]:
    from waifu2x.networks import model_set

    try:
        names = [each.name for each in model_set.available()]
    except Waifu2xError as error:
        yield f"models: {error}"
        return
    own = sum(catalogue.entry(name) is None for name in names)
    packaged = ", ".join(name for name in names if catalogue.entry(name))
    yield f"models: {packaged or 'none'}; {own} imported"


def _size() -> str:
    try:
        usage = cache.usage()
    except OSError as error:
        return f": cannot read it: {error.strerror}"
    return (
        f": {sum(kind.files for kind in usage)} files, {sum(k.size for k in usage) / 2**20:.1f} MiB"
    )


def _settings() -> Iterator[str]:
    from waifu2x.cli import cli

    command = cli.get_command(click.Context(cli), "upscale")
    assert command is not None
    path = settings.file_of(None)
    try:
        found = settings.settings_of(command, None, set())
    except settings.SettingsError as error:
        yield f"settings: {error.message}"
        return
    shown = [f"{each.key} = {each.value}" for each in found.values()]
    where = "no file" if path is None else short(path)
    yield f"settings: {', '.join(shown) or 'none'} ({where})"
