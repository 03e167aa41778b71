"""Asks the processor for its vectors, caches and cores, instead of assuming them."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path

from waifu2x.backends.cpu.compile.host import has, processor_text
from waifu2x.errors import BackendError
from waifu2x.system.lazy_dataclass import dataclass

ISA_VARIABLE = "WAIFU2X_CPU_ISA"
SLEEPS = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32
"""Whether compiled code can put a thread to sleep."""


@dataclass(frozen=True)
class VectorUnit:
    """The vector registers for which code is compiled."""

    name: str
    lanes: int
    """The float32 values of a vector."""
    registers: int
    """The number of vector registers of the instruction set."""
    integers: bool = False
    """Whether it multiplies 16-bit integers faster than floats."""
    tiles: bool = False
    """Whether it also has AMX tile registers for bf16."""


_UNITS = {
    "amx": VectorUnit("amx", 16, 32, integers=True, tiles=True),
    "avx512": VectorUnit("avx512", 16, 32, integers=True),
    "avx2": VectorUnit("avx2", 8, 16, integers=True),
    # SSE, NEON, VSX and WebAssembly all have four lanes, and sixteen registers or more.
    "portable": VectorUnit("portable", 4, 16),
}


def available_isas() -> list[str]:
    """Returns the vector units that this processor has, widest first."""
    available = ["portable"]
    if has("avx2") and has("fma"):
        available.insert(0, "avx2")
        if has("avx512f") and has("avx512bw"):
            available.insert(0, "avx512")
            needed = ("amx-tile", "amx-bf16", "avx512bf16")
            if all(map(has, needed)) and _request_tiles():
                available.insert(0, "amx")
    return available


def detect_vector_unit() -> VectorUnit:
    """Returns the widest vectors of this processor, or those that WAIFU2X_CPU_ISA names.

    Raises BackendError if the variable names something that this processor lacks.
    """
    available = available_isas()
    forced = os.environ.get(ISA_VARIABLE) or available[0]
    if forced not in available:
        raise BackendError(f"{ISA_VARIABLE}={forced}: this processor has {', '.join(available)}")
    return _UNITS[forced]


def dot_instruction(lanes: int) -> str:
    """Returns the name of this processor's instruction that adds products of pairs of 16-bit
    integers to 32-bit sums; empty if it has none."""
    if has("avx512vnni") and (lanes == 16 or has("avx512vl")):
        return "vpdpwssd"
    if has("avxvnni") and lanes == 8:
        return "{vex} vpdpwssd"
    return ""


@cache
def _request_tiles() -> bool:
    """Asks Linux for the tile registers, which a process gets only on request; False if refused."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    denied: int = ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data)
    return denied == 0


def l2_bytes() -> int:
    """Returns the size of the L2 cache of one core; 512 KiB if the system does not say."""
    return _cache(2)[0] or 512 * 1024


def l3_bytes() -> int:
    """Returns a processor's share of the L3 cache; 2 MiB if the system does not say."""
    size, sharing = _cache(3)
    return size // sharing or 2048 * 1024


@cache
def _cache(level: int) -> tuple[int, int]:
    """Returns the size of a cache and the number of processors that share it; (0, 1) if unknown."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            found = int((folder / "level").read_text())
            size = re.fullmatch(r"(\d+)K", (folder / "size").read_text().strip())
            sharing = int((folder / "shared_cpu_map").read_text().replace(",", ""), 16)
        except (OSError, ValueError):
            continue
        if found == level and size:
            return int(size[1]) * 1024, max(1, sharing.bit_count())
    return 0, 1


def processor_name() -> str:
    """Returns the processor's name as the system gives it."""
    match = re.search(r"model name\s*:\s*(.+)", processor_text())
    return match[1].strip() if match else platform.processor() or platform.machine()


VECTOR = detect_vector_unit()
