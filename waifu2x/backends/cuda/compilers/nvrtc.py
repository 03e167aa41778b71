"""Calls NVRTC, NVIDIA's compiler as a library: it needs no other program, compiler or headers.

It comes as a wheel (nvidia-cuda-nvrtc-cu12, or nvidia-cuda-nvrtc from CUDA 13 on) and with the CUDA
toolkit. Its machine code runs on drivers for its own major version of CUDA and for later ones (CUDA
Compatibility, "Minor Version Compatibility"), so a library newer than the driver is skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

from waifu2x.backends.cuda.compilers import STANDARD, CompileError, CompilerOutput

OLDEST = 12
"""The first major version of CUDA whose NVRTC is used."""

_FILE = re.compile(r"libnvrtc\.so\.(\d+)|nvrtc64_(\d+)0_0\.dll")
_BUILTINS = "nvrtc-builtins64_[0-9]*[0-9].dll"
_FOLDERS = (".", "lib64", "lib", "bin", "bin/x64", "bin/x86_64")
"""Folders of a wheel or toolkit that may hold libraries."""

_ARGUMENTS: dict[str, tuple[type, ...]] = {
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcCreateProgram": (
        POINTER(c_void_p),
        c_char_p,
        c_char_p,
        c_int,
        POINTER(c_char_p),
        POINTER(c_char_p),
    ),
    "nvrtcDestroyProgram": (POINTER(c_void_p),),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "nvrtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetProgramLog": (c_void_p, c_char_p),
    "nvrtcGetCUBINSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetCUBIN": (c_void_p, c_char_p),
    "nvrtcGetPTXSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetPTX": (c_void_p, c_char_p),
}
"""The functions called, with their argument types (nvrtc.h). Each returns an nvrtcResult, 0 for
success."""


class Nvrtc:
    """NVIDIA's compiler as a library of 100 MB, loaded when it is first needed."""

    remedy = "install it anew"

    def __init__(self, path: Path, major: int) -> None:
        """`path` is that of a library of the CUDA version `major`."""
        self.path = path
        self.major = major
        self.name = f"NVRTC {major}"

    def supported(self) -> Sequence[int]:
        library = self._library()
        count = c_int()
        _check(library.nvrtcGetNumSupportedArchs(byref(count)), "nvrtcGetNumSupportedArchs")
        numbers = (c_int * count.value)()
        _check(library.nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs")
        return list(numbers)

    def compile(
        self, name: str, text: str, architecture: str, options: Sequence[str]
    ) -> CompilerOutput:
        library = self._library()
        program = c_void_p()
        made = library.nvrtcCreateProgram(
            byref(program), text.encode(), name.encode(), 0, None, None
        )
        _check(made, "nvrtcCreateProgram")
        try:
            every = [f"-arch={architecture}", STANDARD, *options]
            failed = library.nvrtcCompileProgram(
                program, len(every), (c_char_p * len(every))(*(text.encode() for text in every))
            )
            log = _text(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if failed:
                errors = (line.strip() for line in log.splitlines() if "error" in line.lower())
                raise CompileError(next(errors, f"nvrtcCompileProgram: error {failed}"))
            kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
            return CompilerOutput(_text(library, program, kind), log)
        finally:
            library.nvrtcDestroyProgram(byref(program))

    def _library(self) -> ctypes.CDLL:
        try:
            return _load(self.path)
        except (OSError, AttributeError) as error:
            raise CompileError(f"{self.path}: {error}") from error


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    """Loads the library. Raises OSError or AttributeError if it is no NVRTC."""
    # It loads this one by its bare name, for which Windows searches other folders.
    for builtins in path.parent.glob(_BUILTINS):
        ctypes.CDLL(str(builtins))
    library = ctypes.CDLL(str(path))
    for function, arguments in _ARGUMENTS.items():
        getattr(library, function).argtypes = arguments
    return library


def _check(status: int, call: str) -> None:
    if status:
        raise CompileError(f"{call}: error {status}")


def _text(library: ctypes.CDLL, program: c_void_p, what: str) -> bytes:
    """Returns the log, cubin or PTX of a program, as `what` names it."""
    size = c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, byref(size)), what)
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, text), what)
    return text.raw


def find(cuda: int) -> Nvrtc | None:
    """Returns the oldest library, from a wheel or else a toolkit, that suits a driver of that major
    version of CUDA. The oldest supports the most chips: later ones take its PTX."""
    for homes in (_wheels(), _toolkits()):
        fitting = [nvrtc for nvrtc in _libraries(homes) if OLDEST <= nvrtc.major <= cuda]
        if fitting:
            return min(fitting, key=lambda nvrtc: nvrtc.major)
    return None


def _libraries(homes: Iterable[Path]) -> Iterator[Nvrtc]:
    for home in homes:
        for folder in _FOLDERS:
            for path in sorted((home / folder).glob("*nvrtc*")):
                if match := _FILE.fullmatch(path.name):
                    yield Nvrtc(path, int(match[1] or match[2]))


def _wheels() -> Iterator[Path]:
    """Yields the folders of the namespace package of NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    for site in (spec.submodule_search_locations or ()) if spec else ():
        with contextlib.suppress(OSError):
            yield from sorted(path for path in Path(site).iterdir() if path.is_dir())


def _toolkits() -> Iterator[Path]:
    """Yields the toolkit folders that environment variables name, and the usual one."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home)
    yield Path("/usr/local/cuda")
