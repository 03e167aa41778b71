"""Finds the Vulkan devices of this machine, in the order of their numbers."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import os
from typing import Any

from waifu2x.backends import Device, pick_device
from waifu2x.backends.vulkan import library as vk
from waifu2x.backends.vulkan.library import VulkanError, array_of, library, listed, pointer_to
from waifu2x.errors import UnavailableError
from waifu2x.system.lazy_dataclass import dataclass

_LOG = logging.getLogger(__name__)
_REMEDY = (
    "install your GPU's driver, on Linux with the package mesa-vulkan-drivers or that of its maker"
)
_VERSION = 1 << 22 | 2 << 12
_ENUMERATE_PORTABLE = b"VK_KHR_portability_enumeration"
_COMPUTE = 2
"""The flag of a family of queues that can compute."""
_INTEGRATED, _DISCRETE, _VIRTUAL, _PROCESSOR = 1, 2, 3, 4
"""Types of devices."""
_ORDER = (_DISCRETE, _INTEGRATED, _VIRTUAL, 0, _PROCESSOR)
_LOCAL = 1
"""The flag of a heap of the device's own memory."""
_NUMBERS = {0: "f16", 1: "f32", 3: "s8", 5: "s32", 7: "u8", 9: "u32", 1000141000: "bf16"}
_SUBGROUP = 3

# The places of features among those of their structures.
SHADER_INT64 = 40
STORAGE_16 = 0
STORAGE_8, FLOAT_16, TIMELINES, ADDRESSES, MEMORY_MODEL = 2, 7, 37, 38, 41

MATRIX_EXTENSIONS = frozenset({"VK_KHR_cooperative_matrix", "VK_EXT_subgroup_size_control"})
_HALF, _FLOAT = 0, 1
_VECTOR = 8
"""The 16-bit floats of a vector: rows of matrices are whole vectors."""


@dataclass(frozen=True)
class PhysicalDevice:
    """A device with what its driver tells of it."""

    handle: int
    name: str
    type: int
    api: int
    driver: str
    identity: tuple[str, ...]
    """All that compiled code depends on besides its source."""
    memory: Any
    """A vk.MemoryProperties."""
    limits: Any
    """A vk.Limits."""
    subgroup: int
    units: int
    """Compute units, or 0 if it does not tell."""
    most_allocated: int
    """The most bytes of an allocation."""
    extensions: frozenset[str]
    missing: str
    """The first feature that the backend needs and it lacks; empty if there is none."""
    families: tuple[tuple[int, int, int], ...]
    """The flags, the number of queues and the bits of timestamps of each family of queues."""
    matrices: tuple[str, ...]
    """The products of matrices that it has units for, as 16x16x16 f16 > f32."""
    matrix: tuple[int, int, int] | None = None
    """The rows, columns and length of products of 16-bit floats, summed in fp32, that kernels can
    use."""

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU; otherwise it is a processor."""
        return self.type != _PROCESSOR

    @property
    def is_discrete(self) -> bool:
        """Whether it is a GPU with memory of its own."""
        return self.type == _DISCRETE

    @property
    def shares_memory(self) -> bool:
        """Whether its memory is the machine's."""
        return self.type in (_INTEGRATED, _PROCESSOR)

    @property
    def family(self) -> int:
        """The family of queues to compute with: one without graphics if there is any."""
        able = [n for n, (flags, *_) in enumerate(self.families) if flags & _COMPUTE]
        return min(able, key=lambda n: self.families[n][0] & 1)

    @property
    def local_heap(self) -> int:
        """The number of the largest heap of its own memory."""
        heaps = self.memory.heaps[: self.memory.heap_count]
        return max(range(len(heaps)), key=lambda n: (heaps[n].flags & _LOCAL, heaps[n].size))


@functools.cache
def instance() -> Any:
    """Returns the process's instance of Vulkan. Raises UnavailableError."""
    loader = library()
    found = {
        each.name
        for each in listed(loader.EnumerateInstanceExtensionProperties, vk.Extension, None)
    }
    portable = _ENUMERATE_PORTABLE in found
    names = array_of(ctypes.c_char_p, [_ENUMERATE_PORTABLE] if portable else [])
    application = vk.ApplicationInfo(b"waifu2x", 0, None, 0, _VERSION)
    info = vk.InstanceInfo(
        int(portable), pointer_to(application), 0, None, len(names), pointer_to(names)
    )
    made = ctypes.c_void_p()
    try:
        loader.CreateInstance(pointer_to(info), None, ctypes.byref(made))
    except VulkanError as error:
        raise UnavailableError(f"backend vulkan found no driver ({error})", _REMEDY) from error
    return made


@functools.cache
def _first_process() -> int:
    """Returns the id of the process that first asked for devices."""
    return os.getpid()


def usable() -> list[PhysicalDevice]:
    """Returns discrete GPUs, integrated ones, others and processors, each in the loader's order.

    It skips devices that lack what the backend needs, with a line in the log. Raises
    UnavailableError if there is none, and in a process forked from one that has used Vulkan.
    """
    if _first_process() != os.getpid():
        raise UnavailableError(
            "backend vulkan cannot be used in a process that was forked after it was used",
            "start such processes with the method spawn",
        )
    found = _described()
    if not found:
        raise UnavailableError("backend vulkan found no device", _REMEDY)
    fitting = [device for device in found if not device.missing]
    if not fitting:
        first = found[0]
        raise UnavailableError(
            f"backend vulkan needs {first.missing}, which {first.name} has not with {first.driver}",
            "update its driver, or use another backend",
        )
    for device in found:
        if device.missing:
            _LOG.info("Vulkan device passed over: %s lacks %s", device.name, device.missing)
    return fitting


def pick(index: int) -> PhysicalDevice:
    """Returns the device of that number. Raises UnavailableError."""
    return pick_device("vulkan", usable(), index)


def describe(device: PhysicalDevice) -> Device:
    """Describes a device for display."""
    size = device.memory.heaps[device.local_heap].size
    parts = [f"{size / 2**30:.1f} GiB" + (" shared" if device.shares_memory else "")]
    if device.units:
        parts.append(f"{device.units} compute units")
    parts += [f"subgroups of {device.subgroup}", *device.matrices, device.driver]
    return Device(device.name, ", ".join(parts), is_gpu=device.is_gpu)


@functools.cache
def _described() -> list[PhysicalDevice]:
    loader, own = library(), instance()
    try:
        handles = listed(loader.EnumeratePhysicalDevices, ctypes.c_void_p, own)
    except VulkanError as error:
        raise UnavailableError(
            f"backend vulkan found no device ({error})", "reinstall your GPU's driver"
        ) from error
    return sorted(map(_facts, handles), key=lambda device: _ORDER.index(device.type))


def _facts(handle: int) -> PhysicalDevice:
    loader = library()
    listing = listed(loader.EnumerateDeviceExtensionProperties, vk.Extension, handle, None)
    extensions = frozenset(each.name.decode() for each in listing)
    units: Any = None
    if "VK_NV_shader_sm_builtins" in extensions:
        units = vk.UnitsOfNvidia()
    elif "VK_AMD_shader_core_properties2" in extensions:
        units = vk.UnitsOfAmd()
    driver = vk.DriverProperties(after=units)
    allocation = vk.AllocationProperties(after=driver)
    subgroup = vk.SubgroupProperties(after=allocation)
    properties = vk.DeviceProperties(after=subgroup)
    # Drivers leave those parts of the chain as they are that they do not know.
    loader.GetPhysicalDeviceProperties2(handle, pointer_to(properties))
    memory = vk.MemoryProperties()
    loader.GetPhysicalDeviceMemoryProperties2(handle, pointer_to(memory))
    families = listed(loader.GetPhysicalDeviceQueueFamilyProperties, vk.QueueFamily, handle)
    name, version = properties.name.decode(errors="replace"), driver.info.decode(errors="replace")
    told = f"{driver.name.decode(errors='replace')} {version}".strip()
    products = _products(handle) if "VK_KHR_cooperative_matrix" in extensions else []
    missing, has_matrices = _missing(handle, properties.api, extensions)
    return PhysicalDevice(
        handle=handle,
        name=name,
        type=properties.type,
        api=properties.api,
        driver=f"driver {told or hex(properties.driver)}",
        identity=(
            name,
            told,
            *(
                f"{number:x}"
                for number in (properties.driver, properties.vendor, properties.device)
            ),
            bytes(properties.cache_uuid).hex(),
        ),
        memory=memory,
        limits=properties.limits,
        subgroup=subgroup.size,
        units=units.units if units is not None else 0,
        most_allocated=allocation.most,
        extensions=extensions,
        missing=missing,
        families=tuple((each.flags, each.count, each.timestamp_bits) for each in families),
        matrices=_described_products(products),
        matrix=_of_halves(products) if has_matrices else None,
    )


def _missing(handle: int, api: int, extensions: frozenset[str]) -> tuple[str, bool]:
    """Returns what a device lacks of what the backend needs, empty if nothing, and whether kernels
    can multiply matrices."""
    if api < _VERSION:
        return "Vulkan 1.2", False
    sizes = vk.SubgroupFeatures()
    matrices = vk.MatrixFeatures(after=sizes) if extensions >= MATRIX_EXTENSIONS else None
    of_12 = vk.Features12(after=matrices)
    of_11 = vk.Features11(after=of_12)
    features = vk.Features(after=of_11)
    library().GetPhysicalDeviceFeatures2(handle, pointer_to(features))
    needed = [
        (features.all[SHADER_INT64], "integers of 64 bits in kernels"),
        (of_11.all[STORAGE_16], "16-bit numbers in buffers"),
        (of_12.all[STORAGE_8], "8-bit numbers in buffers"),
        (of_12.all[TIMELINES], "timeline semaphores"),
        (of_12.all[ADDRESSES], "addresses of buffers"),
    ]
    missing = next((name for has, name in needed if not has), "")
    if matrices is None:
        return missing, False
    has = matrices.has_matrices and of_12.all[FLOAT_16] and of_12.all[MEMORY_MODEL]
    return missing, bool(has and sizes.has_sizes and sizes.has_full)


def _products(handle: int) -> list[Any]:
    """Returns the products of matrices that a device has units for."""
    function = library().extension(
        instance(), "GetPhysicalDeviceCooperativeMatrixPropertiesKHR", "PPP"
    )
    found = listed(function, vk.MatrixProperties, handle) if function is not None else []
    return [each for each in found if each.scope == _SUBGROUP]


def _described_products(products: list[Any]) -> tuple[str, ...]:
    shapes = [
        f"{each.m}x{each.n}x{each.k} {_NUMBERS[each.a]} > {_NUMBERS[each.c]}"
        for each in products
        if each.a in _NUMBERS and each.c in _NUMBERS
    ]
    return tuple(dict.fromkeys(shapes))


def _of_halves(products: list[Any]) -> tuple[int, int, int] | None:
    """Returns the largest product of 16-bit floats, summed in fp32, of whole vectors."""
    shapes = [
        (each.m, each.n, each.k)
        for each in products
        if (each.a, each.b, each.c, each.result) == (_HALF, _HALF, _FLOAT, _FLOAT)
        and each.n % _VECTOR == each.k % _VECTOR == 0
    ]
    return max(shapes, key=math.prod, default=None)
