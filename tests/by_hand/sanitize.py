"""compute-sanitizer over every unit of the cuda backend: one line for each check.

    python tests/by_hand/sanitize.py [initcheck ...] [wgmma ...] [cunet ...]

Runs memcheck, racecheck, synccheck and initcheck on small pictures through the 2x networks of
vgg_7, upconv_7 and cunet, in every precision of every unit that the chip has, whole, in tiles, and
several at once, once more with the shapes of large pictures; names on the command line choose
among tools, units and networks. racecheck takes a hundred times as long as the work: it sees each
kernel once, on a smaller picture. Needs a GPU and compute-sanitizer, which comes with the CUDA
toolkit; kernels are compiled first. The exit code is 1 if anything was found; what it was stands
in the folder that the last line names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from waifu2x.api import Upscaler
from waifu2x.backends import Precision
from waifu2x.backends.cuda.tensor import candidates
from waifu2x.backends.cuda.tensor.units import UNITS_VARIABLE, Units, available_units

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
NETWORKS = ("vgg_7", "upconv_7", "cunet")
MOST_ROWS = candidates.MOST_ROWS
INNER = "--one"
"""Marks the process that runs under the tool."""


def main() -> None:
    """Runs the tools that the command line asks for."""
    chosen = sys.argv[1:]
    known = {*TOOLS, *get_args(Units), *NETWORKS}
    if unknown := set(chosen) - known:
        sys.exit(f"unknown: {', '.join(unknown)}\n\n{__doc__}")
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        sys.exit("compute-sanitizer is not here: install the CUDA toolkit")
    tools = [tool for tool in TOOLS if tool in chosen] or TOOLS
    found = [units for units in of_this_chip() if units in chosen] or of_this_chip()
    networks = [name for name in NETWORKS if name in chosen] or NETWORKS
    logs = Path(tempfile.mkdtemp(prefix="sanitize-"))
    findings = 0
    for units in found:
        for name in networks:
            environment = {**os.environ, UNITS_VARIABLE: units}
            for tool in tools:
                inner = [sys.executable, __file__, INNER, name, tool]
                subprocess.run(inner, env=environment, check=True)  # compiles the kernels
                start = time.monotonic()
                command = [program, "--tool", tool, "--error-exitcode", "3", *inner]
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=False
                )
                log = logs / f"{tool}-{units}-{name}.txt"
                log.write_text(done.stdout + done.stderr)
                count = errors_in(done.stdout + done.stderr)
                findings += count
                end = "" if done.returncode in (0, 3) else f", exit code {done.returncode}"
                findings += bool(end)
                seconds = time.monotonic() - start
                print(
                    f"{tool:9} {units:5} {name:8} {count} findings{end}, {seconds:.0f} s",
                    flush=True,
                )
    print(f"{findings} findings; {logs}")
    sys.exit(findings > 0)


def of_this_chip() -> tuple[Units, ...]:
    """Its units."""
    from waifu2x.backends.cuda.driver.machine import Machine

    machine = Machine()
    return available_units(machine.capability(machine.pick(0)))


def errors_in(output: str) -> int:
    """Number of errors that a tool says that it has found; 1 if it says nothing."""
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)
    return max(map(int, summaries), default=1)


def one(name: str, tool: str) -> None:
    """A network on small pictures, in every precision of the units at hand."""
    brief = tool == "racecheck"
    size = (17, 39) if brief else (45, 71)
    pictures = np.random.default_rng(0).integers(0, 256, (3, *size, 3), np.uint8)
    plain = os.environ[UNITS_VARIABLE] == "fma"
    expected: dict[str, Any] = {}
    precisions: tuple[Precision, ...] = ("fp32",) if plain else ("fp16", "fp32")
    for precision, large in product(precisions, (False,) if plain else (False, True)):
        # The smallest of the large ones.
        candidates.MOST_ROWS = 0 if large else MOST_ROWS
        for tile in (None,) if brief else (None, 48):
            with Upscaler(
                2, model=name, backend="cuda", precision=precision, tile=tile
            ) as upscaler:
                if large:  # so few multiprocessors that each block makes several tiles
                    runtime: Any = upscaler.engine.backend
                    runtime = runtime.runtime
                    runtime.limits = replace(runtime.limits, compute_units=2)
                single = upscaler(pictures[0])
                # Neither a shape nor a tile changes a bit.
                assert np.array_equal(single, expected.setdefault(precision, single))
                if brief:
                    continue
                # Once more, and again: launched, captured, replayed.
                for _ in range(2):
                    assert np.array_equal(upscaler(pictures[0]), single)
                if tile is None:
                    assert np.array_equal(upscaler(pictures)[0], single)
                assert upscaler(pictures[0].astype(np.float32) / 255).dtype == np.float32


if __name__ == "__main__":
    if sys.argv[1:2] == [INNER]:
        one(*sys.argv[2:])
    else:
        main()
