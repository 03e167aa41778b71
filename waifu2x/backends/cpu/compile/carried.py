"""Finds the machine code that a wheel built for release carries.

It is compiled for sets of instructions, not for a processor: each file is an image (`code_image`),
stored as an entry of the cache is, under a key of all that it depends on. Code that is not there,
is damaged, or was made by another version is compiled here, as in a build from source.
`release/machine_code.py` makes the folder.
"""

from __future__ import annotations

import os
from functools import cache as once
from typing import NamedTuple

from waifu2x import __version__
from waifu2x.backends.cpu.compile import code_image, host, isa
from waifu2x.system import cache, resources

_V3 = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf"),
    *("sse4.2", "xsave"),
)
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
"""The features of x86-64-v3 and -v4 that LLVM may use (System V ABI, micro-architecture levels)."""


class InstructionSet(NamedTuple):
    """A set of instructions for which code is carried."""

    name: str
    vector: str
    """The vector unit, as `isa.VECTOR` names it."""
    processor: str
    """The name of a processor that has no other instructions, in LLVM's words."""
    features: tuple[str, ...]
    """Everything that it needs, in LLVM's words."""


SETS = (
    InstructionSet(
        "amx",
        "amx",
        "x86-64-v4",
        (*_V4, "avx512vnni", "avx512bf16", "amx-tile", "amx-bf16"),
    ),
    InstructionSet("vnni", "avx512", "x86-64-v4", (*_V4, "avx512vnni")),
    InstructionSet("avx512", "avx512", "x86-64-v4", _V4),
    InstructionSet("avxvnni", "avx2", "x86-64-v3", (*_V3, "avxvnni")),
    InstructionSet("avx2", "avx2", "x86-64-v3", _V3),
)
"""The one with the most instructions first."""


@once
def target() -> InstructionSet | None:
    """Returns the set for this processor; None if there is none, or no code of it would do: Numba's
    settings ask for other code."""
    if not code_image.is_possible() or any(name.startswith("NUMBA_") for name in os.environ):
        return None
    for each in SETS:
        if each.vector == isa.VECTOR.name and all(map(host.has, each.features)):
            return each
    return None


def find(module: str, name: str, sources: str) -> bytes | None:
    """Returns the image of an entry point, made of sources of that digest; None if none is carried
    that suits this processor and these versions."""
    folder, found = resources.shipped_code(), target()
    if found is None or not folder.is_dir():
        return None
    return cache.read(folder / key(found, module, name, sources))


def key(target: InstructionSet, module: str, name: str, sources: str) -> str:
    """Returns the name of the file of an entry point. Versions of Numba and LLVM count but for
    their last part: repairs do not make other code wrong."""
    versions = (_series(host.package_version(name)) for name in ("numba", "llvmlite"))
    carried = "carried", __version__, code_image.FORMAT, *versions, repr(target)
    return cache.digest(*carried, module, name, sources)


def _series(version: str) -> str:
    """Returns a version but for its last part: 0.68 for 0.68.1."""
    return ".".join(version.split(".")[:2])
