"""Reads the sources of kernels, each as one text, and makes the macros that specialise them."""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import asdict
from typing import Any

import numpy as np

from waifu2x.backends.gpu.device.runtime import Macros
from waifu2x.system import cache
from waifu2x.system.resources import shipped_kernels

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


@functools.cache
def announce_compiling(device: str, kind: str) -> None:
    """Logs, once per process, that this start compiles; `kind` is that of cache entries."""
    log = logging.getLogger(__name__)
    if why := cache.obstacle(kind):
        log.warning("compiling for %s, some seconds in each run: %s", device, why)
    else:
        log.info("compiling for %s, once: some seconds", device)


def exists(name: str) -> bool:
    """Returns whether `kernels/` has a file of that name."""
    return (shipped_kernels() / name).is_file()


@functools.cache
def read(name: str) -> str:
    """Returns the text of a file of `kernels/`, with the first `#include` of each file of that
    folder replaced by its text."""
    seen: set[str] = set()

    def included(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (shipped_kernels() / name).read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda match: included(match[1]), text)

    return included(name)


def of(stem: str) -> str:
    """Returns the text of the `.cl` or `.cu` file of that stem."""
    return read(f"{stem}.cl" if exists(f"{stem}.cl") else f"{stem}.cu")


@functools.cache
def digest(stem: str) -> str:
    """Returns the digest of the file of that stem."""
    return cache.digest(of(stem))


def float_text(value: float) -> str:
    """Returns a number, rounded to 32 bits, as a C literal of type float."""
    return f"{float(np.float32(value))!r}f"


def vector_type(width: int) -> str:
    """Returns the type of `width` floats in the words of `kernels/dialect.h`."""
    return "float" if width == 1 else f"float{width}"


def switches(**conditions: object) -> dict[str, str | int]:
    """Returns the macros whose conditions hold, each defined as 1, for kernels' `#ifdef`."""
    return {name: 1 for name, condition in conditions.items() if condition}


def fields_of(shape: Any) -> dict[str, str | int]:
    """Returns the fields of a dataclass of numbers as macros of the same names."""
    return {name.upper(): int(value) for name, value in asdict(shape).items()}


def definitions(macros: Macros) -> tuple[list[str], str]:
    """Returns compiler options that define macros, and `#define` lines for the start of the text:
    macros with arguments, such as `ACTIVATE(x, slope)`, which some drivers refuse as options."""
    options = [f"-D{name}={value}" for name, value in macros.items() if "(" not in name]
    lines = [f"#define {name} {value}\n" for name, value in macros.items() if "(" in name]
    return options, "".join(lines)
