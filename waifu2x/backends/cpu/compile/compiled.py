"""Compiles kernels to machine code once, caches it, and calls it without Numba.

Numba compiles the entry points of `kernels` to C functions of addresses and integers. Their object
code is cached under a key of everything that it depends on, and with it an image, which runs
without LLVM where possible (`code_image`): loading Numba takes longer than a small picture, and
LLVM alone half as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache as once
from typing import Any

from numpy.typing import NDArray

from waifu2x import __version__
from waifu2x.backends.cpu.compile import builders, carried, code_image
from waifu2x.backends.cpu.compile.code_image import Function, UnlinkableError
from waifu2x.backends.cpu.compile.host import described, package_version
from waifu2x.backends.cpu.compile.isa import ISA_VARIABLE, VECTOR
from waifu2x.errors import BackendError
from waifu2x.system import cache, sources

_KIND = "numba"
SOURCES = (
    "backends/cpu/pack/__init__.py",
    "backends/cpu/pack/attention_shapes.py",
    "backends/cpu/compile/isa.py",
    "backends/cpu/kernels/*.py",
    "backends/cpu/pack/records.py",
    "backends/cpu/pack/shapes.py",
    "errors.py",
    "imaging/colour.py",
    "networks/expressions.py",
    "system/lazy_dataclass.py",
)
"""The files whose code or constants an entry contains: the kernels and their imports, except
`host`, whose answer is in the key itself."""
_LOG = logging.getLogger(__name__)
_beginning = threading.Lock()
_STATUS_OF = ctypes.CFUNCTYPE(ctypes.c_int32)


class Compiled:
    """An entry point, called with integers and with arrays, whose addresses it gets.

    Calls release the interpreter lock, so threads run in parallel.
    """

    def __init__(self, module: str, name: str, *, is_told: bool = True) -> None:
        """Stands for the entry `name` of that module of `kernels`. `is_told`: a message announces
        its compilation, which takes long."""
        self.module = module
        self.name = name
        self._is_told = is_told
        self._lock = threading.Lock()
        self._function: Function | None = None
        self._held: object = None
        """Owns the memory of the code."""
        self._coming: tuple[int, Future[bytes | None]] | None = None
        """The process that asked another one to compile, and the code that this makes: a forked
        process would wait in vain."""

    def __call__(self, *arguments: NDArray[Any] | int) -> None:
        function = self._function or self.load()
        values = (
            ctypes.c_int64(argument)
            if isinstance(argument, int)
            else ctypes.c_void_p(argument.ctypes.data)
            for argument in arguments
        )
        # Numba's functions begin with pointers for a result and an exception: there are none.
        status = function(ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_void_p()), *values)
        assert status == 0, "compiled code has raised an exception"

    @property
    def address(self) -> int:
        """The address of the code, which is loaded or compiled if necessary. Raises
        BackendError."""
        function: Any = self._function or self.load()
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def load(self) -> Function:
        """Loads the code from the cache, or compiles it: some seconds, once for a processor.

        Raises BackendError if it cannot be compiled.
        """
        with self._lock:
            if self._function is None:
                self._function = self._found() or self._built(self.key())
        return self._function

    def is_missing(self) -> bool:
        """Returns whether the code must be compiled, and no thread has begun to; loads it if it is
        there."""
        if self._function is not None or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._coming is None:
                self._function = self._found()
            return self._function is None and self._coming is None
        finally:
            self._lock.release()

    def expect(self, made: Future[bytes | None]) -> None:
        """Takes note of what another process compiles."""
        self._coming = os.getpid(), made

    def _found(self) -> Function | None:
        """Returns the function if its code is carried by the package, or in the cache."""
        if function := self._of_image(carried.find(self.module, self.name, code())):
            return function
        key = self.key()
        return self._cached(key) or self._of_object(key)

    def _cached(self, key: str) -> Function | None:
        """Returns the function of the cached image; None if there is none that can run."""
        is_possible = code_image.is_possible()
        return self._of_image(cache.load(_KIND, _image_key(key)) if is_possible else None)

    def _of_image(self, stored: bytes | None) -> Function | None:
        """Returns the function of an image; None if there is none, or it cannot run."""
        if stored is None:
            return None
        try:
            function, self._held = code_image.loaded(stored)
        except UnlinkableError:
            return None
        return function

    def _of_object(self, key: str) -> Function | None:
        """Returns the function of the cached object code; None if LLVM cannot load it."""
        stored = cache.load(_KIND, key)
        if stored is None:
            return None
        # LLVM raises RuntimeError for code that it cannot load.
        with contextlib.suppress(RuntimeError):
            function = self._link(stored)
            _keep_image(key, stored)
            return function
        return None

    def _built(self, key: str) -> Function:
        try:
            made = self._awaited()
            if made is None:
                if self._is_told:
                    _tell()
                made = self.compiled()
            function = self._link(made)
        # Numba, its plugins and LLVM raise errors of any kind.
        except Exception as error:
            if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
                raise BackendError(
                    "backend cpu: not enough memory to compile its code", "free some memory"
                ) from error
            fault = str(error).strip().partition("\n")[0] or type(error).__name__
            raise BackendError(
                f"backend cpu: its code cannot be compiled for this processor: {fault}",
                f"try {ISA_VARIABLE}=portable, or another backend",
            ) from error
        cache.store(_KIND, key, made)
        _keep_image(key, made)
        return function

    def _awaited(self) -> bytes | None:
        """Returns what another process has compiled; None if none does, or it failed."""
        coming, self._coming = self._coming, None
        return coming[1].result() if coming and coming[0] == os.getpid() else None

    def compiled(self) -> bytes:
        """Compiles the entry; returns the name of its symbol and its object code."""
        kernels = importlib.import_module(f"waifu2x.backends.cpu.kernels.{self.module}")
        symbol, code = getattr(kernels, self.name).build()
        return bytes(symbol.encode() + b"\0" + code)

    def _link(self, stored: bytes) -> Function:
        """Links stored object code by LLVM, and returns its function."""
        import llvmlite.binding as llvm

        symbol, code = parts(stored)
        llvm.initialize_native_target()
        library = llvm.JITLibraryBuilder().add_object_img(code).export_symbol(symbol)
        library.add_current_process()  # for memset and other C functions
        linker = llvm.create_lljit_compiler()
        linked = library.link(linker, self.name)
        function: Function = _STATUS_OF(linked[symbol])
        self._held = linker, linked
        return function

    def key(self) -> str:
        """Returns the key of the code in the cache."""
        return cache.digest(self.module, self.name, *environment(), code())


def begin(wanted: Sequence[Compiled]) -> None:
    """Begins to compile what is not there, on all cores where other processes can; returns at once.
    What is asked for first is compiled first."""
    if not builders.can_build():
        return
    with _beginning:
        missing = [one for one in wanted if one.is_missing()]
        if missing:
            _tell()
            orders = [(one.module, one.name, one.key()) for one in missing]
            for one, made in zip(missing, builders.build(orders), strict=True):
                one.expect(made)


@once
def code() -> str:
    """Returns the digest of all sources of compiled code; it does not change while the program
    runs."""
    return sources.digest(SOURCES)


@once
def _tell() -> None:
    """Logs, once, that compiling takes longer this time, or each time without a cache."""
    if why := cache.obstacle(_KIND):
        _LOG.warning("compiling for this processor, some seconds in each run: %s", why)
    else:
        _LOG.info("compiling for this processor, once: some seconds")


def parts(stored: bytes) -> tuple[str, bytes]:
    """Splits a cache entry into the name of its symbol, and the object code."""
    symbol, _, code = stored.partition(b"\0")
    return symbol.decode(), code


def _image_key(key: str) -> str:
    """Returns the cache key of the image, from that of its object code."""
    return cache.digest("image", code_image.FORMAT, key)


def _keep_image(key: str, stored: bytes) -> None:
    """Caches an image of object code, where images can run."""
    if not code_image.is_possible():
        return
    from waifu2x.backends.cpu.compile.object_file import linked

    symbol, code = parts(stored)
    with contextlib.suppress(UnlinkableError):
        cache.store(_KIND, _image_key(key), code_image.packed(linked(code, symbol)))


@once
def environment() -> tuple[str, ...]:
    """Returns what compiled code depends on besides sources: versions, settings, the processor."""
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("NUMBA_")]
    return (
        *(__version__, sys.version, package_version("numba"), package_version("llvmlite")),
        *described(),
        VECTOR.name,
        repr(settings),
    )
