"""Machine code that is compiled once, kept in our cache and called without Numba.

What `kernels` has as entries, Numba compiles to C functions of addresses and integers. Their object
code is kept under a key of everything that decides it, and linked by llvmlite: a program that finds
it there never imports Numba, which would take as long as a small picture does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from numpy.typing import NDArray

from waifu2x import __version__
from waifu2x.backends.cpu.isa import ISA_VARIABLE, VECTOR
from waifu2x.errors import BackendError
from waifu2x.system import cache

_KIND = "numba"
_PACKAGE = Path(__file__).parents[2]
SOURCES = (
    "backends/cpu/isa.py",
    "backends/cpu/kernels/*.py",
    "backends/cpu/records.py",
    "backends/cpu/shapes.py",
    "errors.py",
    "networks/expressions.py",
    "system/lazy_dataclass.py",
)
"""The files whose code or constants an entry holds: the kernels and all that they import."""
_LOG = logging.getLogger(__name__)
_STATUS_OF = ctypes.CFUNCTYPE(ctypes.c_int32)


def _numba_version() -> str:
    """Numba's version. Raises ModuleNotFoundError if it is not installed.

    From its file: to import `importlib.metadata` takes as long as to compute a small picture.
    """
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'numba'", name="numba")
    with contextlib.suppress(OSError):
        text = Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")
        if told := re.search(r'"version": "([^"]+)"', text):
            return told[1]
    from importlib.metadata import version

    return version("numba")


_NUMBA_VERSION = _numba_version()


class Compiled:
    """One entry, called with arrays, of which it gets the addresses, and integers.

    Calls do not hold the interpreter lock, so threads run side by side.
    """

    def __init__(self, module: str, name: str) -> None:
        """The entry `name` of that module of `kernels`."""
        self._module = module
        self._name = name
        self._lock = threading.Lock()
        self._function: Callable[..., int] | None = None
        # The code lives as long as these two.
        self._linker: Any = None
        self._linked: Any = None

    def __call__(self, *arguments: NDArray[Any] | int) -> None:
        function = self._function or self.load()
        values = (
            ctypes.c_int64(argument)
            if isinstance(argument, int)
            else ctypes.c_void_p(argument.ctypes.data)
            for argument in arguments
        )
        # Numba's own functions begin with room for a result and for an exception: there are none.
        status = function(ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_void_p()), *values)
        assert status == 0, "compiled code has raised an exception"

    def load(self) -> Callable[..., int]:
        """Finds the code in the cache or compiles it: some twenty seconds, once for a processor.

        Raises BackendError if it cannot be compiled.
        """
        with self._lock:
            if self._function is None:
                key = self._key()
                stored = cache.load(_KIND, key)
                if stored is not None:
                    # RuntimeError is what LLVM says of code that it cannot load.
                    with contextlib.suppress(RuntimeError):
                        self._function = self._link(stored)
                if self._function is None:
                    self._function = self._build(key)
        return self._function

    def _build(self, key: str) -> Callable[..., int]:
        try:
            made = self._compiled()
            function = self._link(made)
        # Numba, its plugins and LLVM raise errors of any kind.
        except Exception as error:
            fault = str(error).strip().partition("\n")[0] or type(error).__name__
            raise BackendError(
                f"backend cpu: its code cannot be compiled for this processor: {fault}:"
                f" try {ISA_VARIABLE}=portable, or another backend"
            ) from error
        cache.store(_KIND, key, made)
        return function

    def _compiled(self) -> bytes:
        """The name of its symbol and its object code."""
        _LOG.info("compiling for this processor, once: some twenty seconds")
        kernels = importlib.import_module(f"waifu2x.backends.cpu.kernels.{self._module}")
        symbol, code = getattr(kernels, self._name).build()
        return bytes(symbol.encode() + b"\0" + code)

    def _link(self, stored: bytes) -> Callable[..., int]:
        symbol, _, code = stored.partition(b"\0")
        llvm.initialize_native_target()
        library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol(symbol.decode())
        library.add_current_process()  # memset and the like
        self._linker = llvm.create_lljit_compiler()
        self._linked = library.link(self._linker, self._name)
        function: Callable[..., int] = _STATUS_OF(self._linked[symbol.decode()])
        return function

    def _key(self) -> str:
        return cache.digest(self._module, self._name, *environment(), *contents(SOURCES))


def environment() -> tuple[str, ...]:
    """What decides compiled code besides its sources: versions, settings, the processor."""
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("NUMBA_")]
    return (
        *(__version__, sys.version, _NUMBA_VERSION, llvmlite.__version__),
        *(llvm.get_process_triple(), llvm.get_host_cpu_name(), VECTOR.name),
        llvm.get_host_cpu_features().flatten(),
        repr(settings),
    )


def contents(patterns: Sequence[str]) -> list[bytes]:
    """What stands in files of this package, with their names."""
    paths = sorted(path for pattern in patterns for path in _PACKAGE.glob(pattern))
    return [
        part
        for path in paths
        for part in (path.relative_to(_PACKAGE).as_posix().encode(), path.read_bytes())
    ]
