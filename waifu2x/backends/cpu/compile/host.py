"""Describes this processor in LLVM's terms, on which compiled code depends.

Loading LLVM to ask takes longer than a small picture. So its answer is cached by the system's
description of the processor, where that is detailed enough (Linux).
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
"""More bytes than the description of one processor has."""
_CHANGING = ("cpu MHz", "bogomips", "processor", "apicid", "core id", "initial apicid")
"""Lines of the description without relevance to compiled code."""


class Host(NamedTuple):
    """A processor."""

    triple: str
    name: str
    features: str
    """Its features in LLVM's notation: `+avx2,-avx512f`."""

    def has(self, feature: str) -> bool:
        """Returns whether it has a feature of that LLVM name."""
        return f"+{feature}" in self.features.split(",")


@once
def host() -> Host:
    """Returns this processor. Raises ModuleNotFoundError if llvmlite is not installed."""
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

    It reads the package's file if there is one: importing `importlib.metadata` takes as long as
    computing a small picture.
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
    """Returns the system's description of the first processor; empty if there is none.

    It reads only the beginning: the system makes the text while it is read, which takes long for
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
