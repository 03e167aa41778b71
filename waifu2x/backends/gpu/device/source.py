"""Kernel sources as one text each: what is compiled, and what its cache entry is keyed by."""

from __future__ import annotations

import functools
import logging
import re

from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.system import cache
from waifu2x.system.resources import shipped_kernels

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


@functools.cache
def announce_compiling(device: str, kind: str) -> None:
    """Says once in a process why it takes longer this time; `kind` is that of cache entries."""
    log = logging.getLogger(__name__)
    if why := cache.obstacle(kind):
        log.warning("compiling for %s, some seconds in each run: %s", device, why)
    else:
        log.info("compiling for %s, once: some seconds", device)


def exists(name: str) -> bool:
    """Whether there is such a file of `kernels/`."""
    return (shipped_kernels() / name).is_file()


@functools.cache
def read(name: str) -> str:
    """A file of `kernels/`, with the files of that folder that it includes in their places, each
    once."""
    seen: set[str] = set()

    def included(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (shipped_kernels() / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda match: included(match[1]), text)

    return included(name)


def of(stem: str) -> str:
    """The file of that stem, in whichever language it is written."""
    return read(f"{stem}.cl" if exists(f"{stem}.cl") else f"{stem}.cu")


@functools.cache
def digest(stem: str) -> str:
    """The digest of the file of that stem."""
    return cache.digest(of(stem))


def definitions(macros: Macros) -> tuple[list[str], str]:
    """Options of a compiler that define macros, and what to put before the text: those that have
    arguments, such as `ACTIVATE(x, slope)`, which not every driver takes as an option."""
    options = [f"-D{name}={value}" for name, value in macros.items() if "(" not in name]
    lines = [f"#define {name} {value}\n" for name, value in macros.items() if "(" in name]
    return options, "".join(lines)
