"""Compiles the code that a wheel carries, for every set of instructions of x86-64 on Linux.

python -m release.machine_code [FOLDER] [--only avx2]     FOLDER: waifu2x/machine_code, from where
                                                          `python -m build --wheel` takes it

Each set is compiled in a process that takes this processor for one with that set and nothing else,
so any x86-64 machine makes the same files. `waifu2x.backends.cpu.compile.carried` finds them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from release import project

FOLDER = project.ROOT / "waifu2x" / "machine_code"
ENTRIES = {
    "loops": ("integer_loop", "tile_loop", "vector_loop"),
    "planar": ("read_exactly", "read_planes", "write_exactly", "write_planes"),
}
"""The entry points beside those of `strip`."""


def make(folder: Path, names: list[str]) -> None:
    """Writes the code of these sets into a new folder, on all cores. Raises CalledProcessError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(_in_process, folder, name) for name in names]:
            done.result()


def _in_process(folder: Path, name: str) -> None:
    """Runs `inside` in a new process."""
    from waifu2x.backends.cpu.compile.carried import SETS

    (target,) = (each for each in SETS if each.name == name)
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "WAIFU2X_"))}
    needed = {
        "NUMBA_CPU_NAME": target.processor,
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in target.features),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(project.ROOT),
        "WAIFU2X_CPU_ISA": target.vector,
    }
    command = [sys.executable, "-m", "release.machine_code", str(folder), "--inside", name]
    subprocess.run(command, env={**plain, **needed}, cwd=project.ROOT, check=True)


def inside(folder: Path, name: str) -> None:
    """Compiles everything for a set, in a process that has not imported `isa` yet."""
    from waifu2x.backends.cpu.compile import host

    with mock.patch.object(host, "has", return_value=True), mock.patch("ctypes.CDLL") as library:
        library(None).syscall.return_value = 0  # the system gives tile registers
        from waifu2x.backends.cpu.compile import isa
    from waifu2x.backends.cpu.compile import carried, code_image, compiled, object_file
    from waifu2x.backends.cpu.run import kernels
    from waifu2x.system import cache

    (target,) = (each for each in carried.SETS if each.name == name)
    assert isa.VECTOR.name == target.vector
    vars(isa)["has"] = target.features.__contains__
    for module, entries in {**ENTRIES, "strip": ("run_strips", *kernels.NAMES)}.items():
        for entry in entries:
            symbol, code = compiled.parts(compiled.Compiled(module, entry).compiled())
            image = code_image.packed(object_file.linked(code, symbol))
            key = carried.key(target, module, entry, compiled.code())
            (folder / key).write_bytes(cache.packed(image))


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--only", metavar="SET")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        inside(options.folder, options.inside)
        return 0
    # Late: in the process of a set, it must not be imported before that set is.
    from waifu2x.backends.cpu.compile.carried import SETS

    names = [each.name for each in SETS]
    if options.only not in (None, *names):
        parser.error(f"--only takes one of {', '.join(names)}")
    make(options.folder.resolve(), [options.only] if options.only else names)
    files = list(options.folder.iterdir())
    print(f"{options.folder}: {len(files)} files, {sum(p.stat().st_size for p in files)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
