"""The CUDA devices of this machine, and what is missing where there are none."""

from __future__ import annotations

from waifu2x.backends import Device, pick_device
from waifu2x.errors import UnavailableError

try:
    import pycuda.driver as cuda
except ModuleNotFoundError:
    raise
except ImportError as error:
    # pycuda is there, and what it links to is not.
    raise UnavailableError(
        f"backend cuda needs NVIDIA's driver ({error}): install it, or use another backend"
    ) from error


def usable() -> list[cuda.Device]:
    """The devices in the driver's order. Raises UnavailableError if there is none."""
    try:
        cuda.init()
        found = [cuda.Device(index) for index in range(cuda.Device.count())]
    except cuda.Error as error:
        raise UnavailableError(
            f"backend cuda found no device ({error}): check NVIDIA's driver with `nvidia-smi`"
        ) from error
    if not found:
        raise UnavailableError("backend cuda found no device: check it with `nvidia-smi`")
    return found


def pick(index: int) -> cuda.Device:
    """The device of that number. Raises UnavailableError."""
    return pick_device("cuda", usable(), index)


def describe(device: cuda.Device) -> Device:
    """For people."""
    major, minor = device.compute_capability()
    version = cuda.get_driver_version()
    return Device(
        device.name(),
        f"{device.total_memory() / 2**30:.1f} GiB, {device.multiprocessor_count} multiprocessors,"
        f" sm_{major}{minor}, driver for CUDA {version // 1000}.{version % 1000 // 10}",
        is_gpu=True,
    )
