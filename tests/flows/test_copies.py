"""Pixels are not copied on the host between a decoder's memory and a device's, nor back.

A plain picture, opaque RGB of a PNG or a JPEG, is decoded into shared memory; the network is called
with that memory, and writes where the encoder reads.
"""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from tests.helpers.contents import decode, encode, identity_models
from tests.helpers.networks import use_network
from tests.helpers.outcomes import run
from waifu2x.api import Upscaler
from waifu2x.backends.call import Call
from waifu2x.flows.batch import codec, worker
from waifu2x.flows.batch.codec import Codec, CodecTask, Computed, Make, Report
from waifu2x.flows.batch.plan import plan
from waifu2x.flows.fleet.shared_memory import SharedPool
from waifu2x.flows.jobs import InFlight, Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.formats.png import write as png_write
from waifu2x.formats.table import Quality
from waifu2x.formats.write import FileSink
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Timed

PNG = Output("png", Quality(), "fail")
SIZE = 500, 700
LARGE = 1000, 1400


@pytest.fixture
def upscaler(tmp_path: Path) -> Upscaler:
    identity_models(tmp_path / "identity")
    return Upscaler(2, model=str(tmp_path / "identity"), backend="numpy")


def smooth(*shape: int) -> NDArray[np.uint8]:
    """A picture whose file is small."""
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    return np.stack([y // 5 % 256, x // 6 % 256, (x + y) // 9 % 256], axis=-1).astype(np.uint8)


class Recorder:
    """A driver that does what networks do, and a pool that knows all arrays that it makes."""

    def __init__(self) -> None:
        self.pool = SharedPool()
        self.made: list[NDArray[Any]] = []
        self.offered: list[codec.Offered] = []
        self.reports: list[Report] = []
        self.holds = self.pool.holds
        self.codec = Codec(self.tell, self)  # type: ignore[arg-type]

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        self.made.append(self.pool.array(shape, dtype))
        return self.made[-1]

    def tell(self, report: Report) -> None:
        self.reports.append(report)
        if isinstance(report, codec.Offered):
            self.offered.append(report)
            double(report.pixels, report.out)
            self.codec.deliver(Computed(report.number, None, False))


def double(pixels: NDArray[Any], out: NDArray[Any]) -> None:
    """Repeats pixels without memory of its own."""
    for y in range(2):
        for x in range(2):
            out[..., y::2, x::2, :] = pixels


def is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays are the same memory."""
    same: bool = one.__array_interface__["data"] == other.__array_interface__["data"]
    return same and one.shape == other.shape and one.strides == other.strides


@pytest.mark.parametrize("source", ["png", "jpg"])
@pytest.mark.parametrize("target", ["png", "jpg"])
def test_a_codec_worker_copies_no_pixels(
    source: str, target: str, tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"in.{source}"
    path.write_bytes(encode(Picture(smooth(*SIZE)), source))
    expected = decode(path.read_bytes()).pixels
    encoded: list[NDArray[Any]] = []
    add = FileSink.add

    def recorded(sink: FileSink, timed: Timed) -> None:
        encoded.append(timed.picture.pixels)
        add(sink, timed)

    monkeypatch.setattr(FileSink, "add", recorded)
    link = Recorder()
    enlarger = upscaler.enlarger
    output = Output(target, Quality(), "fail")
    task = CodecTask(enlarger.facts, enlarger.request, enlarger.noise, None, output, 10**8, 1)
    link.codec.deliver(Make(Job(path, tmp_path / f"out.{target}"), None, 1 << 40, task))
    link.codec.deliver(None)
    link.codec.run()
    ended = link.reports[-1]
    assert isinstance(ended, Outcome)
    assert ended.made is not None, ended.error
    # One array was decoded into, one was computed into, and no other one was made for a copy.
    (call,), (result,) = link.offered, encoded
    decoded, computed = link.made
    assert is_same(call.pixels, decoded)
    np.testing.assert_array_equal(call.pixels, expected)
    assert is_same(call.out, computed)
    assert is_same(result, computed)


def test_a_codec_worker_has_no_memory_for_copies(
    tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PNG to PNG, whose codecs are ours: whatever is not shared are bands of rows."""
    monkeypatch.setattr(png_write, "core_count", lambda: 1)
    path = tmp_path / "in.png"
    path.write_bytes(encode(Picture(smooth(*LARGE)), "png"))
    link = Recorder()
    enlarger = upscaler.enlarger
    task = CodecTask(enlarger.facts, enlarger.request, enlarger.noise, None, PNG, 10**8, 1)
    link.codec.deliver(Make(Job(path, tmp_path / "out.png"), None, 1 << 40, task))
    link.codec.deliver(None)
    tracemalloc.start()
    link.codec.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decode((tmp_path / "out.png").read_bytes()).pixels.shape == (
        2 * LARGE[0],
        2 * LARGE[1],
        3,
    )
    # Less than the smaller of the two pictures.
    assert peak < LARGE[0] * LARGE[1] * 3


@pytest.mark.parametrize(
    "in_flight", [InFlight(4, 2), InFlight(2, 1)], ids=["processes", "threads"]
)
def test_the_driver_copies_no_pixels(
    in_flight: InFlight, tmp_path: Path, upscaler: Upscaler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks are called with the very arrays that workers have offered."""
    offered: list[tuple[int, int]] = []
    called: list[tuple[int, int]] = []
    lock = threading.Lock()

    def places(*arrays: NDArray[Any]) -> tuple[int, int]:
        one, other = (array.__array_interface__["data"][0] for array in arrays)
        return one, other

    class Network:
        def run(self, call: Call[NDArray[Any]]) -> Any:
            assert call.out is not None
            with lock:
                called.append(places(call.source, call.out))
                assert call.source.shape == (*SIZE, 3)
            double(call.source, call.out)
            return call.out

    def noted(whole: Any) -> Any:
        def tell(report: Report) -> None:
            if isinstance(report, codec.Offered):
                with lock:
                    offered.append(places(report.pixels, report.out))
            whole(report)

        return tell

    for kind in (worker.CodecProcess, worker.CodecThread):

        def start(self: Any, tell: Any, begin: Any = kind.start) -> None:
            begin(self, noted(tell))

        monkeypatch.setattr(kind, "start", start)
    use_network(upscaler, Network(), monkeypatch)
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.png").write_bytes(encode(Picture(smooth(*SIZE)), "png"))
    jobs = list(plan(folder, tmp_path / "out", "png", False).jobs)
    is_process = in_flight.pictures > 3
    if is_process:
        tracemalloc.start()
    outcomes = list(run(jobs, upscaler, PNG, in_flight=in_flight))
    if is_process:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < SIZE[0] * SIZE[1] * 3  # less than a picture
    assert [outcome.status for outcome in outcomes] == ["done"] * 4
    assert len(called) == 4
    assert sorted(called) == sorted(offered)
    whole = smooth(*SIZE).repeat(2, 0).repeat(2, 1)
    for path in (tmp_path / "out").iterdir():
        np.testing.assert_array_equal(decode(path.read_bytes()).pixels, whole)
