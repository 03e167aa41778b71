"""Runs nvcc of a CUDA toolkit: a process for each source, which needs a C++ compiler, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from waifu2x.backends.cuda.compilers import STANDARD, CompileError, CompilerOutput


class Nvcc:
    """NVIDIA's compiler as a program, from an installed toolkit."""

    remedy = "check that its C++ compiler is installed"

    def __init__(self, path: str) -> None:
        self.name = self._path = path

    def supported(self) -> Sequence[int]:
        listed = self._run("--list-gpu-code").stdout
        return sorted({int(number) for number in re.findall(r"^sm_(\d+)", listed, re.MULTILINE)})

    def compile(
        self, name: str, text: str, architecture: str, options: Sequence[str]
    ) -> CompilerOutput:
        kind, _, number = architecture.partition("_")
        form = "-cubin" if kind == "sm" else "-ptx"
        target = f"-gencode=arch=compute_{number},code={architecture}"
        with tempfile.TemporaryDirectory(prefix="waifu2x-") as folder:
            source, code = Path(folder) / name, Path(folder) / "code"
            source.write_text(text, encoding="utf-8")
            files = ["-x", "cu", "-o", str(code), str(source)]
            done = self._run(form, target, STANDARD, *options, *files)
            return CompilerOutput(code.read_bytes(), done.stderr)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs nvcc with arguments. Raises CompileError."""
        try:
            done = subprocess.run(
                [self._path, *arguments], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise CompileError(str(error)) from error
        if done.returncode:
            reason = (line for line in done.stderr.splitlines() if "error" in line.lower())
            raise CompileError(next(reason, f"exit status {done.returncode}").strip())
        return done


def find() -> Nvcc | None:
    """Returns the nvcc of CUDA_HOME, CUDA_PATH, PATH or the usual folder; None if there is none."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (path := shutil.which("nvcc", path=str(Path(home) / "bin"))):
            return Nvcc(path)
    path = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return Nvcc(path) if path else None
