"""Devices that stop working: what goes on with which backend, and what is said."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from tests.conftest import need
from waifu2x import backends
from waifu2x.backends import Device, Entry, Pin, open_backend
from waifu2x.backends.call import Call
from waifu2x.backends.engine.pool import DevicePool, open_devices
from waifu2x.cli import cli
from waifu2x.errors import BackendError, DeviceError, DeviceMemoryError
from waifu2x.imaging.planar import PlaneFormat

PIXELS = np.full((4, 5, 3), 7, np.uint8)


class Faulty:
    """A backend that works for `pictures` pictures, then not any more."""

    def __init__(self, name: str, pictures: int) -> None:
        self.name = name
        self.calls_at_once = 3 if name == "first" else 1
        self.device = Device(f"Device of {name}", "1 GiB", is_gpu=True)
        self.left = pictures
        self.tries = 0
        self.closed = False
        self.open_networks = 0

    def compile(self, models: Any, precision: Any) -> Any:
        if precision == "fp16" and self.name != "first":
            raise BackendError(f"backend {self.name} has no precision fp16")
        if self.left < 0:
            raise DeviceError(f"{self.device.name}: stopped while compiling")
        self.open_networks += 1
        return FaultyNetwork(self)

    def pin(self, memory: NDArray[Any]) -> Pin:
        return Pin()

    def compute(self, call: Call[NDArray[Any]]) -> NDArray[Any]:
        if self.closed:
            raise BackendError("closed")
        self.tries += 1
        call.on_progress(0.5)
        if self.left <= 0:
            raise DeviceError(f"{self.device.name}: stopped")
        self.left -= 1
        call.on_progress(0.5)
        result = call.source.repeat(2, -3).repeat(2, -2).astype(call.dtype)
        if call.out is None:
            return result
        np.copyto(call.out, result)
        return call.out

    def close(self) -> None:
        self.closed = True


class FaultyNetwork:
    """A network of such a backend."""

    def __init__(self, backend: Faulty) -> None:
        self.backend = backend

    def run(self, call: Call[Any]) -> Any:
        if isinstance(call.source, np.ndarray):
            return self.backend.compute(call)
        for one, made in zip(call.source, call.out or (), strict=True):
            y, larger = (each.planes[0][..., np.newaxis] for each in (one, made))
            self.backend.compute(call.with_pixels(y, larger))
        return call.out

    def close(self) -> None:
        self.backend.open_networks -= 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Faulty]]:
    """Replaces all backends by ones of these names, each working for that number of pictures."""

    def put(**pictures: int) -> list[Faulty]:
        made = {name: Faulty(name, count) for name, count in pictures.items()}

        class Module:
            def __init__(self, name: str) -> None:
                self.name = name

            def create(self, device: int) -> Any:
                return made[self.name]

            def devices(self) -> list[Device]:
                return [made[self.name].device]

        monkeypatch.setattr(backends, "_BACKENDS", tuple(Entry(n, n, (), "") for n in made))
        monkeypatch.setattr(backends, "BACKEND_NAMES", tuple(made))
        monkeypatch.setattr(backends, "_load", lambda entry: Module(entry.name))
        return list(made.values())

    return put


def test_the_next_backend_computes_the_picture_again(
    opened: Callable[..., list[Faulty]], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = opened(first=1, second=1, third=9)
    backend = open_devices("auto", [0], print)
    network = backend.compile([], "auto")
    expected = PIXELS.repeat(2, 0).repeat(2, 1)
    parts: list[float] = []
    for _ in range(4):
        result = network.run(Call(PIXELS, np.uint8, on_progress=parts.append))
        np.testing.assert_array_equal(result, expected)
    assert sum(parts) == pytest.approx(4.0)
    assert (first.tries, second.tries, third.tries) == (2, 2, 2)
    assert (backend.name, backend.device) == ("third", third.device)
    assert (first.closed, second.closed, third.closed) == (True, True, False)
    result = np.zeros_like(expected)
    assert network.run(Call(PIXELS, np.uint8, out=result)) is result
    np.testing.assert_array_equal(result, expected)
    network.close()
    network.close()
    assert third.open_networks == 0
    with pytest.raises(BackendError, match="this network is closed"):
        network.run(Call(PIXELS, np.uint8))
    assert [record.message for record in caplog.records] == [
        "Device of first: stopped: going on with backend second",
        "Device of second: stopped: going on with backend third",
    ]
    backend.close()
    assert third.closed


def test_the_next_backend_computes_planes_again(opened: Callable[..., list[Faulty]]) -> None:
    first, second = opened(first=1, second=9)
    with closing(open_devices("auto", [0], print)) as backend:
        network = backend.compile([], "auto")
        kind = PlaneFormat(8, "444")
        one, parts = kind.empty(3, 4), list[float]()
        one.planes[0][:] = np.arange(12).reshape(3, 4)
        for _ in range(2):
            made = kind.empty(6, 8)
            network.run(Call([one], out=[made], on_progress=parts.append))
            np.testing.assert_array_equal(made.planes[0], one.planes[0].repeat(2, 0).repeat(2, 1))
        assert (first.tries, second.tries, sum(parts)) == (2, 1, 2)


def test_a_backend_that_is_short_of_memory_is_not_left(
    opened: Callable[..., list[Faulty]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are not in use may make room there, once this one's user knows."""
    _, second, third = opened(first=0, second=9, third=9)
    network = open_devices("auto", [0], print).compile([], "auto")

    def compile_(*arguments: Any) -> None:
        raise DeviceMemoryError("no memory for the weights")

    with monkeypatch.context() as patch:
        patch.setattr(second, "compile", compile_)
        with pytest.raises(DeviceMemoryError, match="no memory for the weights"):
            network.run(Call(PIXELS, np.uint8))
    assert network.run(Call(PIXELS, np.uint8)).shape == (8, 10, 3)
    assert (second.tries, third.tries) == (1, 0)


def test_threads_that_waited_for_a_device_go_on_together(
    opened: Callable[..., list[Faulty]], caplog: pytest.LogCaptureFixture
) -> None:
    opened(first=3, second=99)
    network = open_devices("auto", [0], print).compile([], "auto")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: network.run(Call(PIXELS, np.uint8)), range(30)))
    assert all(result.shape == (8, 10, 3) for result in results)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("pictures", "precision", "sentence"),
    [
        ({"first": 0, "second": 0}, "auto", "Device of second: stopped"),
        ({"first": 0, "second": 9}, "fp16", "Device of first: stopped"),
    ],
)
def test_where_no_backend_is_left_the_error_is_the_last_devices(
    opened: Callable[..., list[Faulty]], pictures: Any, precision: Any, sentence: str
) -> None:
    opened(**pictures)
    network = open_devices("auto", [0], print).compile([], precision)
    with pytest.raises(BackendError, match=sentence):
        network.run(Call(PIXELS, np.uint8))


def test_a_device_that_cannot_even_be_compiled_for_is_passed_over(
    opened: Callable[..., list[Faulty]],
) -> None:
    opened(first=-1, second=1)
    backend = open_devices("auto", [0], print)
    assert backend.compile([], "auto").run(Call(PIXELS, np.uint8)).shape == (8, 10, 3)
    assert (backend.name, backend.calls_at_once) == ("second", 1)


def test_a_backend_that_was_asked_for_is_not_left(opened: Callable[..., list[Faulty]]) -> None:
    _, second = opened(first=0, second=9)
    network = open_devices("first", [0], print).compile([], "auto")
    for _ in range(2):
        with pytest.raises(DeviceError, match="Device of first: stopped"):
            network.run(Call(PIXELS, np.uint8))
    assert not second.tries


def test_auto_passes_over_a_device_that_cannot_be_opened(
    opened: Callable[..., list[Faulty]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = opened(first=1, second=1)
    real = backends._load

    def load(entry: Any) -> Any:
        module = real(entry)
        if entry.name == "first":

            def create(device: int) -> Any:
                raise DeviceError("Device of first: cannot be opened")

            module.create = create
        return module

    monkeypatch.setattr(backends, "_load", load)
    told: list[str] = []
    chosen: Any = open_backend("auto", on_skip=told.append)
    assert chosen is second
    assert told == ["Device of first: cannot be opened; use another backend"]
    with pytest.raises(DeviceError):
        open_backend("first")


def test_the_other_devices_of_a_pool_go_on(caplog: pytest.LogCaptureFixture) -> None:
    made: list[Any] = [Faulty("first", 1), Faulty("second", 3), Faulty("third", 2)]
    network = DevicePool(made).compile([], "auto")
    for _ in range(6):
        assert network.run(Call(PIXELS, np.uint8)).shape == (8, 10, 3)
    assert all(
        record.message.endswith("going on with the other devices") for record in caplog.records
    )
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            network.run(Call(PIXELS, np.uint8))
        except DeviceError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(failed) == 3
    assert len(caplog.records) == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with twelve small pictures, no two of one size: each is a call of its own."""
    (tmp_path / "in").mkdir()
    for number in range(12):
        pixels = np.full((4 + number, 5, 3), 7, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "in" / f"{number}.png")
    return tmp_path


def test_a_batch_goes_on_with_the_next_backend(
    opened: Callable[..., list[Faulty]], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    opened(cuda=2, cpu=99)
    done = CliRunner().invoke(cli, ["batch", "-v", str(folder / "in"), str(folder / "out")])
    assert done.exit_code == 0, done.output
    assert "12 done" in done.stderr
    assert len(list((folder / "out").iterdir())) == 12
    assert [record.message for record in caplog.records] == [
        "Device of cuda: stopped: going on with backend cpu"
    ]


def test_a_batch_on_a_backend_that_was_asked_for_ends_with_a_list(
    opened: Callable[..., list[Faulty]], folder: Path
) -> None:
    device, other = opened(cuda=2, cpu=99)
    arguments = ["batch", str(folder / "in"), str(folder / "out"), "--backend", "cuda"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    assert "2 done, 0 skipped, 10 failed" in done.stderr
    listed = done.stderr[done.stderr.index("10 failed") :].splitlines()[1:]
    stopped = [line for line in listed if "Device of cuda: stopped" in line]
    rest = [line for line in listed if "not begun, since the device had stopped" in line]
    assert len(stopped) + len(rest) == 10
    # Up to four pictures were under way.
    assert 1 <= len(stopped) <= 4
    assert device.tries == 2 + len(stopped)
    assert not other.tries
    assert len(list((folder / "out").iterdir())) == 2


def test_one_picture_goes_on_with_the_next_backend(
    opened: Callable[..., list[Faulty]], folder: Path
) -> None:
    opened(cuda=0, cpu=9)
    source, target = str(folder / "in/0.png"), str(folder / "0.png")
    assert CliRunner().invoke(cli, ["upscale", source, target]).exit_code == 0
    opened(cuda=0, cpu=9)
    again = ["upscale", "--overwrite", source, target, "--backend", "cuda"]
    done = CliRunner().invoke(cli, again)
    assert done.exit_code == 1
    assert done.stderr == "Error: Device of cuda: stopped; use another backend\n"


BROKEN = """
import numpy as np
from waifu2x.api import Upscaler

picture = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
with Upscaler(2, model="vgg_7", precision="fp32") as upscaler:
    assert upscaler.engine.backend.name == "cuda"
    first = upscaler(picture).astype(int)
    runtime = upscaler.engine.backend.current.runtime
    macros = {"VECTOR": "float4", "WIDTH": 4, "GROUP": 1, "CHAINS": 2, "REPEATS": 8}
    nowhere = runtime.allocate(16)
    nowhere.address = 64
    kernel = runtime.build("peak", macros).kernel("peak", 1)
    runtime.launch(kernel, (1, 1, 1), nowhere, 1.0)
    second = upscaler(picture).astype(int)
    assert abs(first - second).max() <= 1
    assert upscaler.engine.backend.name != "cuda"
    nowhere.release()
print("done")
"""


def test_a_real_device_that_breaks_is_left_in_one_line() -> None:
    """In a process of its own: nothing can be computed with CUDA in this one after that."""
    need("cuda")
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    (line,) = lines
    assert "its driver stopped the work" in line
    assert "going on with backend" in line
