"""The `cpu` backend: every core of any processor, through Numba."""

from __future__ import annotations

from waifu2x.backends import Backend


def create() -> Backend:
    """The backend on this machine's processor."""
    from waifu2x.backends.cpu.engine import CpuBackend

    return CpuBackend()
