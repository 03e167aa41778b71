"""Finds the OpenCL devices of this machine, in the order of their numbers."""

from __future__ import annotations

import functools
import logging
import os
from contextlib import suppress

import pyopencl as cl

from waifu2x.backends import Device, pick_device
from waifu2x.errors import DeviceError, UnavailableError
from waifu2x.system import cache

OPTIONS = ("-cl-std=CL1.2",)
"""The options of every compilation."""
_LOG = logging.getLogger(__name__)
_REMEDY = "install your GPU's driver with its OpenCL part"
_OTHER_DRIVER = "install another version of the driver, or use another backend"
_PROBE = "kernel void probe(global float *to) { to[get_global_id(0)] = 1.0f; }"
"""The program that tests whether a driver can compile."""


def usable(*, gpus_only: bool = False) -> list[cl.Device]:
    """Returns discrete GPUs, then integrated ones, then processors, each in the drivers' order.

    With `gpus_only`, the list may be empty, and drivers of processors compile nothing.

    It skips a platform with a broken driver, and a device for which the driver cannot compile, with
    a line in the log. Raises UnavailableError if there is no device at all, and in a process forked
    from one that has used OpenCL, where drivers hang, waiting for their threads. Raises DeviceError
    if drivers can compile for none of the devices, and one of these is a GPU.
    """
    if _first_process() != os.getpid():
        raise UnavailableError(
            "backend opencl cannot be used in a process that was forked after it was used",
            "start such processes with the method spawn",
        )
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise UnavailableError("backend opencl found no platform", _REMEDY) from error
    found: list[cl.Device] = []
    for platform in platforms:
        try:
            found += [device for device in platform.get_devices() if _works(device)]
        except cl.Error as error:
            _LOG.warning(
                "OpenCL platform skipped: %s; reinstall its driver", str(error).partition("\n")[0]
            )
    if not found:
        raise UnavailableError("backend opencl found no device", _REMEDY)
    found = sorted((d for d in found if is_gpu(d) or not gpus_only), key=_rank)
    faults = {device: fault for device in found if (fault := _fault(device))}
    if faults and len(faults) == len(found):
        what = "backend opencl found no device whose driver can compile for it"
        what = f"{what}: {'; '.join(faults.values())}"
        if is_gpu(found[0]):  # which `auto` must not skip silently
            raise DeviceError(what, _OTHER_DRIVER)
        raise UnavailableError(what, _OTHER_DRIVER)
    for device, fault in faults.items():
        _tell(fault, logging.WARNING if is_gpu(device) else logging.DEBUG)
    return [device for device in found if device not in faults]


@functools.cache
def _first_process() -> int:
    """Returns the id of the process that first asked for devices."""
    return os.getpid()


def pick(index: int) -> cl.Device:
    """Returns the device of that number. Raises UnavailableError."""
    return pick_device("opencl", usable(), index)


def describe(device: cl.Device) -> Device:
    """Describes a device for display."""
    units = device.max_compute_units
    return Device(
        device.name.strip(),
        f"{device.global_mem_size / 2**30:.1f} GiB, {units} compute unit{'s' if units > 1 else ''},"
        f" {device.platform.name.strip()}, driver {device.driver_version}",
        is_gpu=is_gpu(device),
        # Each driver compiles in its own way.
        architecture=f"{device.name.strip()}, driver {device.driver_version}",
    )


def is_gpu(device: cl.Device) -> bool:
    """Returns whether a device is a GPU; otherwise it is a processor."""
    return bool(device.type & cl.device_type.GPU)


def identity(device: cl.Device) -> tuple[str, str, str, str]:
    """Returns what a program depends on besides its source: the device and its compiler."""
    platform = device.platform
    return platform.name, platform.version, device.name, device.driver_version


def keeps_programs(device: cl.Device) -> bool:
    """Returns whether its driver caches programs as well as we would: PoCL compiles each kernel
    once more to return a binary, 0.9 s a program."""
    return bool(device.platform.name.strip() == "Portable Computing Language")


@functools.cache
def _fault(device: cl.Device) -> str:
    """Returns the message that the driver cannot compile for a device; empty if it can.

    Success is cached, so that a warm start compiles nothing.
    """
    key = cache.digest(*identity(device), *OPTIONS, _PROBE)
    if cache.load("opencl", key) is not None:
        return ""
    try:
        program = cl._cl._Program(cl.Context([device]), _PROBE)
    except cl.Error:
        return ""  # opening the device reports the error
    try:
        program._build(" ".join(OPTIONS).encode(), [device])
    except cl.Error as error:
        why = str(error)
        with suppress(cl.Error):
            why = program.get_build_info(device, cl.program_build_info.LOG).strip() or why
        driver = f"{device.platform.name.strip()}, driver {device.driver_version}"
        return f"{device.name.strip()} ({driver}: {why.partition(chr(10))[0].strip()})"
    cache.store("opencl", key, b"")
    return ""


@functools.cache
def _tell(fault: str, level: int) -> None:
    """Logs once that a device is skipped."""
    _LOG.log(
        level,
        "OpenCL device passed over, since its driver cannot compile for it: %s; install another"
        " version of the driver",
        fault,
    )


def _works(device: cl.Device) -> bool:
    return bool(device.available and device.compiler_available)


def _rank(device: cl.Device) -> int:
    if not is_gpu(device):
        return 2
    return 1 if device.host_unified_memory else 0
