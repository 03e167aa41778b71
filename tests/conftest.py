"""Fixtures that every test file shares."""

from __future__ import annotations

import gc
import os
import time

# Before NumPy: tests run side by side, and each product is small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from PIL import Image

from tests.helpers.fake_cuda import driver  # noqa: F401 (a fixture)
from tests.helpers.verify import verify, verify_phases, verify_places
from waifu2x.backends import BACKEND_NAMES, Backend, open_backend
from waifu2x.backends.cpu.compile import builders
from waifu2x.backends.cpu.compile.code_image import Function
from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cuda.compilers import nvrtc
from waifu2x.backends.cuda.compilers.nvrtc import Nvrtc
from waifu2x.errors import BackendError
from waifu2x.lowering import lower
from waifu2x.lowering.passes import segments
from waifu2x.lowering.plan import liveness, phases
from waifu2x.lowering.plan.symbols import example
from waifu2x.lowering.program import Program
from waifu2x.system.locks import HeldElsewhereError, locked
from waifu2x.system.machine import core_count

EXAMPLES = Path(__file__).parent.parent / "examples"

# Other work on the machine may make any example slow.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the whole run, away from the user's: kernels compile once, in whichever of
    the processes that share the tests."""
    root = tmp_path_factory.getbasetemp()
    shared = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "cache"
    folder = Path(os.environ.get("WAIFU2X_TEST_CACHE", shared))
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAIFU2X_CACHE_DIR", str(folder))
        patch.setenv("WAIFU2X_CONFIG", "")  # whatever the user's settings are
        if "PYTHONDONTWRITEBYTECODE" in os.environ:
            # Each of hundreds of starts of the program would compile all of it.
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        for name in ("COLUMNS", "LINES"):  # which terminals of tests would be taken to have
            patch.delenv(name, raising=False)
        yield folder


def pytest_xdist_auto_num_workers() -> int:
    """Returns a worker more than there are cores: a third of their time, tests wait for programs
    that they have started."""
    return core_count() + 1


COMPILE_NOTHING = {"formats", "imaging", "lowering", "networks", "release", "system"}
"""Rooms whose tests take nearly nothing that is compiled for the processor."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two workers begin with the halves of the list: one compiles for the processor, and the other
    one, which would wait for that, tests what needs none of it meanwhile."""
    quick = [item for item in items if item.path.parent.name in COMPILE_NOTHING]
    rest = [item for item in items if item.path.parent.name not in COMPILE_NOTHING]
    half = min(len(items) // 2, len(rest))
    items[:] = rest[:half] + quick + rest[half:]


@pytest.fixture(scope="session", autouse=True)
def compiled_once(cache_folder: Path) -> Iterator[None]:
    """While one worker compiles code for the processor, others wait for it: it takes a core for
    half a minute."""
    built = Compiled._built

    def wait_or_build(self: Compiled, key: str) -> Function:
        while True:
            with suppress(HeldElsewhereError), locked(cache_folder / "compiling"):
                return self._cached(key) or self._of_object(key) or built(self, key)
            time.sleep(0.1)

    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            patch.setattr(Compiled, "_built", wait_or_build)
            patch.setattr(builders, "core_count", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_frozen_objects_in_the_end() -> Iterator[None]:
    """Thaws all objects: pytest's plugins look for leaks at the end."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def objects_that_stay() -> None:
    """Leaves what is there already out of later collections of garbage: to look through thousands
    of tests and the compilers' objects takes a second, and some tests collect ten times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def verified_programs() -> Iterator[None]:
    """Whatever is lowered or cut, divided into phases, or given places in memory, is held to be
    right; and so is every program that is run, whichever pass has made it."""
    whole: WeakSet[Program] = WeakSet()

    def held(program: Program) -> Program:
        if program not in whole:
            verify(program)
            whole.add(program)
        return program

    def plan(program: Program, *arguments: Any) -> list[phases.Phase]:
        found = planned(held(program), *arguments)
        verify_phases(program, found)
        return found

    def places(spans: Any, alignment: int) -> Any:
        offsets, total = placed(spans, alignment)
        sizes = {name: replace(span, size=example(span.size)) for name, span in spans.items()}
        examples = {name: example(offset) for name, offset in offsets.items()}
        verify_places(sizes, examples, example(total), alignment)
        return offsets, total

    lowered, cut = lower._Lowering.program, segments.cut
    planned, placed = phases.plan, liveness.places
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower._Lowering, "program", lambda self: held(lowered(self)))
        patch.setattr(segments, "cut", lambda *arguments: held(cut(*arguments)))
        patch.setattr(phases, "plan", plan)
        patch.setattr(liveness, "places", places)
        yield


def _missing() -> dict[str, str]:
    """Why this machine lacks a backend, by its name."""
    found: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAIFU2X_CACHE_DIR", os.devnull)  # the user's stays as it is
        for name in BACKEND_NAMES:
            try:
                open_backend(name).close()
            except BackendError as error:
                found[name] = str(error)
    return found


MISSING = _missing()
PRESENT = [name for name in BACKEND_NAMES if name not in MISSING]


def need(name: str) -> None:
    """Skips a test where this machine lacks a backend; fails it where that is required."""
    if name in MISSING:
        assert name not in os.environ.get("WAIFU2X_REQUIRE", "").split(","), MISSING[name]
        pytest.skip(MISSING[name])


IN_MATRIX = {"vulkan"}
"""Backends whose driver takes a second to compile a kernel: the matrix holds them to the contract,
`.ci/long` to all other tests."""


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=pytest.mark.long if name in IN_MATRIX else ()) for name in PRESENT
    ],
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend that this machine has, in turn, or one that a test names."""
    need(request.param)
    opened = open_backend(request.param)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def opencl_device() -> Any:
    """The default OpenCL device, for which its driver can compile, whichever package that comes
    from; without one the test is skipped, unless `opencl` is required."""
    need("opencl")
    from waifu2x.backends.opencl import platforms

    return platforms.pick(0)


@pytest.fixture(scope="session")
def nvrtc_here() -> Nvrtc:
    """NVIDIA's compiler, which needs no device. Without it the test is skipped, unless `nvrtc` is
    required."""
    found = nvrtc.find(99)
    if found is None:
        if "nvrtc" in os.environ.get("WAIFU2X_REQUIRE", "").split(","):
            raise AssertionError("NVRTC is not here")
        pytest.skip("NVRTC is not here")
    return found


@pytest.fixture(scope="session")
def drawn() -> NDArray[np.uint8]:
    """A drawing with flat fills, RGB."""
    return np.asarray(Image.open(EXAMPLES / "drawn.png").convert("RGB"))


@pytest.fixture(scope="session")
def photo() -> NDArray[np.uint8]:
    """A photo-like picture, RGB."""
    return np.asarray(Image.open(EXAMPLES / "photo.jpg").convert("RGB"))
