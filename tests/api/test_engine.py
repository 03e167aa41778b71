"""Engines: networks that requests share, counted, freed, compiled again where memory is short."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import obvious
from tests.helpers.contents import identity_models
from waifu2x import BackendError, Engine, ModelError, Upscaler
from waifu2x.backends import Backend, Device
from waifu2x.backends.call import Call
from waifu2x.errors import DeviceMemoryError
from waifu2x.imaging.planar import PlaneFormat
from waifu2x.networks import model_set
from waifu2x.networks.model import Model
from waifu2x.networks.readers import waifu2x_json

PIXELS = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


class FakeBackend:
    """Networks of 1 byte each, in a memory of `room` bytes; pixels that are all 255 need it all."""

    name = "fake"
    calls_at_once = 1
    device = Device("Fake", "")

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.compiled: list[str] = []
        self.open: list[FakeNetwork] = []
        self.is_closed = False
        self.before_compiling: Callable[[str], None] = lambda name: None

    @property
    def bytes(self) -> int:
        return len(self.open)

    def compile(self, models: Any, precision: Any) -> Any:
        name = "+".join(model.name for model in models)
        self.before_compiling(name)
        if len(self.open) >= self.room:
            raise DeviceMemoryError(f"no memory for {name}")
        self.compiled.append(name)
        self.open.append(FakeNetwork(self, name))
        return self.open[-1]

    def close(self) -> None:
        self.is_closed = True


class FakeNetwork:
    """Fills pictures with the length of its name."""

    def __init__(self, backend: FakeBackend, name: str) -> None:
        self.backend = backend
        self.name = name
        self.meanwhile: Callable[[], object] = lambda: None

    def run(self, call: Call[Any]) -> Any:
        if not isinstance(call.source, np.ndarray):
            for one, made in zip(call.source, call.out or (), strict=True):
                made.planes[0][:] = self.run(call.with_pixels(one.planes[0]))
            return call.out
        assert self in self.backend.open, "it was closed while it ran"
        self.meanwhile()
        call.on_progress(0.5)
        if call.source.min() == 255 and len(self.backend.open) > 1:
            raise DeviceMemoryError("no memory for a picture")
        call.on_progress(0.5)
        assert self in self.backend.open, "it was closed while it ran"
        return np.full(call.source.shape, len(self.name), call.dtype)

    def close(self) -> None:
        self.backend.open.remove(self)


def model(name: str) -> Model:
    found = obvious.random_model([3, 4, 3], seed=1)
    return Model(name, 3, found.nodes, found.padding)


A, B, C = (model(name) for name in ("a", "bb", "ccc"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    opened = FakeBackend()
    monkeypatch.setattr("waifu2x.backends.engine.engine.open_devices", lambda *_: opened)
    return opened


@pytest.fixture
def engine(fake: FakeBackend) -> Iterator[Engine]:
    with Engine() as opened:
        yield opened


def open_names(backend: FakeBackend) -> list[str]:
    return [network.name for network in backend.open]


def test_networks_are_shared_counted_and_freed_with_the_last(
    engine: Engine, fake: FakeBackend
) -> None:
    first, again, other = (engine.network(models) for models in ([A, B], [A, B], [A]))
    assert fake.compiled == ["a+bb", "a"]
    assert engine.open_networks == {("a", "bb"): 2, ("a",): 1}
    assert engine.bytes == 2
    assert (first.run(Call(PIXELS, np.uint8)) == 4).all()
    first.close()
    first.close()
    assert (again.run(Call(PIXELS, np.uint8)) == 4).all()
    with pytest.raises(BackendError, match="this network is closed"):
        first.run(Call(PIXELS, np.uint8))
    again.close()
    assert engine.open_networks == {("a",): 1}
    assert open_names(fake) == ["a"]
    other.close()
    assert (engine.bytes, engine.open_networks) == (0, {})
    engine.network([A, B]).close()
    assert fake.compiled == ["a+bb", "a", "a+bb"]


def test_threads_compile_once_and_wait_for_nobody_elses(engine: Engine, fake: FakeBackend) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "a":
            begun.set()
            assert go_on.wait(60)

    fake.before_compiling = wait
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(engine.network, [A]) for _ in range(3)]
        assert begun.wait(60)
        # While that is compiled, another is, and runs.
        quick = engine.network([B])
        assert (quick.run(Call(PIXELS, np.uint8)) == 2).all()
        go_on.set()
        leases = [one.result(20) for one in slow]
    assert sorted(fake.compiled) == ["a", "bb"]
    for lease in (*leases, quick):
        lease.close()
    assert not fake.open


def test_what_cannot_be_compiled_leaves_nothing(engine: Engine, fake: FakeBackend) -> None:
    def fail(name: str) -> None:
        raise BackendError("no kernels")

    fake.before_compiling = fail
    for _ in range(2):
        with pytest.raises(BackendError, match="no kernels"):
            engine.network([A])
        assert engine.open_networks == {}
    fake.before_compiling = lambda name: None
    assert (engine.network([A]).run(Call(PIXELS, np.uint8)) == 1).all()


def test_where_memory_is_short_the_least_recently_used_makes_room(
    engine: Engine, fake: FakeBackend
) -> None:
    fake.room = 2
    a, b = engine.network([A]), engine.network([B])
    a.run(Call(PIXELS, np.uint8))
    c = engine.network([C])
    assert open_names(fake) == ["a", "ccc"]
    # It is compiled again when it is called, and takes the place of the other.
    assert (b.run(Call(PIXELS, np.uint8)) == 2).all()
    assert open_names(fake) == ["ccc", "bb"]
    for lease in (a, b, c):
        lease.close()
    assert not fake.open


def test_what_runs_makes_no_room(engine: Engine, fake: FakeBackend) -> None:
    fake.room = 1
    a = engine.network([A])

    def refused() -> None:
        with pytest.raises(DeviceMemoryError, match="no memory for bb"):
            engine.network([B])

    fake.open[0].meanwhile = refused
    assert (a.run(Call(PIXELS, np.uint8)) == 1).all()
    assert engine.open_networks == {("a",): 1}
    b = engine.network([B])
    assert open_names(fake) == ["bb"]
    a.close()
    b.close()


def test_other_networks_make_room_for_a_picture(engine: Engine, fake: FakeBackend) -> None:
    leases = [engine.network([each]) for each in (A, B, C)]
    parts: list[float] = []
    result = leases[1].run(Call(np.full_like(PIXELS, 255), np.uint8, on_progress=parts.append))
    assert (result == 2).all()
    assert parts == [0.5, 0.5]
    assert open_names(fake) == ["bb"]
    for lease in leases:
        assert (lease.run(Call(PIXELS, np.uint8)) > 0).all()
    for lease in leases:
        lease.close()


def test_other_networks_make_room_for_planes(engine: Engine, fake: FakeBackend) -> None:
    leases = [engine.network([each]) for each in (A, B, C)]
    one, made = (PlaneFormat(8, "444").empty(3, 4) for _ in range(2))
    one.planes[0][:] = 255
    parts: list[float] = []
    leases[1].run(Call([one], out=[made], on_progress=parts.append))
    assert (made.planes[0] == 2).all()
    assert parts == [0.5, 0.5]
    assert open_names(fake) == ["bb"]
    for lease in leases:
        lease.close()
    with pytest.raises(BackendError, match="this network is closed"):
        leases[1].run(Call([one], out=[made]))


def test_a_closed_engine_says_so(engine: Engine, fake: FakeBackend) -> None:
    lease = engine.network([A])
    engine.close()
    assert fake.is_closed
    assert not fake.open
    for work in (partial(engine.network, [A]), partial(lease.run, Call(PIXELS, np.uint8))):
        with pytest.raises(BackendError, match="this engine is closed; open a new one"):
            work()
    with pytest.raises(BackendError, match="this engine is closed; open a new one"):
        Upscaler(width=9, model="vgg_7", engine=engine)
    lease.close()


def test_many_threads_take_and_give_back(engine: Engine, fake: FakeBackend) -> None:
    """Each gets what it asks for, since each alone has room: also where all others run."""
    fake.room = 2

    def work(number: int) -> None:
        chain = [[A], [B], [C], [A, B]][number % 4]
        lease = engine.network(chain)
        try:
            length = len("+".join(each.name for each in chain))
            assert (lease.run(Call(PIXELS, np.uint8)) == length).all()
        finally:
            lease.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert (fake.open, engine.open_networks) == ([], {})


def test_who_needs_memory_waits_for_those_that_run(engine: Engine, fake: FakeBackend) -> None:
    fake.room = 1
    first = engine.network([A])
    begun, go_on = threading.Event(), threading.Event()

    def meanwhile() -> None:
        begun.set()
        assert go_on.wait(60)

    def compiling(name: str) -> None:
        go_on.set()  # memory is found to be short while the other still runs

    fake.open[0].meanwhile = meanwhile
    fake.before_compiling = compiling
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(first.run, Call(PIXELS, np.uint8))
        assert begun.wait(60)
        second = pool.submit(engine.network, [B]).result(20)
        assert (running.result(20) == 1).all()
    assert open_names(fake) == ["bb"]
    first.close()
    second.close()


# On what is here.


def test_requests_on_one_engine_make_what_each_makes_alone(backend: Backend) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 30, 3), np.uint8)
    requests: list[dict[str, Any]] = [
        {"scale": 2},
        {"scale": 2, "noise": 1},
        {"scale": 1, "noise": 1},
        {"width": 47},
    ]
    expected = []
    for request in requests:
        with Upscaler(model="vgg_7", backend=backend.name, **request) as alone:
            expected.append(alone(pixels))
    with Engine(backend.name) as engine:
        for _ in range(2):
            for request, result in zip(requests, expected, strict=True):
                with Upscaler(model="vgg_7", engine=engine, **request) as upscaler:
                    np.testing.assert_array_equal(upscaler(pixels), result)
        assert engine.open_networks == {}


def test_bytes_after_requests_are_those_after_the_first(backend: Backend) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 30, 3), np.uint8)
    with Engine(backend.name) as engine:
        counted = []
        for size in (1, 3, 1):
            with Upscaler(2, model="vgg_7", engine=engine) as upscaler:
                upscaler(np.tile(pixels, (size, size, 1)))
                open_bytes = engine.bytes
            counted.append(engine.bytes)
            assert open_bytes > engine.bytes or backend.name == "numpy"
        assert counted[0] == counted[1] == counted[2]
    assert engine.bytes == 0


def test_a_device_with_room_for_one_network_runs_several(opencl_device: Any) -> None:
    from waifu2x.backends.gpu.backend import GpuBackend
    from waifu2x.backends.gpu.device.runtime import OutOfMemoryError
    from waifu2x.backends.gpu.fp32.executor import Fp32Executor
    from waifu2x.backends.opencl.runtime import OpenClBuffer, OpenClRuntime

    class TightRuntime(OpenClRuntime):
        total = 1 << 40

        def allocate(self, size: int, **options: Any) -> OpenClBuffer:
            if self.allocated + size > self.total:
                raise OutOfMemoryError("refused")
            return super().allocate(size, **options)

    runtime = TightRuntime(opencl_device)
    backend = GpuBackend("opencl", runtime, {"auto": [partial(Fp32Executor, runtime)]})
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    models = [obvious.random_model([3, 192, 192, 3], seed=seed) for seed in (1, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waifu2x.backends.engine.engine.open_devices", lambda *_: backend)
        engine = Engine()
    expected: list[NDArray[Any]] = []
    for each in models:
        network = engine.network([each])
        runtime.total = max(runtime.allocated, 1)
        weights = runtime.allocated
        runtime.total = 1 << 40
        expected.append(network.run(Call(pixels, np.uint8)))
        network.close()
    assert runtime.allocated == 0
    runtime.total = weights * 3 // 2
    leases = [engine.network([each]) for each in models]
    for _ in range(2):
        for lease, wanted in zip(leases, expected, strict=True):
            np.testing.assert_array_equal(lease.run(Call(pixels, np.uint8)), wanted)
    runtime.total = weights // 2
    with pytest.raises(DeviceMemoryError, match="no memory for the weights of"):
        engine.network([obvious.random_model([3, 192, 192, 3], seed=3)])
    engine.close()
    assert runtime.allocated == 0


def test_an_engine_has_its_own_devices_and_precision() -> None:
    with Engine("numpy") as engine:
        for arguments in ({"backend": "numpy"}, {"device": 0}, {"precision": "fp32"}):
            with pytest.raises(ValueError, match=f"Expected no {next(iter(arguments))}: the engi"):
                Upscaler(2, model="vgg_7", engine=engine, **arguments)
        with pytest.raises(ValueError, match="Expected no backend or device or precision"):
            Upscaler(2, engine=engine, backend="cpu", device=1, precision="fp32")
        upscaler = Upscaler(2, model="vgg_7", engine=engine)
        upscaler.close()
        upscaler.close()
        assert Upscaler(2, model="vgg_7", engine=engine)(PIXELS).shape == (10, 14, 3)


# Models are read once.


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Returns the files of models that are read."""
    found: list[Path] = []
    real = waifu2x_json.read_model

    def counted(path: Path) -> Model:
        found.append(path)
        return real(path)

    monkeypatch.setattr(waifu2x_json, "read_model", counted)
    return found


def test_what_is_read_before_a_picture_chooses_is_not_read_again(
    tmp_path: Path, read: list[Path]
) -> None:
    identity_models(tmp_path / "identity")
    with Upscaler(2, "auto", model=str(tmp_path / "identity"), backend="numpy") as upscaler:
        upscaler(np.zeros((8, 8, 3), np.uint8))
    assert len(read) == 1


def test_models_are_read_once_for_all_requests(tmp_path: Path, read: list[Path]) -> None:
    identity_models(tmp_path / "identity")
    name = str(tmp_path / "identity")
    sprite = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    with Engine("numpy") as engine:
        with Upscaler(2, 0, model=name, engine=engine) as first:
            first(sprite)
            files = len(read)
            assert files == len(set(read))
            with Upscaler(2, 0, model=name, engine=engine) as second:
                second(sprite)
                assert set(engine.open_networks.values()) == {2}
        assert len(read) == files
        gc.collect()
        # They were freed: so they are read again, and so are rewritten files.
        first = Upscaler(2, 0, model=name, engine=engine)
        read.clear()
        path = model_set.find(name).files[0, 1]
        path.write_bytes(path.read_bytes() + b"\n")
        with Upscaler(2, 0, model=name, engine=engine):
            assert read == [path]
        first.close()


def test_threads_read_a_model_once(tmp_path: Path, read: list[Path]) -> None:
    identity_models(tmp_path / "identity")
    meeting = threading.Barrier(4)

    def models() -> list[Model]:
        found = model_set.find(str(tmp_path / "identity"))
        meeting.wait(60)
        return found.models(2, None)

    with ThreadPoolExecutor(4) as pool:
        found = [one.result(20) for one in [pool.submit(models) for _ in range(4)]]
    assert len(read) == 1
    assert all(each == found[0] for each in found)


def test_a_damaged_model_is_told_each_time(tmp_path: Path) -> None:
    (tmp_path / "scale2.0x_model.json").write_text("[")
    for _ in range(2):
        with pytest.raises(ModelError, match=r"scale2.0x_model.json: "):
            model_set.find(str(tmp_path)).models(2, None)
