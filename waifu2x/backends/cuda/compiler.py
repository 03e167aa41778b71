"""Machine code for a device: from the cache, or by nvcc, which only the first run needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from waifu2x import __version__, cache
from waifu2x.backends.gpu import source
from waifu2x.errors import BackendError

_KIND = "cuda"
_OPTIONS = ("-O3", "-std=c++17")
NO_NVCC = (
    "they are compiled once, with nvcc, which is not here: install the CUDA toolkit, set CUDA_HOME"
    " if it is in an unusual place, or use another backend"
)


def compiled(
    stem: str,
    macros: Mapping[str, str | int],
    capability: tuple[int, int],
    *,
    afresh: bool = False,
) -> bytes:
    """A file of `kernels/` for a chip: a cubin, or PTX where nvcc is older than the chip.

    The key has no compiler in it: a warm start must find its entries where there is none, and any
    compiler's code computes the same; with `afresh` it is compiled whatever is there. Raises
    BackendError.
    """
    name = f"{stem}.cu" if source.exists(f"{stem}.cu") else f"{stem}.cl"
    text = source.read(name)
    definitions = [f"-D{macro}={value}" for macro, value in macros.items()]
    chip = f"{capability[0]}.{capability[1]}"
    key = cache.digest(__version__, "cuda", chip, *_OPTIONS, *definitions, text)
    found = None if afresh else cache.load(_KIND, key)
    if found is None:
        source.announce_compiling(f"sm_{capability[0]}{capability[1]}")
        found = _compile(name, text, definitions, capability)
        cache.store(_KIND, key, found)
    return found


def usable() -> bool:
    """Whether kernels can be had at all: compiled now, or compiled before and kept."""
    if find_nvcc() is not None:
        return True
    try:
        return any(usage.kind == _KIND for usage in cache.usage())
    except OSError:
        return False


def find_nvcc() -> str | None:
    """The path of NVIDIA's compiler, if it is installed."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (path := shutil.which("nvcc", path=str(Path(home) / "bin"))):
            return path
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def target(capability: tuple[int, int], supported: list[int]) -> list[str]:
    """nvcc's options for a chip, given the sm numbers that it knows.

    sm_90 gets its own instructions (90a). A chip that nvcc does not know gets the code of an older
    one of its generation, which it runs as it is, or else PTX of the newest, which its driver
    translates.
    """
    major, minor = capability
    if (major, minor) == (9, 0) and 90 in supported:
        return ["-cubin", "-gencode=arch=compute_90a,code=sm_90a"]
    own = [sm for sm in supported if sm // 10 == major and sm % 10 <= minor]
    if own:
        return ["-cubin", f"-arch=sm_{max(own)}"]
    older = [sm for sm in supported if sm < major * 10 + minor]
    return ["-ptx", f"-arch=compute_{max(older)}"] if older else []


def _compile(name: str, text: str, definitions: list[str], capability: tuple[int, int]) -> bytes:
    nvcc = find_nvcc()
    chip = f"sm_{capability[0]}{capability[1]}"
    if nvcc is None:
        raise BackendError(f"backend cuda lacks a kernel: {NO_NVCC}")
    options = target(capability, _supported(nvcc))
    if not options:
        raise BackendError(
            f"{nvcc} is too new for this device ({chip}): install an older CUDA toolkit and set"
            " CUDA_HOME to its folder, or use another backend"
        )
    with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
        path, result = Path(folder) / name, Path(folder) / "code"
        path.write_text(text, encoding="utf-8")
        command = [
            nvcc,
            *options,
            *_OPTIONS,
            *definitions,
            "-x",
            "cu",
            "-o",
            str(result),
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return result.read_bytes()
    reason = next((line for line in done.stderr.splitlines() if "error" in line.lower()), "")
    raise BackendError(
        f"{nvcc} cannot compile {name} for {chip} ({reason.strip()}): check that its C++ compiler"
        " is installed, or use another backend"
    )


def _supported(nvcc: str) -> list[int]:
    """The chips that an nvcc makes code for, as sm numbers."""
    done = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False)
    return sorted({int(number) for number in re.findall(r"^sm_(\d+)", done.stdout, re.MULTILINE)})
