"""This processor as LLVM names it, which compiled code depends on.

To load LLVM and ask it takes longer than a small picture does. So its answer is kept under what the
system says of the processor, where that says enough (Linux).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import re
import sys
from functools import cache as once
from pathlib import Path
from typing import NamedTuple

from waifu2x.system import cache

_KIND = "numba"
_PROCESSORS = "/proc/cpuinfo"
_MOST_BYTES = 1 << 14
"""More than the system says of one processor."""
_CHANGING = ("cpu MHz", "bogomips", "processor", "apicid", "core id", "initial apicid")
"""Lines that say nothing of what a processor can do."""


class Host(NamedTuple):
    """A processor."""

    triple: str
    name: str
    features: str
    """As LLVM takes them: `+avx2,-avx512f`."""

    def has(self, feature: str) -> bool:
        """Whether it has a feature, by LLVM's name of it."""
        return f"+{feature}" in self.features.split(",")


@once
def host() -> Host:
    """Returns this processor. Raises ModuleNotFoundError where llvmlite is not installed."""
    said = processor_text()
    if not said:
        return _asked()
    key = cache.digest("host", package_version("llvmlite"), platform.machine(), said)
    kept = _parsed(cache.load(_KIND, key))
    if kept is None:
        kept = _asked()
        cache.store(_KIND, key, json.dumps(kept).encode())
    return kept


@once
def package_version(name: str) -> str:
    """Returns the version of an installed package, without importing it. Raises
    ModuleNotFoundError.

    From its file where it has one: to import `importlib.metadata` takes as long as to compute a
    small picture.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    with contextlib.suppress(OSError):
        text = Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")
        if told := re.search(r"""version["']?(?::| =) ["']([^"']+)""", text):
            return told[1]
    from importlib.metadata import version

    return version(name)


@once
def processor_text() -> str:
    """Returns what the system says of the first processor; empty where it says nothing.

    Only the beginning is read: the system writes the text while it is read, and takes its time for
    hundreds of processors.
    """
    if sys.platform != "linux":
        return ""
    try:
        descriptor = os.open(_PROCESSORS, os.O_RDONLY)
        try:
            text = os.read(descriptor, _MOST_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    first = text.decode(errors="replace").partition("\n\n")[0]
    return "\n".join(line for line in first.split("\n") if not line.startswith(_CHANGING))


def _asked() -> Host:
    """Returns LLVM's own answer."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def _parsed(kept: bytes | None) -> Host | None:
    try:
        triple, name, features = json.loads(kept or b"null")
    except (ValueError, TypeError):
        return None
    if not all(isinstance(part, str) for part in (triple, name, features)):
        return None
    return Host(triple, name, features)
