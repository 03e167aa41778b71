"""The processor as a backend: its threads, what it refuses, what it says when code is lacking."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.graphs import fit_padding
from tests.helpers.steps import is_scale
from waifu2x.backends import open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.cpu import backend as cpu
from waifu2x.backends.cpu.arithmetic import Arithmetic
from waifu2x.backends.cpu.compile import builders, isa
from waifu2x.backends.cpu.compile.compiled import Compiled
from waifu2x.backends.cpu.compiled_model import CpuModel
from waifu2x.backends.cpu.network import CpuNetwork
from waifu2x.backends.cpu.pack.packer import pack
from waifu2x.backends.cpu.run import kept_memory, kernels, work_queue
from waifu2x.backends.cpu.run.work_queue import TaskBatch
from waifu2x.backends.cpu.run.workers import MOST_FREE_BYTES, Workers
from waifu2x.errors import BackendError
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.networks.activations import leaky
from waifu2x.networks.nodes import Convolution, Dense, Enlarge, Mean, Multiply
from waifu2x.system import machine


def container(root: Path) -> Path:
    """A machine of 64 GiB and a control group of 1 GiB and 1.5 processors."""
    files = {
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {50 << 20} kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": f"{1 << 30}\n",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_threads_and_kept_maps_are_as_many_as_the_container_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = container(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(cpu, "core_count", partial(machine.core_count, root))
    monkeypatch.setattr(kept_memory, "total_memory", partial(machine.total_memory, root))
    monkeypatch.setattr(kept_memory, "machine_share", kept_memory.machine_share.__wrapped__)
    others = set(threading.enumerate())
    with closing(open_backend("cpu")) as backend:
        assert backend.device.detail.startswith("2 cores, ")
        network = backend.compile([obvious.random_model([3, 16, 3], seed=1)], "fp32")
        (stage,) = network.models  # type: ignore[attr-defined]
        assert kept_memory.budget(stage.packed) == (1 << 30) // 4
        assert kept_memory.budget_of_means(stage.packed) == (1 << 30) // 4
        pixels = np.full((200, 300, 3), 9, np.uint8)
        network.run(Call(pixels, np.uint8, tile=16))
        started = set(threading.enumerate()) - others
        assert len([thread for thread in started if "waifu2x-cpu" in thread.name]) == 1


def test_pictures_that_no_memory_holds_are_refused_in_a_sentence() -> None:
    model = fit_padding("large", 3, (Enlarge(0, 64),), "replicate")
    pixels = np.zeros((7, 5, 3), np.uint8)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([model] * 10, "fp32")
        with pytest.raises(BackendError, match=r"^backend cpu: the picture is too large"):
            network.run(Call(pixels, np.uint8))
    one = CpuModel(model, pack(model, "fp32"), Workers(1))
    with pytest.raises(BackendError, match=r"^large: the picture is too large"):
        one.plan(1 << 18, 1 << 18)


def test_code_that_cannot_be_compiled_is_a_sentence_of_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Compiled) -> bytes:
        raise RuntimeError("no such instruction\nand more of the like")

    monkeypatch.setenv("WAIFU2X_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Compiled, "compiled", broken)
    monkeypatch.setattr(builders, "can_build", lambda: False)
    monkeypatch.setattr(kernels, "run_strips", Compiled("strip", "run_strips"))
    with closing(open_backend("cpu")) as backend, pytest.raises(BackendError) as raised:
        backend.compile([obvious.random_model([3, 3], seed=1)], "fp32")
    assert str(raised.value) == (
        "backend cpu: its code cannot be compiled for this processor: no such instruction;"
        " try WAIFU2X_CPU_ISA=portable, or another backend"
    )


def test_networks_open_and_close_while_others_are_counted() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with closing(cpu.CpuBackend()) as backend, ThreadPoolExecutor(1) as pool:
            held: list[CpuNetwork] = []

            def add() -> None:
                for _ in range(5000):
                    held.append(CpuNetwork([], backend._workers, lambda: None))
                    backend._networks.add(held[-1])

            adding = pool.submit(add)
            while not adding.done():
                assert backend.bytes == 0
            adding.result()
    finally:
        sys.setswitchinterval(interval)


def test_interrupts_leave_no_strip_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code knows addresses only: of pixels, results and weights, which may go then."""
    interrupts = iter([KeyboardInterrupt] * 3)
    begun: list[TaskBatch] = []
    ended: list[TaskBatch] = []
    begin, run_one, release = TaskBatch.__init__, TaskBatch.run_one, TaskBatch.release

    def beginning(self: TaskBatch, *arguments: Any) -> None:
        begun.append(self)
        begin(self, *arguments)

    def interrupted(self: TaskBatch) -> None:
        for interrupt in interrupts:
            raise interrupt
        run_one(self)

    def released(self: TaskBatch) -> None:
        assert self.done == self.count
        ended.append(self)
        release(self)

    monkeypatch.setattr(cpu, "core_count", lambda: 1)
    monkeypatch.setattr(TaskBatch, "__init__", beginning)
    monkeypatch.setattr(TaskBatch, "run_one", interrupted)
    monkeypatch.setattr(TaskBatch, "release", released)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([obvious.random_model([3, 16, 3], seed=1)], "fp32")
        pixels = np.full((200, 300, 3), 9, np.uint8)
        with pytest.raises(KeyboardInterrupt):
            network.run(Call(pixels, np.uint8, tile=16))
        assert begun
        assert set(ended) == set(begun)
        assert network.run(Call(pixels, np.uint8)).shape == pixels.shape


def test_where_no_thread_can_be_started_the_caller_does_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container that limits them."""

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cpu, "core_count", lambda: 4)
    monkeypatch.setattr(threading.Thread, "start", refused)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([obvious.random_model([3, 16, 3], seed=1)], "fp32")
        pixels = np.full((200, 300, 3), 9, np.uint8)
        assert network.run(Call(pixels, np.uint8, tile=16)).shape == pixels.shape


def test_memory_that_waits_for_the_next_call_is_bounded_however_many_calls_there_were() -> None:
    backend = Workers(1)
    floats = MOST_FREE_BYTES // 4 // 2  # none of it is touched
    user = np.zeros(1, np.float32)
    with ExitStack() as calls:
        for _ in range(4):
            calls.enter_context(backend.kept_maps(1, floats - 64, user))
    assert 0 < backend.bytes <= MOST_FREE_BYTES
    with backend.kept_maps(1, 3 * floats, user):
        pass
    assert backend.bytes <= MOST_FREE_BYTES


def test_memory_of_another_network_is_cleared() -> None:
    """As bits of another kind it may be no number, and padding is multiplied by zeros."""
    workers, first, second = Workers(1), np.zeros(1, np.float32), np.ones(1, np.float32)
    with workers.kept_maps(1, 64, first) as maps:
        assert not maps.any()
        maps[:] = np.nan
    with workers.kept_maps(1, 64, first) as maps:
        assert np.isnan(maps).all()
    with workers.kept_maps(1, 48, second) as maps:
        assert not maps.any()
    with workers.kept_maps(1, 64, second) as maps:
        assert not maps.any()


@pytest.mark.parametrize("arithmetic", ["fp32", "int16", "bf16"])
def test_vectors_are_as_long_as_the_pixels_that_they_scale(arithmetic: Arithmetic) -> None:
    rng = np.random.default_rng(3)

    def weight(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    zeros = np.zeros(5, np.float32)
    nodes = (
        Convolution(0, weight(5, 1, 3, 3), zeros, leaky(1, 5)),
        Mean(1),
        Dense(2, weight(5, 5), zeros, leaky(1, 5)),
        Multiply(1, 3),
        Convolution(4, weight(3, 5, 1, 1), zeros[:3], leaky(1, 3)),
    )
    packed = pack(fit_padding("squeezed", 1, nodes), arithmetic)
    rooms = np.diff(packed.vector_starts)
    for step in packed.program.steps:
        if isinstance(step, GlobalAvgPool) or is_scale(step):
            assert rooms[step.vector] >= packed.maps.layouts[step.source.value].padded[0]


@pytest.mark.parametrize("seed", range(20))
def test_kept_maps_of_one_phase_do_not_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    maps = {}
    for value in range(8):
        first = int(random.integers(0, 6))
        last = first + int(random.integers(0, 4))
        maps[value] = kept_memory.KeptMap(int(random.integers(1, 50)), first, last)
    starts, floats = kept_memory.placed(maps)
    for phase in range(10):
        taken: set[int] = set()
        for value, (size, first, last) in maps.items():
            if first <= phase <= last:
                own = set(range(starts[value], starts[value] + size))
                assert not own & taken
                taken |= own
        assert max(taken, default=0) < floats


def test_a_small_map_that_stays_leaves_no_gap() -> None:
    maps = {
        1: kept_memory.KeptMap(500, 0, 1),
        2: kept_memory.KeptMap(100, 1, 3),
        3: kept_memory.KeptMap(200, 2, 3),
        4: kept_memory.KeptMap(600, 3, 3),
    }
    assert kept_memory.placed(maps).floats == 900


@pytest.mark.parametrize("sleeps", [False, True])
def test_threads_that_slept_run_strips_again(monkeypatch: pytest.MonkeyPatch, sleeps: bool) -> None:
    """In compiled code, or, where that cannot let them sleep, in Python."""
    others = set(threading.enumerate())
    monkeypatch.setattr(cpu, "core_count", lambda: 3)
    monkeypatch.setattr(work_queue, "SLEEPS", sleeps and isa.SLEEPS)
    monkeypatch.setattr(work_queue, "_LOOKS", 1)  # they sleep after each strip
    model = obvious.random_model([3, 8, 3], seed=4)
    pixels = np.random.default_rng(0).integers(0, 256, (70, 90, 3), np.uint8)
    with closing(open_backend("cpu")) as backend:
        network = backend.compile([model], "fp32")
        expected = network.run(Call(pixels, np.float32))
        for _ in range(20):
            np.testing.assert_array_equal(network.run(Call(pixels, np.float32)), expected)
    assert set(threading.enumerate()) == others
