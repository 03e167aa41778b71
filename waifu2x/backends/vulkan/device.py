"""Opens a Vulkan device: its queues, and its memory with what frees it later."""

from __future__ import annotations

import bisect
import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends.vulkan import library as vk
from waifu2x.backends.vulkan import physical as facts
from waifu2x.backends.vulkan.library import VulkanError, array_of, library, pointer_to
from waifu2x.backends.vulkan.physical import PhysicalDevice
from waifu2x.system.size_class import size_class

_ALL_USES = 0x20 | 1 | 2 | 0x20000
"""The uses of every buffer: by kernels, as source and target of copies, with an address."""
_FOREVER = (1 << 64) - 1
_COMPUTE, _TRANSFER, _HOST, _ALL = 0x800, 0x1000, 0x4000, 0x10000
"""Stages of the pipeline."""
_READ_AND_WRITE = 0x8000 | 0x10000
DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
_MOST_KEPT = 256 << 20
"""The most bytes of host memory that are kept for later copies."""
ONCE, REPEATED = 1, 4
"""The uses of a list of commands: for one submission, or for several at a time."""


class Allocation(NamedTuple):
    """A buffer with its memory."""

    buffer: int
    memory: int
    size: int
    address: int
    """For kernels; of host memory, for the host."""


class Moment(NamedTuple):
    """A point in the work of a queue."""

    stream: Stream
    value: int


class Stream:
    """An in-order queue, with the lists of commands that it is given."""

    def __init__(self, device: OpenDevice, number: int) -> None:
        """`number` counts the queues; several have one of the device's in common if it has few."""
        self._device = device
        self._library = library()
        self.lock = threading.RLock()
        self._queue, self._submitting = device.queue(number)
        pool = vk.PoolInfo(0, device.physical.family)
        self._pool = device.create("CommandPool", pool)
        timeline = vk.TimelineInfo(1, 0)
        self.semaphore = device.create("Semaphore", vk.SemaphoreInfo(0, after=timeline))
        self.value = 0
        """The value of the semaphore once all that was submitted is done."""
        self._done = 0
        self._waited: dict[Stream, int] = {}
        self._used: deque[tuple[int, int]] = deque()
        """Lists of commands for one use, with the value that says they are done."""

    def begin(self, use: int = ONCE) -> int:
        """Returns a new list of commands, which begins behind all that was submitted before."""
        self._reuse()
        made = ctypes.c_void_p()
        info = vk.CommandsInfo(self._pool, 0, 1)
        self._library.AllocateCommandBuffers(
            self._device.handle, pointer_to(info), ctypes.byref(made)
        )
        assert made.value is not None
        begin = vk.BeginInfo(use)
        self._library.BeginCommandBuffer(made, pointer_to(begin))
        self.barrier(made.value)
        return made.value

    def _reuse(self) -> None:
        while self._used and self._used[0][1] <= self.done():
            self.free(self._used.popleft()[0])

    def free(self, commands: int) -> None:
        """Frees a list of commands that no submission uses any more."""
        held = array_of(ctypes.c_void_p, [commands])
        with self.lock:
            self._library.FreeCommandBuffers(self._device.handle, self._pool, 1, pointer_to(held))

    def barrier(self, commands: int, *, for_host: bool = False) -> None:
        """Makes the commands behind it wait for those before it; `for_host` shows their copies to
        the host, too."""
        stages = _COMPUTE | _TRANSFER
        barrier = vk.Barrier(_READ_AND_WRITE, _READ_AND_WRITE)
        self._library.CmdPipelineBarrier(
            commands,
            stages,
            stages | (_HOST if for_host else 0),
            0,
            1,
            pointer_to(barrier),
            0,
            None,
            0,
            None,
        )

    def copy(self, commands: int, source: int, target: int, *region: int) -> None:
        """Adds a copy between buffers; `region` is the offsets in both, and the bytes."""
        one = vk.CopyRegion(*region)
        self._library.CmdCopyBuffer(commands, source, target, 1, pointer_to(one))

    def submit(self, commands: int, *, is_kept: bool = False, for_host: bool = False) -> Moment:
        """Ends a list of commands and queues it; `for_host` shows its copies to the host."""
        if for_host:
            self.barrier(commands, for_host=True)
        self._library.EndCommandBuffer(commands)
        moment = self.resubmit(commands)
        if not is_kept:
            self._used.append((commands, moment.value))
        return moment

    def resubmit(self, commands: int) -> Moment:
        """Queues a list of commands that was submitted before, and is kept."""
        waits = [(stream, value) for stream, value in self._waited.items() if value]
        semaphores = array_of(vk.u64, [stream.semaphore for stream, _ in waits])
        values = array_of(vk.u64, [value for _, value in waits])
        stages = array_of(vk.u32, [_ALL] * len(waits))
        signal, signalled = array_of(vk.u64, [self.semaphore]), array_of(vk.u64, [self.value + 1])
        held = array_of(ctypes.c_void_p, [commands])
        timeline = vk.TimelineSubmit(len(waits), pointer_to(values), 1, pointer_to(signalled))
        info = vk.SubmitInfo(
            len(waits),
            pointer_to(semaphores),
            pointer_to(stages),
            1,
            pointer_to(held),
            1,
            pointer_to(signal),
            after=timeline,
        )
        with self._submitting:
            self._library.QueueSubmit(self._queue, 1, pointer_to(info), 0)
        self.value += 1
        self._waited.clear()
        return Moment(self, self.value)

    def follow(self, other: Stream) -> None:
        """Makes what is submitted from now on wait for all that was submitted to another."""
        if other.value > other.done():
            self._waited[other] = other.value

    def done(self) -> int:
        """Returns the value up to which all is done."""
        found = vk.u64()
        self._library.GetSemaphoreCounterValue(
            self._device.handle, self.semaphore, ctypes.byref(found)
        )
        self._done = max(self._done, found.value)
        return self._done

    def wait(self, value: int) -> None:
        """Waits for a value."""
        if value <= self._done:
            return
        semaphores, values = array_of(vk.u64, [self.semaphore]), array_of(vk.u64, [value])
        info = vk.WaitInfo(0, 1, pointer_to(semaphores), pointer_to(values))
        self._library.WaitSemaphores(self._device.handle, pointer_to(info), _FOREVER)
        self._done = max(self._done, value)

    def close(self) -> None:
        """Frees it; nothing may be under way."""
        self._device.destroy("CommandPool", self._pool)
        self._device.destroy("Semaphore", self.semaphore)


class OpenDevice:
    """An open device with three queues: of kernels, of uploads and of downloads."""

    def __init__(self, physical: PhysicalDevice) -> None:
        """May raise VulkanError."""
        self.physical = physical
        self._library = library()
        self.is_closed = False
        self._queues = min(3, physical.families[physical.family][1])
        self.handle = self._open()
        self._locks = [threading.Lock() for _ in range(self._queues)]
        self._doomed: deque[tuple[tuple[int, ...], Callable[[], None]]] = deque()
        """Functions that free something, called once the queues have come so far."""
        self._allocations: dict[int, Allocation] = {}
        self.streams = [Stream(self, number) for number in range(3)]
        self.kernels, self.uploads, self.downloads = self.streams
        self.host = MappedMemory(self)

    def _open(self) -> ctypes.c_void_p:
        physical = self.physical
        matrices = None
        if physical.matrix:
            matrices = vk.MatrixFeatures(1, 0, after=vk.SubgroupFeatures(1, 1))
        of_12 = vk.Features12(after=matrices)
        if physical.matrix:
            of_12.all[facts.FLOAT_16] = of_12.all[facts.MEMORY_MODEL] = 1
        of_12.all[facts.STORAGE_8] = of_12.all[facts.TIMELINES] = 1
        of_12.all[facts.ADDRESSES] = 1
        of_11 = vk.Features11(after=of_12)
        of_11.all[facts.STORAGE_16] = 1
        features = vk.Features(after=of_11)
        features.all[facts.SHADER_INT64] = 1
        priorities = array_of(ctypes.c_float, [1.0] * self._queues)
        queues = vk.QueueInfo(0, physical.family, self._queues, pointer_to(priorities))
        wanted = {"VK_EXT_memory_budget", "VK_KHR_portability_subset"} & physical.extensions
        if physical.matrix:
            wanted |= facts.MATRIX_EXTENSIONS
        names = array_of(ctypes.c_char_p, [name.encode() for name in wanted])
        info = vk.DeviceInfo(
            0, 1, pointer_to(queues), 0, None, len(names), pointer_to(names), after=features
        )
        made = ctypes.c_void_p()
        self._library.CreateDevice(physical.handle, pointer_to(info), None, ctypes.byref(made))
        return made

    def queue(self, number: int) -> tuple[Any, threading.Lock]:
        """Returns a queue of the device, and the lock of its submissions."""
        number = min(number, self._queues - 1)
        found = ctypes.c_void_p()
        family = self.physical.family
        self._library.GetDeviceQueue(self.handle, family, number, ctypes.byref(found))
        return found, self._locks[number]

    def create(self, kind: str, info: vk.Structure) -> int:
        """Returns a new object of a kind. May raise VulkanError."""
        made = vk.u64()
        create = getattr(self._library, f"Create{kind}")
        create(self.handle, pointer_to(info), None, ctypes.byref(made))
        return made.value

    def destroy(self, kind: str, made: int) -> None:
        """Destroys an object that nothing uses."""
        if self.handle:
            getattr(self._library, f"Destroy{kind}")(self.handle, made, None)

    def destroy_later(self, destroy: Callable[[], None]) -> None:
        """Calls `destroy` in a later call of `reclaim`, once all that is submitted now is done. Any
        thread may call this, with any locks held."""
        self._doomed.append((tuple(stream.value for stream in self.streams), destroy))

    def reclaim(self) -> None:
        """Frees what no queue uses any more."""
        done: list[int] = []
        while self._doomed:
            done = done or [stream.done() for stream in self.streams]
            try:
                first = self._doomed.popleft()
            except IndexError:  # another thread was quicker
                return
            if any(value > now for value, now in zip(first[0], done, strict=True)):
                self._doomed.appendleft(first)
                return
            first[1]()

    def allocate(self, size: int, *, on_host: bool = False) -> Allocation:
        """Returns memory for a buffer, of the device or of the host. May raise VulkanError."""
        self.reclaim()
        try:
            return self._allocate(size, on_host)
        except VulkanError as error:
            if error.code not in vk.OUT_OF_MEMORY:
                raise
        self.synchronize()
        self.reclaim()
        return self._allocate(size, on_host)

    def _allocate(self, size: int, on_host: bool) -> Allocation:
        buffer = self.create("Buffer", vk.BufferInfo(0, max(size, 4), _ALL_USES))
        memory = vk.u64()
        try:
            needs = vk.MemoryRequirements()
            self._library.GetBufferMemoryRequirements(self.handle, buffer, pointer_to(needs))
            flags = vk.MemoryFlags(2)
            kind = self._memory_type(needs.types, on_host)
            info = vk.MemoryInfo(needs.size, kind, after=flags)
            self._library.AllocateMemory(self.handle, pointer_to(info), None, ctypes.byref(memory))
            self._library.BindBufferMemory(self.handle, buffer, memory.value, 0)
            if on_host:
                place = ctypes.c_void_p()
                self._library.MapMemory(
                    self.handle, memory.value, 0, _FOREVER, 0, ctypes.byref(place)
                )
                address = place.value
            else:
                asked = vk.AddressInfo(buffer)
                address = self._library.GetBufferDeviceAddress(self.handle, pointer_to(asked))
        except VulkanError:
            self.destroy("Buffer", buffer)
            if memory.value:
                self._library.FreeMemory(self.handle, memory.value, None)
            raise
        assert address is not None
        made = self._allocations[buffer] = Allocation(buffer, memory.value, size, address)
        return made

    def _memory_type(self, bits: int, on_host: bool) -> int:
        """Returns the number of the first type of memory that fits best."""
        types = self.physical.memory.types
        shared = HOST_VISIBLE | HOST_COHERENT
        wanted = [shared | HOST_CACHED, shared] if on_host else [DEVICE_LOCAL, 0]
        for flags in wanted:
            for number in range(self.physical.memory.type_count):
                if bits >> number & 1 and types[number].flags & flags == flags:
                    return number
        raise VulkanError(-2)

    def free(self, allocation: Allocation) -> None:
        """Frees memory that nothing uses."""
        if self._allocations.pop(allocation.buffer, None):
            self.destroy("Buffer", allocation.buffer)
            self._library.FreeMemory(self.handle, allocation.memory, None)

    def free_memory(self) -> int:
        """Returns the bytes of the device's memory that can be had now, as far as it tells."""
        heap = self.physical.local_heap
        size = int(self.physical.memory.heaps[heap].size)
        if "VK_EXT_memory_budget" in self.physical.extensions:
            budget = vk.MemoryBudget()
            asked = vk.MemoryProperties(after=budget)
            self._library.GetPhysicalDeviceMemoryProperties2(
                self.physical.handle, pointer_to(asked)
            )
            return int(budget.budget[heap]) - int(budget.usage[heap])
        taken = sum(allocation.size for allocation in list(self._allocations.values()))
        return (size // 2 if self.physical.shares_memory else size) - taken

    def synchronize(self) -> None:
        """Waits for all queues."""
        for stream in self.streams:
            stream.wait(stream.value)

    def close(self) -> None:
        """Frees all but the memory of arrays that are in use, which goes with the last of them;
        nothing may be under way."""
        if self.is_closed:
            return
        self.is_closed = True
        with suppress(VulkanError):
            self._library.DeviceWaitIdle(self.handle)
        while self._doomed:
            self._doomed.popleft()[1]()
        for allocation in list(self._allocations.values()):
            if not self.host.is_lent(allocation):
                self.free(allocation)
        for stream in self.streams:
            stream.close()
        self.end()

    def end(self) -> None:
        """Closes the device if it is to be, and no memory of it is in use."""
        if self.is_closed and self.handle and not self._allocations:
            handle, self.handle = self.handle, ctypes.c_void_p()
            self._library.DestroyDevice(handle, None)


class MappedMemory:
    """Host memory that the device copies from and to, kept for later copies."""

    def __init__(self, device: OpenDevice) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._free: dict[int, list[Allocation]] = {}
        self._kept = 0
        self._lent: set[Allocation] = set()
        self._starts: list[int] = []
        """The first address of each allocation, in order."""
        self._by_start: dict[int, Allocation] = {}

    def take(self, size: int) -> Allocation:
        """Returns memory of at least that many bytes. May raise VulkanError."""
        size = size_class(size)
        with self._lock:
            if self._free.get(size):
                self._kept -= size
                made = self._free[size].pop()
                self._lent.add(made)
                return made
        made = self._device.allocate(size, on_host=True)
        with self._lock:
            self._lent.add(made)
            bisect.insort(self._starts, made.address)
            self._by_start[made.address] = made
        return made

    def is_lent(self, allocation: Allocation) -> bool:
        """Returns whether an array is in that memory."""
        return allocation in self._lent

    def give_back(self, allocation: Allocation) -> None:
        """Takes memory back that no copy uses any more. Any thread may call this."""
        with self._lock:
            self._lent.remove(allocation)
            if self._device.is_closed:
                self._device.free(allocation)
                self._device.end()
                return
            if self._kept + allocation.size <= _MOST_KEPT:
                self._kept += allocation.size
                self._free.setdefault(allocation.size, []).append(allocation)
                return
            self._starts.remove(allocation.address)
            del self._by_start[allocation.address]
        self._device.destroy_later(partial(self._device.free, allocation))

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Returns an uninitialised array in such memory. May raise VulkanError."""
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(dtype).itemsize
        held = self.take(max(size, 1))
        memory = (ctypes.c_ubyte * held.size).from_address(held.address)
        weakref.finalize(memory, self.give_back, held).atexit = False
        flat: NDArray[Any] = np.ctypeslib.as_array(memory)[:size]
        return flat.view(dtype)[:count].reshape(shape)

    def find(self, array: NDArray[Any]) -> tuple[Allocation, int] | None:
        """Returns the memory that an array lies in, and where; None if it is no such memory."""
        address = array.ctypes.data
        with self._lock:
            place = bisect.bisect_right(self._starts, address) - 1
            if place < 0:
                return None
            found = self._by_start[self._starts[place]]
        offset = address - found.address
        return (found, offset) if offset + array.nbytes <= found.size else None
