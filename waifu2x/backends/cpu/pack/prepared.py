"""Models as the processor runs them, kept between runs: which arithmetic, tasks, packed weights.

An entry is the pickle of a packed program, and the two arrays that its tasks point into. The
weights of steps and nodes are not kept, only their shapes: nobody reads them any more. Pickles are
read with care, though nobody else can have written them (`cache`): they make objects of this
package's classes and arrays, and call nothing.
"""

from __future__ import annotations

import io
import logging
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.accuracy import code
from waifu2x.backends.cpu.arithmetic import Arithmetic
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.pack.packed import PackedProgram
from waifu2x.backends.cpu.pack.records import aligned
from waifu2x.backends.cpu.run.workers import Workers
from waifu2x.errors import printable
from waifu2x.networks.digests import model_digest
from waifu2x.networks.model import Model
from waifu2x.system import cache

_LOG = logging.getLogger(__name__)
_KIND = "weights"
_FORMAT = "1"
_HEADER = struct.Struct("<3Q")
"""Bytes of the pickle; floats of weights and of constants."""
_WEIGHT_DIMENSIONS = 4
"""Arrays of so many are weights of convolutions."""
_NONE = np.zeros(0, np.float32)
_NUMPYS = {"_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"}
"""What pickles of arrays take of NumPy."""


class PreparedProgram(NamedTuple):
    """A model's program as it is run."""

    packed: PackedProgram
    passed_over: Mapping[Arithmetic, float]
    """Faster ways to compute it, which keep too little: PSNR in dB."""


def accurate(model: Model, offered: Sequence[Arithmetic], workers: Workers) -> CpuModel:
    """The model in the first of these arithmetics that keeps what `auto` promises, or in the last:
    as it was kept, or chosen and packed now."""
    entry = key(model, offered)
    found = load(entry)
    if found is None:
        from waifu2x.backends.cpu.pack.choosing import choose

        found = choose(model, offered, workers)
        store(entry, found)
    if found.passed_over:
        _LOG.warning(
            "%s: %s %s too coarse, using %s (slower)",
            printable(model.name),
            " and ".join(found.passed_over),
            "is" if len(found.passed_over) == 1 else "are",
            found.packed.arithmetic,
        )
    return CpuModel(model, found.packed, workers)


def key(model: Model, offered: Sequence[Arithmetic]) -> str:
    """The key of everything that decides what becomes of a model."""
    digest, name = model_digest(model), model.name
    return cache.digest("prepared", _FORMAT, code(), digest, name, *offered)


def store(key: str, prepared: PreparedProgram) -> None:
    """Keeps a packed program, if the cache can."""
    packed = prepared.packed
    stream = io.BytesIO()
    bare = replace(packed, weights=_NONE, constants=_NONE)
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(tuple(prepared._replace(packed=bare)))
    pickled = stream.getvalue()
    header = _HEADER.pack(len(pickled), packed.weights.size, packed.constants.size)
    arrays = packed.weights.tobytes(), packed.constants.tobytes()
    cache.store(_KIND, key, b"".join((header, pickled, *arrays)))


def load(key: str) -> PreparedProgram | None:
    """A packed program that was kept, or None."""
    stored = cache.load(_KIND, key)
    if stored is None:
        return None
    try:
        return _parsed(stored)
    # Of an entry that is not what its key says, anything may be wrong.
    except Exception:
        return None


def _parsed(stored: bytes) -> PreparedProgram:
    size, weights, constants = _HEADER.unpack_from(stored)
    start = _HEADER.size
    packed, passed_over = _Unpickler(io.BytesIO(stored[start : start + size])).load()
    assert isinstance(packed, PackedProgram)
    start += size
    arrays = [
        _filled(stored, start, weights),
        _filled(stored, start + 4 * weights, constants),
    ]
    return PreparedProgram(replace(packed, weights=arrays[0], constants=arrays[1]), passed_over)


def _filled(stored: bytes, start: int, floats: int) -> NDArray[np.float32]:
    """Floats on a cache line, from the bytes that begin at `start`."""
    array = aligned(floats)
    array[:] = np.frombuffer(stored, np.float32, floats, start)
    return array


class _Pickler(pickle.Pickler):
    def persistent_id(self, one: Any) -> tuple[int, ...] | None:
        """The shape of an array that is weights."""
        is_weight = isinstance(one, np.ndarray) and one.ndim == _WEIGHT_DIMENSIONS
        return tuple(one.shape) if is_weight else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, shape: Any) -> NDArray[np.float32]:
        """Weights that are not known: NaN, in no memory."""
        return np.broadcast_to(np.float32(np.nan), shape)

    def find_class(self, module: str, name: str) -> Any:
        """A class of this package, or what arrays and fractions are made by."""
        is_plain = (module, name) == ("fractions", "Fraction")
        is_array = module.partition(".")[0] == "numpy" and name in _NUMPYS
        if is_plain or is_array:
            return super().find_class(module, name)
        if module.startswith("waifu2x."):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name}")
