"""Defines the Runtime on Vulkan."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import struct
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x import __version__
from waifu2x.backends import Pin
from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.device.counted_memory import CountedMemory, OwnedBuffer
from waifu2x.backends.gpu.device.launch import packed, plain
from waifu2x.backends.gpu.device.replay import Records
from waifu2x.backends.gpu.device.runtime import (
    Argument,
    Kernel,
    Limits,
    Macros,
    OutOfMemoryError,
    ReadyLaunch,
)
from waifu2x.backends.gpu.fp32.matrix import MatrixUnit
from waifu2x.backends.vulkan import library as vk
from waifu2x.backends.vulkan.compiler import REVISION
from waifu2x.backends.vulkan.compiler.generator import compile_kernels
from waifu2x.backends.vulkan.compiler.syntax import KernelSyntaxError
from waifu2x.backends.vulkan.device import (
    ONCE,
    REPEATED,
    Allocation,
    Moment,
    OpenDevice,
    Stream,
)
from waifu2x.backends.vulkan.library import VulkanError, library, pointer_to
from waifu2x.backends.vulkan.physical import PhysicalDevice, describe
from waifu2x.errors import BackendError, DeviceError
from waifu2x.system import cache
from waifu2x.system.lazy_dataclass import dataclass

_KIND = "vulkan"
_STAGE, _BIND_POINT = 0x20, 1
_AFTER_ALL = 0x2000
"""The stage of the pipeline behind all work, for timestamps."""
_FULL = 2
"""The flag of a stage whose subgroups are full."""
_WITH_BASE = 0x10
"""The flag of a pipeline whose groups can begin at any number."""
_TOGETHER, _SLOT_BYTES = 128, 512
"""The launches whose arguments are written at once, and the most bytes of those of each."""
_MOST_GROUPS = 1 << 16
"""The groups of kernels that are submitted at once, unless a kernel has more by itself: drivers end
a submission that takes some seconds, and take the device for lost."""
_SHARED_BUFFER = 256 << 20
"""The most bytes of a buffer, and with it of the maps of a tile, for the same reason, on devices
that share the machine's memory: slow ones."""
_STAGED_BYTES = 32 << 20
"""The most bytes of a copy by way of memory of ours."""
_UNITS = 16
"""Compute units of a device that does not tell."""


class VulkanBuffer(OwnedBuffer):
    """Memory of a Vulkan device."""

    def __init__(self, runtime: VulkanRuntime, size: int) -> None:
        allocation = runtime.open.allocate(size)
        super().__init__(runtime, size, runtime.free, allocation)
        self.handle = allocation.buffer
        self.address = allocation.address


@dataclass(eq=False)
class VulkanKernel:
    """A kernel of a built module."""

    name: str
    group: int
    pipeline: int
    layout: int
    argument_bytes: int
    module: VulkanModule
    """Its module, whose pipelines live while a kernel of it is referenced."""


class _Pipeline(NamedTuple):
    handle: int
    argument_bytes: int


class VulkanModule:
    """The pipelines of a file of kernels."""

    def __init__(self, runtime: VulkanRuntime, pipelines: Mapping[str, _Pipeline]) -> None:
        self._runtime = runtime
        self._pipelines = pipelines
        self.release = weakref.finalize(self, runtime.unload, list(pipelines.values()))
        self.release.atexit = False

    def kernel(self, name: str, group: int, shared: int = 0) -> VulkanKernel:
        """Returns the entry point of that name; its group size is part of its code."""
        pipeline = self._pipelines[name]
        layout = self._runtime.layout(pipeline.argument_bytes)
        return VulkanKernel(name, group, pipeline.handle, layout, pipeline.argument_bytes, self)


class _Compiled(NamedTuple):
    """A compiled file, as it is cached."""

    words: bytes
    codes: Mapping[str, str]
    """The types of each kernel's arguments."""
    kept: bytes
    """The data of a cache of pipelines, as the driver gave them."""

    @property
    def has_matrices(self) -> bool:
        """Whether its code multiplies matrices, which subgroups hold together."""
        return b"SPV_KHR_cooperative_matrix" in self.words

    def packed(self) -> bytes:
        head = json.dumps([len(self.words), dict(self.codes)]).encode()
        return head + b"\n" + self.words + self.kept

    @classmethod
    def unpacked(cls, content: bytes) -> _Compiled:
        head, _, rest = content.partition(b"\n")
        size, codes = json.loads(head)
        return cls(rest[:size], codes, rest[size:])


class _Record(NamedTuple):
    """Repeated launches, with the commands that queue them."""

    launches: tuple[ReadyLaunch, ...]
    commands: Sequence[int]


class _Download(NamedTuple):
    """A download under way."""

    moment: Moment
    rest: Sequence[Callable[[], None]]
    """The work to do after that."""


class _Timed(NamedTuple):
    """Kernels that are timed, and the pool of timestamps around each."""

    kernels: Sequence[Kernel]
    pool: int


class VulkanRuntime(CountedMemory):
    """A Vulkan device and its queues."""

    def __init__(self, physical: PhysicalDevice) -> None:
        """Opens a device. Raises DeviceError if that fails."""
        super().__init__()
        self.device = describe(physical)
        self.physical = physical
        self._library = library()
        try:
            self.open = OpenDevice(physical)
        except VulkanError as error:
            raise DeviceError(
                f"{self.device.name}: cannot be opened ({error})",
                "close other programs that use it, or use another backend",
            ) from error
        # Kernels of large groups are unrolled, which a processor's driver compiles for seconds.
        most = 1024 if physical.is_gpu else 64
        limits, is_shared = physical.limits, physical.shares_memory
        heap = physical.memory.heaps[physical.local_heap]
        self.limits = Limits(
            is_cpu=False,
            compute_units=physical.units or _UNITS,
            max_group=min(most, limits.group_items, limits.group_size[0]),
            local_bytes=limits.shared_bytes,
            vector=physical.subgroup,
            max_buffer=min(physical.most_allocated, _SHARED_BUFFER if is_shared else heap.size),
        )
        self._building = threading.Lock()
        self._modules: WeakValueDictionary[object, VulkanModule] = WeakValueDictionary()
        self._layouts: dict[int, int] = {}
        self._records = Records[_Record](self._forget)
        self._timed: list[_Timed] | None = None
        self._arguments: Allocation | None = None

    @property
    def matrices(self) -> MatrixUnit | None:
        """The unit that multiplies matrices of 16-bit floats."""
        found = self.physical.matrix
        return MatrixUnit(*found, self.physical.subgroup) if found else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the library's errors into OutOfMemoryError, if they say so, or DeviceError."""
        try:
            yield
        except VulkanError as error:
            if error.code in vk.OUT_OF_MEMORY or error.code == vk.TOO_MANY_OBJECTS:
                raise OutOfMemoryError(str(error)) from error
            raise DeviceError(
                f"{self.device.name}: its driver stopped the work ({error})",
                "start the program again, or use another backend",
            ) from error

    def free(self, allocation: Allocation) -> None:
        """Frees a buffer once the work queued before is done."""
        self.count(-allocation.size)
        self.open.destroy_later(partial(self.open.free, allocation))

    def unload(self, pipelines: Sequence[_Pipeline]) -> None:
        """Destroys the pipelines of an unused module."""
        for pipeline in pipelines:
            self.open.destroy_later(partial(self.open.destroy, "Pipeline", pipeline.handle))

    def current(self) -> AbstractContextManager[None]:
        """Does nothing: Vulkan has no current context."""
        return nullcontext()

    def free_memory(self) -> int:
        return self.open.free_memory()

    def allocate(self, size: int, *, for_maps: bool = False) -> VulkanBuffer:
        """Returns a buffer with undefined content."""
        with self.errors():
            return VulkanBuffer(self, size)

    def host_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised array that the device copies from and to directly."""
        with suppress(VulkanError):
            return self.open.host.array(shape, dtype)
        return np.empty(shape, dtype)

    def pin(self, memory: NDArray[Any]) -> Pin:
        """Does nothing: copies of a caller's memory go by way of ours."""
        return Pin()

    def upload(self, buffer: Any, array: NDArray[Any]) -> None:
        with self.errors():
            self._send(self.open.uploads, buffer, [array])
            self.open.uploads.wait(self.open.uploads.value)

    def download(self, buffer: Any, array: NDArray[Any]) -> None:
        with self.errors():
            self._download(buffer, array, 0)

    def _download(self, buffer: Any, array: NDArray[Any], start: int) -> None:
        """Copies from an offset of a buffer on, and waits for it."""
        flat = array.reshape(-1).view(np.uint8)
        stream, host = self.open.downloads, self.open.host
        for begin in range(0, flat.size, _STAGED_BYTES):
            part = flat[begin : begin + _STAGED_BYTES]
            staged = host.array(part.shape, np.uint8)
            found = host.find(staged)
            assert found is not None
            with stream.lock:
                commands = stream.begin()
                region = (start + begin, found[1], part.size)
                stream.copy(commands, buffer.handle, found[0].buffer, *region)
                moment = stream.submit(commands, for_host=True)
            stream.wait(moment.value)
            np.copyto(part, staged)

    def _key(self, stem: str, macros: Macros) -> str:
        parts = (__version__, str(REVISION), *self.physical.identity, source.of(stem))
        most = str(self.physical.limits.push_constants)
        return cache.digest(*parts, most, *(f"{name}={value}" for name, value in macros.items()))

    def build(self, stem: str, macros: Macros) -> VulkanModule:
        key = (stem, *macros.items())
        found = self._modules.get(key)
        if found is not None:
            return found
        with self.errors():
            made = self._built(stem, macros)
        with self._building:
            found = self._modules.get(key)
            if found is None:  # no other thread was quicker
                found = self._modules[key] = made
            return found

    def prepare(self, wanted: Sequence[tuple[str, Macros]]) -> None:
        """Builds modules in parallel, since drivers take most of the time."""
        by_key = {(stem, *macros.items()): (stem, macros) for stem, macros in wanted}
        missing = [each for key, each in by_key.items() if key not in self._modules]
        if len(missing) < 2:
            return
        with ThreadPoolExecutor(thread_name_prefix="waifu2x-compile") as pool:
            self._prepared = [  # until they are asked for
                future.result() for future in [pool.submit(self.build, *each) for each in missing]
            ]

    def _built(self, stem: str, macros: Macros) -> VulkanModule:
        """Builds a module from the cache, or compiles it. Raises BackendError."""
        key = self._key(stem, macros)
        content = cache.load(_KIND, key)
        if content is not None:
            compiled = _Compiled.unpacked(content)
            with suppress(VulkanError):
                return VulkanModule(self, self._pipelines(compiled)[0])
        source.announce_compiling(self.device.name, _KIND)
        try:
            words, codes = compile_kernels(
                source.of(stem), macros, self.physical.limits.push_constants
            )
            compiled = _Compiled(words, codes, b"")
            pipelines, kept = self._pipelines(compiled)
        except KernelSyntaxError as error:
            raise BackendError(
                f"{stem}.cl cannot be compiled ({error})", "use another backend"
            ) from error
        except VulkanError as error:
            if error.code in vk.OUT_OF_MEMORY or error.code == vk.DEVICE_LOST:
                raise
            raise BackendError(
                f"{self.device.name}: its driver does not take the code of {stem} ({error})",
                "update the driver, or use another backend",
            ) from error
        cache.store(_KIND, key, compiled._replace(kept=kept).packed())
        return VulkanModule(self, pipelines)

    def _pipelines(self, compiled: _Compiled) -> tuple[Mapping[str, _Pipeline], bytes]:
        """Returns the pipelines of a compiled file, and what the driver would keep of them."""
        opened, made = self.open, dict[str, _Pipeline]()
        code = ctypes.create_string_buffer(compiled.words, len(compiled.words))
        info = vk.ModuleInfo(0, len(compiled.words), pointer_to(code))
        module = opened.create("ShaderModule", info)
        kept = ctypes.create_string_buffer(compiled.kept, len(compiled.kept))
        known = vk.CacheInfo(0, len(compiled.kept), pointer_to(kept) if compiled.kept else None)
        own_cache = opened.create("PipelineCache", known)
        fixed = vk.SubgroupSize(self.physical.subgroup) if compiled.has_matrices else None
        many = self.physical.limits.group_count[0] < (1 << 31) - 1
        try:
            for name, codes in compiled.codes.items():
                size = _struct(codes).size
                entry = ctypes.create_string_buffer(name.encode())
                stage = vk.StageInfo(
                    _FULL if fixed else 0,
                    _STAGE,
                    module,
                    ctypes.addressof(entry),
                    None,
                    after=fixed,
                )
                pipeline = vk.PipelineInfo(_WITH_BASE if many else 0)
                pipeline.stage, pipeline.layout = stage, self.layout(size)
                handle = vk.u64()
                self._library.CreateComputePipelines(
                    opened.handle, own_cache, 1, pointer_to(pipeline), None, ctypes.byref(handle)
                )
                made[name] = _Pipeline(handle.value, size)
            return made, self._kept(own_cache)
        except VulkanError:
            self.unload(list(made.values()))
            raise
        finally:
            opened.destroy("PipelineCache", own_cache)
            opened.destroy("ShaderModule", module)

    def _kept(self, own_cache: int) -> bytes:
        size = ctypes.c_size_t()
        opened = self.open
        self._library.GetPipelineCacheData(opened.handle, own_cache, ctypes.byref(size), None)
        data = ctypes.create_string_buffer(size.value)
        self._library.GetPipelineCacheData(opened.handle, own_cache, ctypes.byref(size), data)
        return data.raw[: size.value]

    def layout(self, argument_bytes: int) -> int:
        """Returns the layout of pipelines whose arguments have that many bytes."""
        pushed = argument_bytes if self._pushes(argument_bytes) else 8
        pushed = -(-pushed // 4) * 4
        with self._building:
            if pushed not in self._layouts:
                one = vk.PushRange(_STAGE, 0, pushed)
                info = vk.LayoutInfo(0, 0, None, 1, pointer_to(one))
                self._layouts[pushed] = self.open.create("PipelineLayout", info)
            return self._layouts[pushed]

    def _pushes(self, argument_bytes: int) -> bool:
        """Returns whether arguments of that many bytes go with the commands."""
        return bool(argument_bytes <= self.physical.limits.push_constants)

    def handle(self, buffer: Any) -> int:
        """Returns the address of a buffer."""
        return int(buffer.address)

    def packer(self, codes: str) -> Callable[..., bytes]:
        """Returns a function that packs arguments in C layout, each at a multiple of its size."""
        return _struct(codes).pack

    def launch(self, kernel: Any, groups: tuple[int, int, int], *arguments: Argument) -> None:
        self.queue([ReadyLaunch(kernel, groups, packed(self, plain(*arguments)))])

    def queue(self, launches: Sequence[ReadyLaunch]) -> None:
        stream = self.open.kernels
        with self.errors(), stream.lock:
            for part in _parts(launches):
                stream.submit(self._recorded(part, ONCE))

    def _recorded(self, launches: Sequence[ReadyLaunch], use: int) -> int:
        """Returns commands that run kernels one after the other."""
        stream, loader = self.open.kernels, self._library
        commands = stream.begin(use)
        pool = 0
        if self._timed is not None:
            pool = self.open.create("QueryPool", vk.QueryInfo(0, 2, 2 * len(launches), 0))
            self._timed.append(_Timed([launch.kernel for launch in launches], pool))
            loader.CmdResetQueryPool(commands, pool, 0, 2 * len(launches))
        for number, (kernel, groups, arguments) in enumerate(launches):
            if number:
                stream.barrier(commands)
            if number % _TOGETHER == 0:
                start = self._write_arguments(commands, launches[number : number + _TOGETHER])
            if not self._pushes(len(arguments)):
                arguments = struct.pack("Q", start + number % _TOGETHER * _SLOT_BYTES)
            arguments += bytes(-len(arguments) % 4)
            loader.CmdBindPipeline(commands, _BIND_POINT, kernel.pipeline)
            loader.CmdPushConstants(commands, kernel.layout, _STAGE, 0, len(arguments), arguments)
            if pool:
                loader.CmdWriteTimestamp(commands, _AFTER_ALL, pool, 2 * number)
            self._dispatch(commands, groups)
            if pool:
                loader.CmdWriteTimestamp(commands, _AFTER_ALL, pool, 2 * number + 1)
        return commands

    def _write_arguments(self, commands: int, launches: Sequence[ReadyLaunch]) -> int:
        """Has arguments written that do not go with the commands, a slot for each launch, and
        returns the address of the first."""
        if all(self._pushes(len(launch.packed)) for launch in launches):
            return 0
        if self._arguments is None:
            self._arguments = self.open.allocate(_TOGETHER * _SLOT_BYTES)
        held, address = self._arguments.buffer, self._arguments.address
        data = b"".join(launch.packed.ljust(_SLOT_BYTES, b"\0") for launch in launches)
        self._library.CmdUpdateBuffer(commands, held, 0, len(data), data)
        self.open.kernels.barrier(commands)
        return address

    def _dispatch(self, commands: int, groups: tuple[int, int, int]) -> None:
        """Adds the groups of a kernel, in parts where the device takes fewer at once."""
        most = self.physical.limits.group_count[0]
        for first in range(0, groups[0], most):
            count = min(groups[0] - first, most)
            dispatch = self._library.CmdDispatchBase
            dispatch(commands, first, 0, 0, count, *groups[1:])

    def replay(
        self, owner: object, key: Hashable, make: Callable[[], Sequence[ReadyLaunch]]
    ) -> None:
        """Queues the launches of `make`, whose commands are kept for further calls."""
        record = self._records.find(key)
        stream = self.open.kernels
        if record is not None and self._timed is not None:
            self.queue(record.launches)
            return
        launches = record.launches if record is not None else tuple(make())
        with self.errors(), stream.lock:
            if record is not None:
                for commands in record.commands:
                    stream.resubmit(commands)
                return
            made = []
            for part in _parts(launches):
                made.append(self._recorded(part, REPEATED))
                stream.submit(made[-1], is_kept=True)
        self._records.keep(owner, key, _Record(launches, made))

    def forget(self, owner: object) -> None:
        """Drops the commands of an owner's kernels."""
        self._records.drop(owner)

    def _forget(self, record: _Record) -> None:
        for commands in record.commands:
            self.open.destroy_later(partial(self.open.kernels.free, commands))

    def send(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> object:
        with self.errors():
            return self._send(self.open.kernels if in_order else self.open.uploads, buffer, arrays)

    def _send(self, stream: Stream, buffer: Any, arrays: Sequence[NDArray[Any]]) -> object:
        """Starts copies to the start of a buffer, and returns the memory that they read."""
        host, held = self.open.host, list[NDArray[Any]]()
        begin = 0
        with stream.lock:
            commands = stream.begin()
            for array in arrays:
                place = host.find(array) if array.nbytes else None
                if place is None:
                    staged = host.array(array.shape, array.dtype)
                    np.copyto(staged, array)
                    array, place = staged, host.find(staged)
                held.append(array)
                if array.nbytes and place is not None:
                    allocation, offset = place
                    region = (offset, begin, array.nbytes)
                    stream.copy(commands, allocation.buffer, buffer.handle, *region)
                begin += array.nbytes
            stream.submit(commands)
        return held

    def follow(self) -> None:
        self.open.kernels.follow(self.open.uploads)

    def fetch(
        self, buffer: Any, arrays: Sequence[NDArray[Any]], *, in_order: bool = False
    ) -> _Download:
        stream, host = self.open.kernels if in_order else self.open.downloads, self.open.host
        rest: list[Callable[[], None]] = []
        begin = 0
        with self.errors(), stream.lock:
            if not in_order:
                stream.follow(self.open.kernels)
            commands = stream.begin()
            for array in arrays:
                place, target = host.find(array), array
                if place is None and array.nbytes <= _STAGED_BYTES:
                    target = host.array(array.shape, array.dtype)
                    rest.append(partial(np.copyto, array, target))
                    place = host.find(target)
                if place is None:
                    rest.append(partial(self._download, buffer, array, begin))
                elif array.nbytes:
                    allocation, offset = place
                    region = (begin, offset, array.nbytes)
                    stream.copy(commands, buffer.handle, allocation.buffer, *region)
                begin += array.nbytes
            return _Download(stream.submit(commands, for_host=True), rest)

    def wait(self, event: _Download) -> None:
        with self.errors():
            event.moment.stream.wait(event.moment.value)
            for finish in event.rest:
                finish()

    def synchronize(self) -> None:
        with self.errors():
            self.open.synchronize()

    @contextmanager
    def timed(self) -> Iterator[list[tuple[Kernel, float]]]:
        times: list[tuple[Kernel, float]] = []
        timed: list[_Timed] = []
        self._timed = timed
        try:
            yield times
            self.synchronize()
        finally:
            self._timed = None
        for kernels, pool in timed:
            ticks = (vk.u64 * (2 * len(kernels)))()
            with self.errors():
                self._library.GetQueryPoolResults(
                    self.open.handle,
                    pool,
                    0,
                    len(ticks),
                    ctypes.sizeof(ticks),
                    pointer_to(ticks),
                    8,
                    3,
                )
            self.open.destroy("QueryPool", pool)
            second = self.physical.limits.timestamp_period * 1e-9
            for number, kernel in enumerate(kernels):
                times.append((kernel, (ticks[2 * number + 1] - ticks[2 * number]) * second))

    def close(self) -> None:
        """Frees all its memory."""
        self._records.clear()
        for module in list(self._modules.values()):
            module.release()
        for layout in self._layouts.values():
            self.open.destroy_later(partial(self.open.destroy, "PipelineLayout", layout))
        self._layouts.clear()
        self.open.close()


def _parts(launches: Sequence[ReadyLaunch]) -> Iterator[Sequence[ReadyLaunch]]:
    """Divides launches into parts that are submitted together."""
    part: list[ReadyLaunch] = []
    groups = 0
    for launch in launches:
        own = math.prod(launch.groups)
        if part and groups + own > _MOST_GROUPS:
            yield part
            part, groups = [], 0
        part.append(launch)
        groups += own
    if part:
        yield part


@functools.cache
def _struct(codes: str) -> struct.Struct:
    return struct.Struct(codes)
