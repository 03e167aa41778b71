"""What the list of backends asks of `cpu`. Importing it takes what Numba's code takes to run."""

from __future__ import annotations

from waifu2x.backends import Backend, Device, pick_device
from waifu2x.backends.cpu.engine import CpuBackend, processor


def create(device: int) -> Backend:
    """The backend on this machine's processor."""
    pick_device("cpu", devices(), device)
    return CpuBackend()


def devices() -> list[Device]:
    """Its one device: all cores."""
    return [processor()]
