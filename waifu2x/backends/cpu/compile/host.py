"""Describes this processor, on which compiled code depends.

Loading LLVM to ask takes longer than a small picture. Where the system's description of the
processor is detailed enough (Linux), LLVM is not asked.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import sys
from functools import cache as once
from pathlib import Path
from typing import NamedTuple

_PROCESSORS = "/proc/cpuinfo"
_MOST_BYTES = 1 << 14
"""More bytes than the description of one processor has."""
_DECIDING = re.compile(
    r"(?:vendor_id|cpu family|model|stepping|flags|CPU \w+|Features|isa|uarch)\s*:.*"
)
"""Lines of the description on which LLVM's code depends."""
_LINUX_NAMES = {
    "amx-bf16": "amx_bf16",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sahf": "lahf_lm",
    "sse4.2": "sse4_2",
}
"""Linux's names of features that have other names in LLVM."""


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
    """Returns this processor as LLVM describes it. Raises ModuleNotFoundError if llvmlite is not
    installed."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def has(feature: str) -> bool:
    """Returns whether this processor has a feature of that LLVM name, without LLVM where the system
    lists features. Raises ModuleNotFoundError as `host` does."""
    flags = _flags()
    return _LINUX_NAMES.get(feature, feature) in flags if flags else host().has(feature)


@once
def described() -> tuple[str, ...]:
    """Returns all of this processor on which compiled code depends."""
    deciding = [line for line in processor_text().split("\n") if _DECIDING.fullmatch(line)]
    return (platform.machine(), *deciding) if deciding else host()


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
    return text.decode(errors="replace").partition("\n\n")[0]


@once
def _flags() -> frozenset[str]:
    """Returns the features of an x86-64 processor in Linux's names; none on other systems."""
    found = re.search(r"^flags\s*:(.*)$", processor_text(), re.MULTILINE)
    return frozenset(found[1].split()) if found and platform.machine() == "x86_64" else frozenset()
