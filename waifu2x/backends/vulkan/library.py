"""Binds the part of Vulkan 1.2 that the backend uses, by ctypes on the loader's library.

Structures have the fields of the specification in their order, under shorter names.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from ctypes import c_char, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_void_p
from typing import Any, ClassVar

from waifu2x.errors import UnavailableError

u32, u64 = ctypes.c_uint32, ctypes.c_uint64
_NAMES = {
    "win32": ["vulkan-1.dll"],
    "darwin": [
        "libvulkan.1.dylib",
        "/opt/homebrew/lib/libvulkan.1.dylib",
        "/usr/local/lib/libvulkan.1.dylib",
        "libMoltenVK.dylib",
    ],
}
OUT_OF_MEMORY = {-1, -2, -1000069000, -1000161000}
"""Results that say so: of the host, of the device, of a pool, and for a fragmented pool."""
TOO_MANY_OBJECTS = -10
DEVICE_LOST = -4
_RESULTS = {
    -1: "no memory on the host",
    -2: "no memory on the device",
    -3: "it cannot be started",
    -4: "the device is lost",
    -5: "memory cannot be mapped",
    -6: "a layer is missing",
    -7: "an extension is missing",
    -8: "a feature is missing",
    -9: "no driver that fits",
    TOO_MANY_OBJECTS: "too many objects",
}


class VulkanError(Exception):
    """Says that a call failed. Never reaches users."""

    def __init__(self, code: int) -> None:
        super().__init__(_RESULTS.get(code, f"error {code}"))
        self.code = code


class Structure(ctypes.Structure):
    """A structure that begins with its type and the next one of a chain."""

    kind: ClassVar[int]

    def __init__(self, *values: Any, after: Structure | None = None, **named: Any) -> None:
        super().__init__(**named)
        # The first two fields are those of `_structure`.
        for (name, *_), value in zip(self._fields_[2:], values, strict=False):
            setattr(self, name, value)
        self.s_type = self.kind
        self._after = after  # kept as long as the pointer to it
        self.next = ctypes.addressof(after) if after is not None else None


def _structure(name: str, kind: int, /, **fields: Any) -> Any:
    head = [("s_type", u32), ("next", c_void_p)]
    return type(name, (Structure,), {"_fields_": head + list(fields.items()), "kind": kind})


def _plain(name: str, /, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


ApplicationInfo = _structure(
    "ApplicationInfo", 0, name=c_char_p, version=u32, engine=c_char_p, engine_version=u32, api=u32
)
InstanceInfo = _structure(
    "InstanceInfo",
    1,
    flags=u32,
    application=c_void_p,
    layer_count=u32,
    layers=c_void_p,
    extension_count=u32,
    extensions=c_void_p,
)
Extension = _plain("Extension", name=c_char * 256, version=u32)
Limits = _plain(
    "Limits",
    _images=c_ubyte * 32,
    push_constants=u32,
    allocations=u32,
    _bindings=c_ubyte * 176,
    shared_bytes=u32,
    group_count=u32 * 3,
    group_items=u32,
    group_size=u32 * 3,
    _rasters=c_ubyte * 172,
    has_timestamps=u32,
    timestamp_period=c_float,
    _rest=c_ubyte * 76,
)
DeviceProperties = _structure(
    "DeviceProperties",
    1000059001,
    api=u32,
    driver=u32,
    vendor=u32,
    device=u32,
    type=u32,
    name=c_char * 256,
    cache_uuid=c_ubyte * 16,
    _pad=u32,
    limits=Limits,
    _sparse=u32 * 6,
)
DriverProperties = _structure(
    "DriverProperties", 1000196000, id=u32, name=c_char * 256, info=c_char * 256, version=u32
)
SubgroupProperties = _structure(
    "SubgroupProperties", 1000094000, size=u32, stages=u32, operations=u32, quads=u32
)
AllocationProperties = _structure("AllocationProperties", 1000168000, descriptors=u32, most=u64)
UnitsOfNvidia = _structure("UnitsOfNvidia", 1000154001, units=u32, warps=u32)
UnitsOfAmd = _structure("UnitsOfAmd", 1000227000, features=u32, units=u32)
MatrixProperties = _structure(
    "MatrixProperties",
    1000506001,
    m=u32,
    n=u32,
    k=u32,
    a=u32,
    b=u32,
    c=u32,
    result=u32,
    saturates=u32,
    scope=u32,
)
MemoryType = _plain("MemoryType", flags=u32, heap=u32)
MemoryHeap = _plain("MemoryHeap", size=u64, flags=u32)
MemoryProperties = _structure(
    "MemoryProperties",
    1000059006,
    type_count=u32,
    types=MemoryType * 32,
    heap_count=u32,
    heaps=MemoryHeap * 16,
)
MemoryBudget = _structure("MemoryBudget", 1000237000, budget=u64 * 16, usage=u64 * 16)
Features = _structure("Features", 1000059000, all=u32 * 55)
Features11 = _structure("Features11", 49, all=u32 * 12)
Features12 = _structure("Features12", 51, all=u32 * 47)
MatrixFeatures = _structure("MatrixFeatures", 1000506000, has_matrices=u32, is_robust=u32)
SubgroupFeatures = _structure("SubgroupFeatures", 1000225002, has_sizes=u32, has_full=u32)
SubgroupSize = _structure("SubgroupSize", 1000225001, size=u32)
QueueFamily = _plain("QueueFamily", flags=u32, count=u32, timestamp_bits=u32, granularity=u32 * 3)
QueueInfo = _structure("QueueInfo", 2, flags=u32, family=u32, count=u32, priorities=c_void_p)
DeviceInfo = _structure(
    "DeviceInfo",
    3,
    flags=u32,
    queue_count=u32,
    queues=c_void_p,
    layer_count=u32,
    layers=c_void_p,
    extension_count=u32,
    extensions=c_void_p,
    features=c_void_p,
)
BufferInfo = _structure(
    "BufferInfo",
    12,
    flags=u32,
    size=u64,
    usage=u32,
    sharing=u32,
    family_count=u32,
    families=c_void_p,
)
MemoryRequirements = _plain("MemoryRequirements", size=u64, alignment=u64, types=u32)
MemoryInfo = _structure("MemoryInfo", 5, size=u64, type=u32)
MemoryFlags = _structure("MemoryFlags", 1000060000, flags=u32, devices=u32)
AddressInfo = _structure("AddressInfo", 1000244001, buffer=u64)
ModuleInfo = _structure("ModuleInfo", 16, flags=u32, size=c_size_t, code=c_void_p)
StageInfo = _structure(
    "StageInfo", 18, flags=u32, stage=u32, module=u64, name=c_char_p, constants=c_void_p
)
PipelineInfo = _structure(
    "PipelineInfo", 29, flags=u32, stage=StageInfo, layout=u64, base=u64, base_index=c_int
)
PushRange = _plain("PushRange", stages=u32, offset=u32, size=u32)
LayoutInfo = _structure(
    "LayoutInfo", 30, flags=u32, set_count=u32, sets=c_void_p, range_count=u32, ranges=c_void_p
)
CacheInfo = _structure("CacheInfo", 17, flags=u32, size=c_size_t, data=c_void_p)
PoolInfo = _structure("PoolInfo", 39, flags=u32, family=u32)
CommandsInfo = _structure("CommandsInfo", 40, pool=u64, level=u32, count=u32)
BeginInfo = _structure("BeginInfo", 42, flags=u32, inheritance=c_void_p)
Barrier = _structure("Barrier", 46, source=u32, target=u32)
CopyRegion = _plain("CopyRegion", source=u64, target=u64, size=u64)
QueryInfo = _structure("QueryInfo", 11, flags=u32, type=u32, count=u32, statistics=u32)
SemaphoreInfo = _structure("SemaphoreInfo", 9, flags=u32)
TimelineInfo = _structure("TimelineInfo", 1000207002, type=u32, start=u64)
TimelineSubmit = _structure(
    "TimelineSubmit",
    1000207003,
    wait_count=u32,
    waits=c_void_p,
    signal_count=u32,
    signals=c_void_p,
)
SubmitInfo = _structure(
    "SubmitInfo",
    4,
    wait_count=u32,
    waits=c_void_p,
    stages=c_void_p,
    command_count=u32,
    commands=c_void_p,
    signal_count=u32,
    signals=c_void_p,
)
WaitInfo = _structure(
    "WaitInfo", 1000207004, flags=u32, count=u32, semaphores=c_void_p, values=c_void_p
)

# The arguments of each function: P a pointer or a handle of the loader's, H any other handle or a
# number of 64 bits, I a number of 32 bits; a function whose name ends with * has no result.
_FUNCTIONS = """
CreateInstance PPP; DestroyInstance* PP; EnumeratePhysicalDevices PPP; EnumerateInstanceVersion P;
EnumerateInstanceExtensionProperties PPP; EnumerateDeviceExtensionProperties PPPP;
GetPhysicalDeviceProperties2* PP; GetPhysicalDeviceFeatures2* PP;
GetPhysicalDeviceMemoryProperties2* PP; GetPhysicalDeviceQueueFamilyProperties* PPP;
CreateDevice PPPP; DestroyDevice* PP; GetDeviceQueue* PIIP; DeviceWaitIdle P;
CreateBuffer PPPP; DestroyBuffer* PHP; GetBufferMemoryRequirements* PHP; BindBufferMemory PHHH;
AllocateMemory PPPP; FreeMemory* PHP; MapMemory PHHHIP;
CreateShaderModule PPPP; DestroyShaderModule* PHP; CreatePipelineLayout PPPP;
DestroyPipelineLayout* PHP; CreateComputePipelines PHIPPP; DestroyPipeline* PHP;
CreatePipelineCache PPPP; GetPipelineCacheData PHPP; DestroyPipelineCache* PHP;
CreateCommandPool PPPP; DestroyCommandPool* PHP; AllocateCommandBuffers PPP;
FreeCommandBuffers* PHIP; BeginCommandBuffer PP; EndCommandBuffer P;
CmdBindPipeline* PIH; CmdPushConstants* PHIIIP; CmdDispatchBase* PIIIIII;
CmdPipelineBarrier* PIIIIPIPIP; CmdCopyBuffer* PHHIP; CmdUpdateBuffer* PHHHP;
CmdResetQueryPool* PHII; CmdWriteTimestamp* PIHI;
CreateQueryPool PPPP; DestroyQueryPool* PHP; GetQueryPoolResults PHIIHPHI;
CreateSemaphore PPPP; DestroySemaphore* PHP; WaitSemaphores PPH; GetSemaphoreCounterValue PHP;
QueueSubmit PIPH
"""
_TYPES = {"P": c_void_p, "H": u64, "I": u32}


def _checked(result: int, function: object, arguments: object) -> int:
    if result < 0:
        raise VulkanError(result)
    return result


class Library:
    """The functions of the loader, without their prefix; they raise VulkanError."""

    def __init__(self, loaded: Any) -> None:
        """Raises AttributeError for a loader before Vulkan 1.2."""
        for entry in _FUNCTIONS.replace("\n", " ").split(";"):
            name, codes = entry.split()
            function = getattr(loaded, "vk" + name.rstrip("*"))
            function.argtypes = [_TYPES[code] for code in codes]
            function.restype = None if name.endswith("*") else c_int
            if not name.endswith("*"):
                function.errcheck = _checked
            setattr(self, name.rstrip("*"), function)
        self.GetBufferDeviceAddress: Any = loaded.vkGetBufferDeviceAddress
        self.GetBufferDeviceAddress.argtypes = [c_void_p, c_void_p]
        self.GetBufferDeviceAddress.restype = u64
        self._of_instance: Any = loaded.vkGetInstanceProcAddr
        self._of_instance.argtypes = [c_void_p, c_char_p]
        self._of_instance.restype = c_void_p

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)

    def extension(self, instance: Any, name: str, codes: str) -> Any:
        """Returns a function of an extension; None where there is none."""
        address = self._of_instance(instance, b"vk" + name.encode())
        if not address:
            return None
        function = ctypes.CFUNCTYPE(c_int, *[_TYPES[code] for code in codes])(address)
        function.errcheck = _checked  # type: ignore[assignment]
        return function


@functools.cache
def library() -> Library:
    """Returns the loader's functions. Raises UnavailableError where there is no loader."""
    for name in _NAMES.get(sys.platform, ["libvulkan.so.1"]):
        try:
            return Library(ctypes.CDLL(name))
        except OSError:
            continue
        except AttributeError:
            raise UnavailableError(
                "backend vulkan needs a loader of Vulkan 1.2 or newer", "update your GPU's driver"
            ) from None
    raise UnavailableError(
        "backend vulkan found no loader of Vulkan",
        "install your GPU's driver, and on Linux the package libvulkan1 or vulkan-icd-loader",
    )


def listed(function: Any, kind: Any, *arguments: Any) -> list[Any]:
    """Returns what a function lists that takes a count and an array."""
    count = u32()
    function(*arguments, ctypes.byref(count), None)
    found = (kind * count.value)()
    if issubclass(kind, Structure):
        for each in found:
            each.s_type = kind.kind
    function(*arguments, ctypes.byref(count), found)
    return list(found[: count.value])


def array_of(kind: Any, values: Sequence[Any]) -> Any:
    """Returns a C array."""
    return (kind * len(values))(*values)


def pointer_to(thing: Any) -> int:
    """Returns the address of a structure or an array, which must outlive its use."""
    return ctypes.addressof(thing)
