"""Caches packed programs between runs: the arithmetic, the tasks and the packed weights.

An entry is the pickle of a packed program, followed by the two arrays that its tasks point into. It
holds only the shapes of steps' and nodes' weights, since nothing reads those any more. Entries
are read with care, though only this user can have written them (`cache`): unpickling makes only
arrays and objects of this package's classes, and calls nothing else.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache as once
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import Arithmetic
from waifu2x.backends.cpu.compile.compiled import environment
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.records import aligned
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache, sources

_KIND = "weights"
_FORMAT = "2"
_SOURCES = (
    "backends/accuracy.py",
    "backends/cpu/**/*.py",
    "backends/winograd.py",
    "lowering/**/*.py",
    "networks/**/*.py",
)
"""The files that decide how a model's file is packed."""
_HEADER = struct.Struct("<3Q")
"""The bytes of the pickle, and the floats of weights and of constants."""
_WEIGHT_DIMENSIONS = 4
"""Arrays of this many dimensions are weights of convolutions."""
_NONE = np.zeros(0, np.float32)
_NUMPYS = {"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"}
"""The names of NumPy that pickles of arrays refer to."""


@once
def code() -> str:
    """Returns the digest of everything that decides how a model's file is packed, except the file
    itself; it does not change while the program runs."""
    return cache.digest(*environment(), sources.digest(_SOURCES))


def key(model: Model, offered: Sequence[Arithmetic]) -> str:
    """Returns the cache key of a model that may run in the offered arithmetics."""
    return cache.digest("prepared", _FORMAT, code(), model_digest(model), model.name, *offered)


def store(key: str, packed: PackedProgram) -> None:
    """Caches a packed program if possible."""
    stream = io.BytesIO()
    bare = replace(packed, weights=_NONE, constants=_NONE)
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(bare)
    pickled = stream.getvalue()
    header = _HEADER.pack(len(pickled), packed.weights.size, packed.constants.size)
    arrays = packed.weights.tobytes(), packed.constants.tobytes()
    cache.store(_KIND, key, b"".join((header, pickled, *arrays)))


def load(key: str) -> PackedProgram | None:
    """Returns the cached packed program, or None."""
    stored = cache.load(_KIND, key)
    if stored is None:
        return None
    try:
        return _parsed(stored)
    # A damaged entry may raise any error.
    except Exception:
        return None


def _parsed(stored: bytes) -> PackedProgram:
    size, weights, constants = _HEADER.unpack_from(stored)
    start = _HEADER.size + size
    packed = _Unpickler(io.BytesIO(stored[_HEADER.size : start])).load()
    assert isinstance(packed, PackedProgram)
    return replace(
        packed,
        weights=_filled(stored, start, weights),
        constants=_filled(stored, start + 4 * weights, constants),
    )


def _filled(stored: bytes, start: int, floats: int) -> NDArray[np.float32]:
    """Copies floats, from the bytes that begin at `start`, to an array on a cache line."""
    array = aligned(floats)
    array[:] = np.frombuffer(stored, np.float32, floats, start)
    return array


class _Pickler(pickle.Pickler):
    def persistent_id(self, one: Any) -> tuple[int, ...] | None:
        """Returns the shape of an array of weights, in the place of the array."""
        is_weight = isinstance(one, np.ndarray) and one.ndim == _WEIGHT_DIMENSIONS
        return tuple(one.shape) if is_weight else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, shape: Any) -> NDArray[np.float32]:
        """Returns an array of that shape for unknown weights: NaN, by strides of 0."""
        return np.broadcast_to(np.float32(np.nan), shape)

    def find_class(self, module: str, name: str) -> Any:
        """Returns a class of this package, or a constructor of arrays or fractions."""
        is_plain = (module, name) == ("fractions", "Fraction")
        is_array = module.partition(".")[0] == "numpy" and name in _NUMPYS
        if is_plain or is_array:
            return super().find_class(module, name)
        if module.startswith("waifu2x."):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")
