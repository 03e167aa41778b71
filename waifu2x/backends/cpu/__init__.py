"""The `cpu` backend: every core of any processor, through Numba."""

from __future__ import annotations

from waifu2x.backends import Backend, Device, pick_device


def create(device: int) -> Backend:
    """The backend on this machine's processor."""
    from waifu2x.backends.cpu.engine import CpuBackend

    pick_device("cpu", devices(), device)
    return CpuBackend()


def devices() -> list[Device]:
    """Its one device: all cores."""
    from waifu2x.backends.cpu.engine import processor

    return [processor()]
