"""The devices that can compute here."""

from __future__ import annotations

from waifu2x.backends import BACKEND_NAMES, devices_of
from waifu2x.errors import BackendError
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class DeviceInfo:
    """A device that can compute, as `list_devices` gives it.

    `waifu2x.Engine(info.backend, info.number)` opens it.
    """

    backend: str
    """The name of its backend: "cuda", "opencl", "cpu" or "numpy"."""
    number: int
    """Its number among the devices of the backend."""
    name: str
    """What its maker calls it."""
    detail: str
    """Its size and the shape of the code that runs on it, in words."""
    is_gpu: bool
    """Whether it is a GPU; otherwise a processor."""


def list_devices(backend: str | None = None) -> list[DeviceInfo]:
    """The devices that can compute here, by backend, in the order in which "auto" tries them.

    The same facts as `waifu2x devices` shows. Nothing is opened for work.

    Args:
        backend: The name of one backend, to have only its devices.

    Raises:
        BackendError: Why the backend that was named cannot be used here, and what to do; or that
            there is none of that name. Without a name, such backends are left out.

    Examples:
        >>> [device.number for device in waifu2x.list_devices("cpu")]
        [0]
        >>> waifu2x.list_devices()[-1].backend
        'numpy'
    """
    if backend is not None:
        return [
            DeviceInfo(backend, number, found.name, found.detail, found.is_gpu)
            for number, found in enumerate(devices_of(backend))
        ]
    devices: list[DeviceInfo] = []
    for name in BACKEND_NAMES:
        try:
            devices += list_devices(name)
        except BackendError:
            continue
    return devices
