"""Opens the `cuda` backend on NVIDIA GPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from waifu2x.backends import Backend, Device
from waifu2x.backends.cuda.compilers import cached
from waifu2x.backends.cuda.driver.machine import Machine
from waifu2x.errors import NotInstalledError


def create(device: int) -> Backend:
    """Opens the backend on the device of that number among `devices()`."""
    # Imported here, since a machine without such a device does not need them.
    from waifu2x.backends.cuda.runtime import CudaRuntime
    from waifu2x.backends.cuda.tensor import executor
    from waifu2x.backends.cuda.tensor.units import choose_units
    from waifu2x.backends.gpu.backend import GpuBackend
    from waifu2x.backends.gpu.fp32.executor import Fp32Executor

    machine = Machine()
    if not cached.has_kept():
        _compiling(machine)  # looks for compilers in all folders of packages
    runtime = CudaRuntime(machine, machine.pick(device))
    units = choose_units(runtime.capability)
    chip = "sm_{}{}".format(*runtime.capability)
    runtime.device = replace(runtime.device, architecture=f"{chip} {units}")
    if units == "fma":
        plain = partial(Fp32Executor, runtime)
        return GpuBackend("cuda", runtime, {"auto": [plain], "fp32": [plain]})
    modes = executor.makers(runtime, units)
    return GpuBackend("cuda", runtime, modes, executor.decides(runtime, units))


def devices(*, gpus_only: bool = False) -> list[Device]:
    """Returns all devices, each a GPU, in the driver's order."""
    machine = Machine()
    ways = f"through {machine.driver.name}, {_compiling(machine)}"
    found = [machine.describe(device) for device in machine.devices()]
    return [replace(device, detail=f"{device.detail}; {ways}") for device in found]


def _compiling(machine: Machine) -> str:
    """Returns the source of kernels, for display. Raises NotInstalledError if there is none."""
    found = cached.find(machine.cuda)
    if found is not None:
        return f"compiled by {found.name}"
    if not cached.has_kept():
        raise NotInstalledError(cached.missing(machine.cuda).of("backend cuda has no kernels yet"))
    return "no compiler is here: only kernels that are kept"
