"""A driver that computes nothing, behind pycuda as behind ctypes, and whatever is to go wrong."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x.backends.cuda import driver as drivers
from waifu2x.backends.cuda.driver import Attribute, by_ctypes, graph
from waifu2x.backends.cuda.driver import library as driver_library

WORDS = {
    2: "out of memory",
    101: "invalid device ordinal",
    600: "device not ready",
    200: "device kernel image is invalid",
    712: "part or all of the requested memory range is already mapped",
    700: "an illegal memory access was encountered",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
}
"""Values of CUresult, as the driver has them."""


class RefusedError(Exception):
    """A call that fails, with its CUresult."""

    def __init__(self, status: int) -> None:
        super().__init__(WORDS[status])
        self.status = status


def fetched(address: int, size: int) -> NDArray[np.uint8]:
    """The device's bytes at an address."""
    return (np.arange(address, address + size) % 251).astype(np.uint8)


class FakeDriver:
    """Records what a driver is asked to do, and fails where a test says so."""

    def __init__(self) -> None:
        self.busy = 0
        """How often a moment has not come yet."""
        self.broken = 0
        """Every call fails so, as after an illegal access."""
        self.depth = 0
        """Contexts that are current."""
        self.contexts = self.streams = self.events = self.modules = 0
        """How many there are."""
        self.locked: dict[int, NDArray[np.uint8]] = {}
        """Pages that are locked now, by their addresses."""
        self.ever_locked = 0
        """Bytes of all pages that ever were."""
        self.freed_outside = 0
        """Counts what is freed in a broken context, which pycuda would say on the terminal;
        modules and pages where none was current, too."""
        self.locked_out = False
        """No page can be locked."""
        self.registered: dict[int, int] = {}
        """Bytes of others that are locked now, by their addresses."""
        self.sent: list[tuple[int, int]] = []
        """Address and bytes on the machine of each copy to the device."""
        self.fetched: list[tuple[int, int]] = []
        """The same of each copy from it."""
        self.failing_copy = 0
        """The number of the copy from which on memory runs out; 0 for none."""
        self.gpus = 1
        """The GPUs of the machine; CUDA_VISIBLE_DEVICES shows some of them."""
        self.used_gpus: set[int] = set()
        """Those whose context was made, or whose description was read."""
        self.capability = (6, 1)
        """As in sm_61, which has no matrix units."""
        self.total = 1 << 34
        self.used = 0
        self.sizes: dict[int, int] = {}
        """Bytes of each allocation, by its address."""
        self.end = 1 << 20
        """The address behind all that was allocated so far."""
        self.refused: set[bytes] = set()
        """Code that is none."""
        self.launched: list[tuple[Any, ...]] = []
        """Blocks, threads, arguments and bytes of shared memory of each launch."""
        self.cleared: dict[int, int] = {}
        """Bytes that were set to zero, by where they begin."""
        self.failing_launch = 0
        """The number of the launch that breaks the device; 0 for none."""
        self.waited = self.followed = 0
        """How often the host waited for a stream, and a stream for another."""
        self.capturing = False
        self.failing_capture = ""
        """The call of the driver that fails, or "launch"."""
        self.graphs = 0
        self.executables = 0

    @property
    def visible(self) -> list[int]:
        """The GPUs that the driver shows, in its order."""
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        return list(range(self.gpus)) if shown is None else list(map(int, shown.split(",")))

    def use(self, device: int) -> None:
        """Notes that a GPU is used, by its number among those that are shown."""
        self.used_gpus.add(self.visible[device])

    def check(self) -> None:
        """Fails if the device is broken."""
        if self.broken:
            raise RefusedError(self.broken)

    def wait(self) -> None:
        """Waits for a stream."""
        self.check()
        self.waited += 1

    def query(self) -> None:
        """Asks whether a moment has come."""
        self.check()
        if self.busy:
            self.busy -= 1
            raise RefusedError(600)

    def follow(self) -> None:
        """Lets one stream wait for another."""
        self.check()
        assert not self.capturing, "the other stream is not captured"
        self.followed += 1

    def freed(self) -> None:
        """Notes that a module or pages were freed."""
        self.freed_outside += not self.depth or bool(self.broken)

    def attribute(self, number: int) -> int:
        """An attribute of the device."""
        major, minor = self.capability
        most_shared = {6: 48, 7: 64, 8: 163, 9: 227}[major] << 10
        return {
            Attribute.MAX_THREADS_PER_BLOCK: 1024,
            Attribute.MAX_SHARED_MEMORY_PER_BLOCK: 48 << 10,
            Attribute.WARP_SIZE: 32,
            Attribute.MULTIPROCESSOR_COUNT: 100,
            Attribute.COMPUTE_CAPABILITY_MAJOR: major,
            Attribute.COMPUTE_CAPABILITY_MINOR: minor,
            Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: most_shared,
        }[Attribute(number)]

    def allocate(self, size: int) -> int:
        """The address."""
        self.check()
        if self.used + size > self.total:
            raise RefusedError(2)
        self.used += size
        address, self.end = self.end, self.end + size
        self.sizes[address] = size
        return address

    def free(self, address: int) -> None:
        self.check()
        self.used -= self.sizes.pop(address)

    def clear(self, address: int, value: int, size: int) -> None:
        self.check()
        assert value == 0
        assert size < 1 << 32
        self.cleared[address] = size

    def lock(self, size: int) -> NDArray[np.uint8]:
        """Pages."""
        self.check()
        if self.locked_out:
            raise RefusedError(2)
        self.ever_locked += size
        pages = np.empty(size, np.uint8)
        self.locked[pages.ctypes.data] = pages
        return pages

    def unlock(self, address: int) -> None:
        self.check()
        del self.locked[address]
        self.freed()

    def copy(self, size: int) -> None:
        self.check()
        assert size > 0
        if self.failing_copy:
            if self.failing_copy == 1:
                raise RefusedError(2)
            self.failing_copy -= 1

    def register(self, address: int, size: int) -> None:
        """Locks pages of others; a second time it is refused, as by the driver."""
        self.check()
        assert self.depth
        if self.locked_out or address in self.registered:
            raise RefusedError(712)
        self.registered[address] = size

    def unregister(self, address: int) -> None:
        self.check()
        assert self.depth
        del self.registered[address]

    def send(self, source: int, size: int) -> None:
        self.copy(size)
        self.sent.append((source, size))

    def fetch(self, target: int, address: int, size: int) -> None:
        """Each byte of the device is made of its address, so that tests see what came."""
        self.copy(size)
        self.fetched.append((target, size))
        ctypes.memmove(target, fetched(address, size).tobytes(), size)

    def load(self, code: bytes) -> None:
        self.check()
        if code in self.refused:
            raise RefusedError(200)
        self.modules += 1

    def unload(self) -> None:
        self.modules -= 1
        self.freed()

    def launch(self, *launch: Any) -> None:
        self.check()
        assert self.depth
        self.launched.append(launch)
        if self.capturing and self.failing_capture == "launch":
            raise RefusedError(900)
        if len(self.launched) == self.failing_launch:
            self.broken = 700


def _status(call: Callable[..., None]) -> Any:
    """A function of the library: gives a CUresult."""

    def called(self: FakeLibrary, *arguments: Any) -> int:
        try:
            call(self, *arguments)
        except RefusedError as error:
            return error.status
        return 0

    return called


class FakeLibrary:
    """The driver's library, as ctypes sees it. `out` is what a call writes to, made by byref."""

    # The names are the driver's.
    # ruff: noqa: N802

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver

    def cuGetErrorString(self, status: int, out: Any) -> int:
        out._obj.value = WORDS[status].encode()
        return 0

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13000
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.driver.visible)
        return 0

    def cuDeviceGet(self, out: Any, number: int) -> int:
        out._obj.value = number
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: int) -> int:
        assert size > len("Fake")
        self.driver.use(device)
        name.value = b"Fake"
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, device: int) -> int:
        self.driver.use(device)
        out._obj.value = self.driver.total
        return 0

    def cuDeviceGetAttribute(self, out: Any, number: int, device: int) -> int:
        self.driver.use(device)
        out._obj.value = self.driver.attribute(number)
        return 0

    @_status
    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        self.driver.check()
        self.driver.use(device)
        self.driver.contexts += 1
        out._obj.value = 7

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> int:
        self.driver.contexts -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: int) -> int:
        assert context == 7
        self.driver.depth += 1
        return 0

    def cuCtxPopCurrent_v2(self, out: Any) -> int:
        self.driver.depth -= 1
        return 0

    @_status
    def cuCtxSynchronize(self) -> None:
        self.driver.check()

    @_status
    def cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        self.driver.check()
        free._obj.value = self.driver.total - self.driver.used

    @_status
    def cuMemAlloc_v2(self, out: Any, size: int) -> None:
        out._obj.value = self.driver.allocate(size)

    @_status
    def cuMemFree_v2(self, address: int) -> None:
        self.driver.free(address)

    @_status
    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:
        self.driver.clear(address, value, size)

    @_status
    def cuMemHostAlloc(self, out: Any, size: int, flags: int) -> None:
        out._obj.value = self.driver.lock(size).ctypes.data

    @_status
    def cuMemFreeHost(self, address: int) -> None:
        self.driver.unlock(address)

    @_status
    def cuMemHostRegister_v2(self, address: int, size: int, flags: int) -> None:
        assert flags == 1
        self.driver.register(address, size)

    @_status
    def cuMemHostUnregister(self, address: int) -> None:
        self.driver.unregister(address)

    @_status
    def cuMemcpyHtoDAsync_v2(self, address: int, array: int, size: int, stream: int) -> None:
        self.driver.send(array, size)

    @_status
    def cuMemcpyDtoHAsync_v2(self, array: Any, address: int, size: int, stream: int) -> None:
        self.driver.fetch(ctypes.addressof(array), address, size)

    @_status
    def cuStreamCreate(self, out: Any, flags: int) -> None:
        self.driver.check()
        self.driver.streams += 1
        out._obj.value = 1

    @_status
    def cuStreamSynchronize(self, stream: int) -> None:
        self.driver.wait()

    @_status
    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        assert (stream, event, flags) == (1, 3, 0)
        self.driver.follow()

    @_status
    def cuStreamDestroy_v2(self, stream: int) -> None:
        self.driver.check()
        self.driver.streams -= 1

    @_status
    def cuEventCreate(self, out: Any, flags: int) -> None:
        self.driver.check()
        self.driver.events += 1
        out._obj.value = 3

    @_status
    def cuEventRecord(self, event: int, stream: int) -> None:
        self.driver.check()

    @_status
    def cuEventSynchronize(self, event: int) -> None:
        self.driver.check()

    @_status
    def cuEventQuery(self, event: int) -> None:
        self.driver.query()

    def cuEventElapsedTime(self, out: Any, before: int, after: int) -> int:
        out._obj.value = 250.0
        return 0

    def cuEventDestroy_v2(self, event: int) -> int:
        self.driver.events -= 1
        return 0

    @_status
    def cuModuleLoadData(self, out: Any, code: bytes) -> None:
        self.driver.load(code)
        out._obj.value = 5

    def cuModuleUnload(self, module: int) -> int:
        assert module == 5
        self.driver.unload()
        return 0

    def cuModuleGetFunction(self, out: Any, module: int, name: bytes) -> int:
        assert module == 5
        out._obj.value = 6
        return 0

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        assert (function, attribute) == (6, 8)
        return 0

    @_status
    def cuLaunchKernel(self, function: int, *rest: Any) -> None:
        *sizes, shared, stream, parameters, extra = rest
        assert (function, stream, parameters) == (6, 1, None)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, its value, CU_LAUNCH_PARAM_BUFFER_SIZE, its value, END.
        first, buffer, second, size, end = (ctypes.c_void_p * 5).from_address(extra)
        assert (first, second, end) == (1, 2, None)
        assert buffer is not None
        assert size is not None
        packed = ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)
        assert sizes[4:] == [1, 1]
        self.driver.launch(tuple(sizes[:3]), sizes[3], packed, shared)

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> int:
        self.driver.capturing = True
        return 0

    def cuStreamEndCapture(self, stream: int, out: Any) -> int:
        assert self.driver.capturing
        self.driver.capturing = False
        if self.driver.failing_capture == "end":
            return 901
        out._obj.value = 1
        self.driver.graphs += 1
        return 0

    def cuGraphInstantiateWithFlags(self, out: Any, graph: Any, flags: int) -> int:
        if self.driver.failing_capture == "instantiate":
            return 2
        self.driver.executables += 1
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        assert graph
        self.driver.graphs -= 1
        return 0

    def cuGraphExecDestroy(self, executable: Any) -> int:
        self.driver.executables -= 1
        return 0

    def cuGraphLaunch(self, executable: Any, stream: int) -> int:
        assert stream == 1
        return 0


class Error(Exception):
    """The part of pycuda.driver that the runtime uses."""


class LogicError(Error):
    """The same."""


class DriverMemoryError(Error):
    """The same."""


def _pycuda(call: Callable[..., Any]) -> Any:
    """A function of pycuda: raises its errors."""

    def called(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except RefusedError as error:
            kind = DriverMemoryError if error.status == 2 else LogicError
            raise kind(f"call failed: {error}") from None

    return called


def pycuda_driver(driver: FakeDriver) -> ModuleType:
    """pycuda.driver, whose objects free themselves."""

    class Context:
        def __init__(self) -> None:
            driver.contexts += 1

        def __del__(self) -> None:
            driver.contexts -= 1

        def push(self) -> None:
            driver.depth += 1

        @staticmethod
        def pop() -> None:
            driver.depth -= 1

        @staticmethod
        @_pycuda
        def synchronize() -> None:
            driver.check()

    class Device:
        def __init__(self, number: int = 0) -> None:
            self.number = number

        @staticmethod
        def count() -> int:
            return len(driver.visible)

        def name(self) -> str:
            driver.use(self.number)
            return "Fake"

        def total_memory(self) -> int:
            driver.use(self.number)
            return driver.total

        def get_attribute(self, attribute: Attribute) -> int:
            driver.use(self.number)
            return driver.attribute(attribute)

        @_pycuda
        def retain_primary_context(self) -> Context:
            driver.check()
            driver.use(self.number)
            return Context()

    class Stream:
        handle = 1

        def __init__(self) -> None:
            driver.streams += 1

        def __del__(self) -> None:
            driver.streams -= 1

        @_pycuda
        def synchronize(self) -> None:
            driver.wait()

        @_pycuda
        def wait_for_event(self, event: Event) -> None:
            assert isinstance(event, Event)
            driver.follow()

    class Event:
        def __init__(self, flags: int = 0) -> None:
            driver.events += 1

        def __del__(self) -> None:
            driver.events -= 1
            driver.freed_outside += bool(driver.broken)

        @_pycuda
        def record(self, stream: Stream) -> None:
            driver.check()

        @_pycuda
        def synchronize(self) -> None:
            driver.check()

        def query(self) -> bool:
            try:
                driver.query()
            except RefusedError as error:
                if error.status == 600:
                    return False
                raise LogicError(str(error)) from None
            return True

        def time_since(self, before: Event) -> float:
            return 250.0

    class Memory:
        @_pycuda
        def __init__(self, size: int) -> None:
            self.address = driver.allocate(size)

        def __int__(self) -> int:
            return self.address

        def free(self) -> None:
            """Where it fails, it says so on the terminal, and no more."""
            if driver.broken:
                driver.freed()
            else:
                driver.free(self.address)
            self.address = 0

        def __del__(self) -> None:
            if getattr(self, "address", 0):
                self.free()

    class Function:
        code: object
        """A function keeps its module alive."""

        def set_attribute(self, attribute: int, value: int) -> None:
            assert attribute == 8

        @_pycuda
        def _launch_kernel(
            self, blocks: Any, threads: Any, packed: Any, shared: int, stream: Any
        ) -> None:
            assert isinstance(stream, Stream)
            assert threads[1:] == (1, 1)
            driver.launch(blocks, threads[0], packed, shared)

    class Code:
        @_pycuda
        def __init__(self, code: bytes) -> None:
            self.is_loaded = False
            driver.load(code)
            self.is_loaded = True

        def get_function(self, name: str) -> Function:
            function = Function()
            function.code = self
            return function

        def __del__(self) -> None:
            if self.is_loaded:
                driver.unload()

    class Pages:
        """The base of an array."""

        def __init__(self, pages: NDArray[np.uint8]) -> None:
            self._address: int | None = pages.ctypes.data
            self.__array_interface__ = pages.__array_interface__

        def free(self) -> None:
            """As that of Memory."""
            assert self._address is not None
            del driver.locked[self._address]
            driver.freed()
            self._address = None

        def __del__(self) -> None:
            if self._address is not None:
                del driver.locked[self._address]
                driver.freed()

    def pagelocked_empty(size: int, dtype: Any) -> Any:
        assert dtype == np.uint8
        return np.asarray(Pages(driver.lock(size)))

    def mem_get_info() -> tuple[int, int]:
        driver.check()
        return driver.total - driver.used, driver.total

    found: Any = ModuleType("pycuda.driver")
    found.Error, found.MemoryError = Error, DriverMemoryError
    found.device_attribute = Attribute
    found.function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    found.event_flags = SimpleNamespace(BLOCKING_SYNC=1)
    found.Context, found.Device, found.Stream, found.Event = Context, Device, Stream, Event
    found.init = lambda: None
    found.get_driver_version = lambda: 13000
    found.mem_alloc = Memory
    found.mem_get_info = _pycuda(mem_get_info)
    found.memset_d8_async = _pycuda(
        lambda address, value, size, stream: driver.clear(address, value, size)
    )
    found.module_from_buffer = Code
    found.pagelocked_empty = _pycuda(pagelocked_empty)
    found.memcpy_htod_async = _pycuda(
        lambda address, array, stream: driver.send(array.ctypes.data, array.nbytes)
    )
    found.memcpy_dtoh_async = _pycuda(
        lambda array, address, stream: driver.fetch(array.ctypes.data, address, array.nbytes)
    )
    module: ModuleType = found
    return module


@pytest.fixture(params=["pycuda", "ctypes"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver while a test runs, once behind pycuda and once behind ctypes."""
    fake = FakeDriver()
    library = FakeLibrary(fake)
    monkeypatch.setattr(graph, "library", lambda: library)
    monkeypatch.setattr(by_ctypes, "library", lambda: library)
    monkeypatch.setattr(driver_library, "library", lambda: library)
    package: Any = None
    if request.param == "pycuda":
        package = ModuleType("pycuda")
        package.driver = pycuda_driver(fake)
        monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    monkeypatch.setitem(sys.modules, "pycuda", package)  # None is a package that is not here
    # Modules imported through another pycuda come back afterwards.
    name = f"{drivers.__name__}.by_pycuda"
    before = sys.modules.pop(name, None)
    yield fake
    sys.modules.pop(name, None)
    vars(drivers).pop("by_pycuda", None)
    if before is not None:
        sys.modules[name] = before
        vars(drivers)["by_pycuda"] = before
