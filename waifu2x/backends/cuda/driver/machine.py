"""Finds the CUDA devices of this machine, and raises the errors if there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waifu2x.backends import Device, pick_device
from waifu2x.backends.cuda import driver
from waifu2x.backends.cuda.driver import Attribute, library
from waifu2x.errors import UnavailableError


class Machine:
    """This machine's driver and devices."""

    def __init__(self) -> None:
        """Finds the driver. Raises UnavailableError if there is none."""
        self.driver = driver.find()
        try:
            version = self.driver.version()
        except self.driver.error as error:
            raise UnavailableError(
                f"backend cuda needs NVIDIA's driver ({error})",
                "install it, or use another backend",
            ) from error
        self.cuda = version // 1000, version % 1000 // 10
        """The driver's CUDA version: (12, 4) for 12.4."""

    def devices(self) -> Sequence[Any]:
        """Returns the devices in the driver's order. Raises UnavailableError if there is none."""
        try:
            found = self.driver.devices()
        except self.driver.error as error:
            raise UnavailableError(
                f"backend cuda found no device ({error})", "check NVIDIA's driver with `nvidia-smi`"
            ) from error
        if not found:
            raise UnavailableError("backend cuda found no device", "check it with `nvidia-smi`")
        return found

    def pick(self, index: int) -> Any:
        """Returns the device of that number. Raises UnavailableError."""
        return pick_device("cuda", self.devices(), index - library.hidden_before())

    def capability(self, device: Any) -> tuple[int, int]:
        """Returns a chip's compute capability: (9, 0) for sm_90."""
        return (
            self.driver.attribute(device, Attribute.COMPUTE_CAPABILITY_MAJOR),
            self.driver.attribute(device, Attribute.COMPUTE_CAPABILITY_MINOR),
        )

    def describe(self, device: Any) -> Device:
        """Describes a device for display."""
        memory = self.driver.total_memory(device) / 2**30
        multiprocessors = self.driver.attribute(device, Attribute.MULTIPROCESSOR_COUNT)
        (major, minor), cuda = self.capability(device), self.cuda
        return Device(
            self.driver.device_name(device),
            f"{memory:.1f} GiB, {multiprocessors} multiprocessors, sm_{major}{minor},"
            f" driver for CUDA {cuda[0]}.{cuda[1]}",
            is_gpu=True,
        )
