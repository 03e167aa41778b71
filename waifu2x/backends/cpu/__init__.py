"""The `cpu` backend: every core of any processor, through Numba."""

from __future__ import annotations

from waifu2x.backends import Device, only_device
from waifu2x.backends.cpu.engine import CpuBackend, processor


def create(device: int) -> CpuBackend:
    """The backend on this machine's processor."""
    only_device(CpuBackend.name, device)
    return CpuBackend()


def devices() -> list[Device]:
    """Its one device: all cores."""
    return [processor()]
