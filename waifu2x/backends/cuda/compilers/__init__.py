"""Compiles kernels to machine code by a compiler of NVIDIA's: NVRTC, or nvcc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

STANDARD = "-std=c++17"


class CompileError(Exception):
    """Says why a source was not compiled, in the compiler's words."""


class CompilerOutput(NamedTuple):
    """The result of compiling a source."""

    code: bytes
    log: str
    """The compiler's messages."""


class Compiler(Protocol):
    """Turns CUDA C++ into machine code: `nvrtc` or `nvcc`. Any thread may call it at any time."""

    name: str
    """Its name for display."""
    remedy: str
    """A remedy for its failures, for display."""

    def supported(self) -> Sequence[int]:
        """Returns the sm numbers of the chips that it makes code for. Raises CompileError."""

    def compile(
        self, name: str, text: str, architecture: str, options: Sequence[str]
    ) -> CompilerOutput:
        """Compiles to a cubin for an architecture such as sm_90a, or PTX for one such as
        compute_90.

        `name` is the source's name in messages; `options` are ones that both compilers have, such
        as -DNAME=1. Raises CompileError.
        """
