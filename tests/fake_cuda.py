"""A driver that computes nothing, in the place of pycuda's and of the driver's graphs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from waifu2x.backends import cuda
from waifu2x.backends.cuda import graph

MODULES = ("machine", "memory", "runtime", "backend")
"""Of waifu2x.backends.cuda: those that import pycuda."""


class Error(Exception):
    """See pycuda.driver."""


class LogicError(Error):
    """The same."""


class DriverRuntimeError(Error):
    """The same."""


class LaunchError(Error):
    """The same."""


class DriverMemoryError(Error):
    """The same."""


class FakeDriver:
    """What happens, and what is to go wrong."""

    def __init__(self) -> None:
        self.broken = ""
        """Every call fails so, as after an illegal access."""
        self.locked = 0
        """Bytes in pages that were locked."""
        self.depth = 0
        """Contexts that are current."""
        self.freed_outside = 0
        """Modules and pages that were freed where no context was current, or in a broken one."""
        self.locked_out = False
        """No page can be locked."""
        self.total = 1 << 34
        self.used = 0
        self.end = 1 << 20
        """The address behind all that was allocated so far."""
        self.refused: set[bytes] = set()
        """Code that is none."""
        self.launched = 0
        self.cleared: dict[int, int] = {}
        """Bytes that were set to zero, by where they begin."""
        self.failing_launch = 0
        """The number of the launch that breaks the device; 0 for none."""
        self.capturing = False
        self.failing_capture = ""
        """The call of the driver that fails, or "launch"."""
        self.graphs = 0
        self.executables = 0

    def check(self) -> None:
        """Fails if the device is broken."""
        if self.broken:
            raise LogicError(self.broken)

    # The driver's graphs, as ctypes sees them.

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:  # noqa: N802
        self.capturing = True
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:  # noqa: N802
        assert self.capturing
        self.capturing = False
        if self.failing_capture == "end":
            return 901
        ctypes.cast(graph, ctypes.POINTER(ctypes.c_void_p))[0] = 1
        self.graphs += 1
        return 0

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: Any) -> int:  # noqa: N802
        if self.failing_capture == "instantiate":
            return 2
        self.executables += 1
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:  # noqa: N802
        assert graph
        self.graphs -= 1
        return 0

    def cuGraphExecDestroy(self, executable: Any) -> int:  # noqa: N802
        self.executables -= 1
        return 0

    def cuGraphLaunch(self, executable: Any, stream: Any) -> int:  # noqa: N802
        return 0

    # What pycuda has.

    def module(self) -> ModuleType:
        """pycuda.driver."""
        driver = self

        def freed() -> None:
            driver.freed_outside += not driver.depth or bool(driver.broken)

        class Context:
            def push(self) -> None:
                driver.depth += 1

            @staticmethod
            def pop() -> None:
                driver.depth -= 1

            @staticmethod
            def synchronize() -> None:
                driver.check()

        class Device:
            multiprocessor_count = 100

            def __init__(self, number: int = 0) -> None: ...

            @staticmethod
            def count() -> int:
                return 1

            def name(self) -> str:
                return "Fake"

            def compute_capability(self) -> tuple[int, int]:
                return 6, 1

            def total_memory(self) -> int:
                return driver.total

            def get_attribute(self, attribute: int) -> int:
                return attribute

            def retain_primary_context(self) -> Context:
                driver.check()
                return Context()

        class Stream:
            handle = 1

            def synchronize(self) -> None:
                driver.check()

        class Memory:
            def __init__(self, size: int) -> None:
                driver.check()
                if driver.used + size > driver.total:
                    raise DriverMemoryError("out of memory")
                driver.used += size
                self.size = size
                self.address = driver.end
                driver.end += size

            def __int__(self) -> int:
                return self.address

            def free(self) -> None:
                driver.check()
                driver.used -= self.size

        class Function:
            code: object
            """A function keeps its module alive."""

            def set_attribute(self, attribute: int, value: int) -> None: ...

            def _launch_kernel(self, *arguments: Any) -> None:
                driver.check()
                driver.launched += 1
                if driver.capturing and driver.failing_capture == "launch":
                    raise LogicError("operation not permitted when stream is capturing")
                if driver.launched == driver.failing_launch:
                    driver.broken = "an illegal memory access was encountered"

        class Code:
            def get_function(self, name: str) -> Function:
                function = Function()
                function.code = self
                return function

            def __del__(self) -> None:
                freed()

        def module_from_buffer(code: bytes) -> Code:
            driver.check()
            if code in driver.refused:
                raise LogicError("device kernel image is invalid")
            return Code()

        class Pages:
            """The base of an array."""

            def __init__(self, size: int) -> None:
                self._memory: NDArray[np.uint8] | None = np.empty(size, np.uint8)
                self.__array_interface__ = self._memory.__array_interface__

            def free(self) -> None:
                driver.check()
                self._memory = None
                freed()

            def __del__(self) -> None:
                if self._memory is not None:
                    freed()

        def pagelocked_empty(size: int, dtype: Any) -> Any:
            if driver.locked_out:
                raise DriverMemoryError("out of memory")
            driver.locked += size
            assert dtype == np.uint8
            return np.asarray(Pages(size))

        def copy(*arguments: Any) -> None:
            driver.check()

        def mem_get_info() -> tuple[int, int]:
            driver.check()
            return driver.total - driver.used, driver.total

        def memset(address: int, value: int, size: int, stream: Any) -> None:
            driver.check()
            assert value == 0
            assert size < 1 << 32
            driver.cleared[address] = size

        class Attributes:
            MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 48 << 10
            MULTIPROCESSOR_COUNT = 100
            MAX_THREADS_PER_BLOCK = 1024
            MAX_SHARED_MEMORY_PER_BLOCK = 48 << 10
            WARP_SIZE = 32

        found: Any = ModuleType("pycuda.driver")
        found.Error, found.LogicError, found.LaunchError = Error, LogicError, LaunchError
        found.RuntimeError, found.MemoryError = DriverRuntimeError, DriverMemoryError
        found.device_attribute = Attributes
        found.function_attribute = Attributes
        found.Context, found.Device, found.Stream = Context, Device, Stream
        found.init = lambda: None
        found.get_driver_version = lambda: 13000
        found.mem_alloc = Memory
        found.mem_get_info = mem_get_info
        found.memset_d8_async = memset
        found.module_from_buffer = module_from_buffer
        found.pagelocked_empty = pagelocked_empty
        found.memcpy_htod_async = found.memcpy_dtoh_async = copy
        module: ModuleType = found
        return module


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver behind every import of pycuda while a test runs."""
    fake = FakeDriver()
    package: Any = ModuleType("pycuda")
    package.driver = fake.module()
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", package.driver)
    monkeypatch.setattr(graph, "_driver", lambda: fake)
    # Imported once more, and what was there before comes back.
    before = {name: sys.modules.pop(f"{cuda.__name__}.{name}", None) for name in MODULES}
    yield fake
    for name, module in before.items():
        sys.modules.pop(f"{cuda.__name__}.{name}", None)
        vars(cuda).pop(name, None)
        if module is not None:
            sys.modules[f"{cuda.__name__}.{name}"] = module
            setattr(cuda, name, module)
