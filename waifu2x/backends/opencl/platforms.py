"""The OpenCL devices of this machine, in the order in which they are numbered."""

from __future__ import annotations

import functools
import logging
import os

import pyopencl as cl

from waifu2x.backends import Device, pick_device
from waifu2x.errors import UnavailableError

_LOG = logging.getLogger(__name__)
_REMEDY = "install your GPU's driver with its OpenCL part"


def usable() -> list[cl.Device]:
    """Discrete GPUs before integrated ones before processors, in the drivers' order otherwise.

    A platform whose driver is broken is skipped, with a line in the log. Raises UnavailableError
    if there is no device at all, and in a process forked from one that has used OpenCL: drivers
    wait there for their threads without end.
    """
    if _first_process() != os.getpid():
        raise UnavailableError(
            "backend opencl cannot be used in a process that was forked after it was used: start"
            " such processes with the method spawn"
        )
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise UnavailableError(f"backend opencl found no platform: {_REMEDY}") from error
    found: list[cl.Device] = []
    for platform in platforms:
        try:
            found += [device for device in platform.get_devices() if _works(device)]
        except cl.Error as error:
            _LOG.warning(
                "OpenCL platform skipped: %s: reinstall its driver", str(error).partition("\n")[0]
            )
    if not found:
        raise UnavailableError(f"backend opencl found no device: {_REMEDY}")
    return sorted(found, key=_rank)


@functools.cache
def _first_process() -> int:
    """The process that first asked for devices."""
    return os.getpid()


def pick(index: int) -> cl.Device:
    """The device of that number. Raises UnavailableError."""
    return pick_device("opencl", usable(), index)


def describe(device: cl.Device) -> Device:
    """For people."""
    units = device.max_compute_units
    return Device(
        device.name.strip(),
        f"{device.global_mem_size / 2**30:.1f} GiB, {units} compute unit{'s' if units > 1 else ''},"
        f" {device.platform.name.strip()}, driver {device.driver_version}",
        is_gpu=is_gpu(device),
    )


def is_gpu(device: cl.Device) -> bool:
    """Rather than a processor."""
    return bool(device.type & cl.device_type.GPU)


def keeps_programs(device: cl.Device) -> bool:
    """Whether its driver has a cache of compiled programs that serves as well as one of ours: PoCL
    compiles each kernel once more to hand over a binary, 0.9 s a program."""
    return bool(device.platform.name.strip() == "Portable Computing Language")


def _works(device: cl.Device) -> bool:
    return bool(device.available and device.compiler_available)


def _rank(device: cl.Device) -> int:
    if not is_gpu(device):
        return 2
    return 1 if device.host_unified_memory else 0
