"""Numba functions whose machine code is kept in our cache folder.

Numba asks a cache object for compiled code and hands it what it compiled. Its own one keeps an
index by time stamps beside the source and trusts what it finds; this one is a dozen lines over
`waifu2x.cache`, whose entries are keyed by content, checked, and written whole.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import serialize
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys

from waifu2x import __version__, cache
from waifu2x.backends.cpu.isa import VECTOR

_KIND = "numba"
_LOG = logging.getLogger(__name__)


def compiled(function: Callable[..., Any]) -> Any:
    """`function` as machine code, without the interpreter lock, cached on disk."""
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _CodeCache(function.__qualname__)
    return dispatcher


class _CodeCache(_Cache):  # type: ignore[misc]
    """The compiled forms of one function, one entry for each signature and processor."""

    def __init__(self, name: str) -> None:
        self._name = name
        # A function's code holds all that it calls, so every source file here decides it.
        sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
        versions = (__version__, numba.__version__, llvmlite.__version__, VECTOR.name)
        self._stamp = cache.digest(name, *versions, *sources)

    @property
    def cache_path(self) -> str:
        folder = cache.directory()
        return str(folder / _KIND) if folder else ""

    def load_overload(self, signature: Any, target: Any) -> Any:
        stored = cache.load(_KIND, self._key(signature, target.codegen()))
        if stored is None:
            _LOG.info("compiling for this processor, once: a few seconds")
            return None
        # Stored code needs the runtime's symbols alone. Numba's own cache refreshes the whole
        # target, which imports its implementations of everything and takes 0.1 s.
        rtsys.initialize(target)
        return CompileResult._rebuild(target, *pickle.loads(stored))

    def save_overload(self, signature: Any, data: Any) -> None:
        cache.store(_KIND, self._key(signature, data.codegen), serialize.dumps(data._reduce()))

    def _key(self, signature: Any, codegen: Any) -> str:
        # The magic tuple names the processor and its features.
        return cache.digest(self._stamp, str(signature), repr(codegen.magic_tuple()))

    def enable(self) -> None:
        """Always on."""

    def disable(self) -> None:
        """Always on."""

    def flush(self) -> None:
        """Entries are never stale: `waifu2x cache clear` removes them."""
