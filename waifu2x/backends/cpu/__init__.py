"""The `cpu` backend: every core of any processor, through Numba."""

from __future__ import annotations

from waifu2x.backends.cpu.engine import CpuBackend


def create() -> CpuBackend:
    """The backend on this machine's processor."""
    return CpuBackend()
