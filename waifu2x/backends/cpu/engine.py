"""Models compiled for the processor, and their work cut into strips for its cores."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from waifu2x.backends import Device, LayerTime, Precision, Progress
from waifu2x.backends.chain import Chain, Window
from waifu2x.backends.cpu import isa, layout
from waifu2x.backends.cpu.compiled import Compiled
from waifu2x.backends.cpu.layout import PIXEL_CODES, WINDOW
from waifu2x.backends.cpu.pack import PackedModel
from waifu2x.errors import BackendError
from waifu2x.model import Model
from waifu2x.tiling import Box

STRIP_WIDTH = 256
STRIP_HEIGHT = 64
STRIPS_PER_CORE = 8
_run_strip = Compiled("strip", "run_strip")


class CpuBackend:
    """Runs models on all cores."""

    name = "cpu"

    def __init__(self) -> None:
        self.device = processor()
        self._workers = Workers(isa.core_count())

    def compile(self, models: Sequence[Model], precision: Precision) -> Chain[NDArray[Any]]:
        """See Backend. `auto` is bf16 where there are tiles for it, else fp32."""
        bfloats = isa.VECTOR.tiles and precision in ("auto", "bf16")
        if precision not in ("auto", "fp32") and not bfloats:
            raise BackendError(
                f"backend cpu has no precision {precision} on this processor:"
                " use auto or fp32, or another backend"
            )
        packed: dict[int, CpuStage] = {}
        for model in models:
            if id(model) not in packed:
                packed[id(model)] = CpuStage(model, bfloats, self._workers)
        return Chain([packed[id(model)] for model in models])

    def bench(
        self, model: Model, precision: Precision, pixels: NDArray[Any]
    ) -> tuple[float, list[LayerTime]]:
        """Seconds for one picture, the best of three, and how they divide among the layers."""
        from waifu2x.backends.cpu import peak

        chain = self.compile([model], precision)
        stage = chain.stages[0]
        assert isinstance(stage, CpuStage)
        height, width = pixels.shape[0] * model.scale, pixels.shape[1] * model.scale
        runs = []
        for _ in range(4):  # the first one warms up
            stage.ticks[:] = 0
            start = time.perf_counter()
            chain(pixels, Box(0, 0, height, width), pixels.dtype, lambda part: None)
            runs.append((time.perf_counter() - start, stage.ticks / max(1, stage.ticks.sum())))
        seconds, shares = min(runs[1:], key=lambda run: run[0])
        peaks = {False: peak.vector_peak(self._workers.cores)}
        if isa.VECTOR.tiles:
            peaks[True] = peak.tile_peak(self._workers.cores)
        layers = [LayerTime("pixels", seconds * shares[0], 0, peaks[False])]
        for layer, share, on_tiles in zip(
            model.convolutions, shares[1:], stage.on_tiles, strict=True
        ):
            name = f"{layer.in_planes} > {layer.out_planes}{' bf16' if on_tiles else ''}"
            work = layer.weight.size * height * width
            layers.append(LayerTime(name, seconds * share, work, peaks[on_tiles]))
        return seconds, layers

    def close(self) -> None:
        """Ends the threads."""
        self._workers.close()


def processor() -> Device:
    """This machine's."""
    cores = isa.core_count()
    return Device(
        isa.processor_name(),
        f"{cores} core{'s' if cores > 1 else ''}, {isa.VECTOR.name},"
        f" {isa.l2_bytes() // 1024} KiB L2",
    )


class Workers:
    """The threads, started once, and their scratch memory."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._pool = ThreadPoolExecutor(cores, thread_name_prefix="waifu2x-cpu")
        self._process = os.getpid()
        self._spare: queue.SimpleQueue[NDArray[np.float32]] = queue.SimpleQueue()

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The threads; a forked process, which inherits none, gets its own."""
        if self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self.cores, thread_name_prefix="waifu2x-cpu")
            self._process = os.getpid()
        return self._pool

    def borrow(self, floats: int) -> NDArray[np.float32]:
        """At least that many floats of uninitialised scratch memory, on a cache line."""
        try:
            memory = self._spare.get_nowait()
        except queue.Empty:
            memory = np.empty(0, np.float32)
        if memory.size < floats:
            memory = layout.aligned(floats)
        return memory

    def give_back(self, memory: NDArray[np.float32]) -> None:
        """For the next strip."""
        self._spare.put(memory)

    def close(self) -> None:
        """Ends the threads, after the strip that each is busy with."""
        self._pool.shutdown(cancel_futures=True)


class CpuStage:
    """One model, packed for the processor."""

    def __init__(self, model: Model, bfloats: bool, workers: Workers) -> None:
        self.scale = model.scale
        self.cost = float(model.multiply_adds)
        self._packed = PackedModel(model, bfloats)
        self._workers = workers
        self.on_tiles = self._packed.on_tiles
        self._lock = threading.Lock()
        self.ticks = np.zeros(len(model.convolutions) + 1, np.int64)
        """Time spent on each layer so far, the picture's conversion first, by all threads."""

    def reads(self, box: Box) -> Box:
        """The pixels under the first layer's cells."""
        rows = self._packed.rows(0, box.top, box.bottom)
        columns = self._packed.columns(0, box.left, box.right)
        top, left = rows[0] // self.scale, columns[0] // self.scale
        bottom, right = -(-rows[1] // self.scale), -(-columns[1] // self.scale)
        return Box(top, left, bottom - top, right - left)

    def __call__(
        self, window: Window[NDArray[Any]], box: Box, out_dtype: DTypeLike, on_progress: Progress
    ) -> NDArray[Any]:
        """See Stage."""
        result = np.empty((box.height, box.width, self._packed.out_planes), out_dtype)
        whole = Window(result, box.top, box.left, box.bottom, box.right)
        stop = np.zeros(1, np.int64)
        strips = {
            self._workers.pool.submit(self._run, strip, window, whole, stop): strip
            for strip in cut(box, self._workers.cores)
        }
        try:
            for future in as_completed(strips):
                future.result()
                on_progress(strips[future].height * strips[future].width / (box.height * box.width))
        except BaseException:
            stop[0] = 1
            for future in strips:
                future.cancel()
            raise
        return result

    def _run(
        self,
        strip: Box,
        source: Window[NDArray[Any]],
        target: Window[NDArray[Any]],
        stop: NDArray[np.int64],
    ) -> None:
        # The windows stay arguments here, so that no pixels are freed while compiled code runs.
        windows = np.array([_record(source, self.scale), _record(target, 1)], WINDOW)
        layers, floats = self._packed.layout(strip)
        scratch = self._workers.borrow(floats)
        bounds = np.array([strip.top, strip.bottom, strip.left, strip.right], np.int64)
        try:
            _run_strip(
                layers,
                len(layers),
                self._packed.weights,
                self._packed.biases,
                scratch,
                windows,
                bounds,
                stop,
            )
        finally:
            self._workers.give_back(scratch)
        with self._lock:
            self.ticks += layers["ticks"]


def cut(box: Box, cores: int) -> list[Box]:
    """Strips of a box: wide enough to be worth it, enough of them to keep every core busy."""
    across = max(1, round(box.width / STRIP_WIDTH))
    wanted = -(-STRIPS_PER_CORE * cores // across)
    down = max(1, min(wanted, box.height // STRIP_HEIGHT))
    strips = []
    for top, bottom in _parts(box.top, box.bottom, down):
        for left, right in _parts(box.left, box.right, across):
            strips.append(Box(top, left, bottom - top, right - left))
    return strips


def _parts(start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """A range cut into about `count` parts, at whole cells of the picture."""
    cell = layout.CELL
    inner = {round((start + (stop - start) * i / count) / cell) * cell for i in range(1, count)}
    cuts = [start, *sorted(c for c in inner if start < c < stop), stop]
    return list(pairwise(cuts))


def _record(window: Window[NDArray[Any]], enlarge: int) -> tuple[int, ...]:
    """What compiled code reads of a window."""
    _, columns, planes = window.pixels.shape
    assert window.pixels.flags.c_contiguous
    return (
        window.pixels.ctypes.data,
        PIXEL_CODES[window.pixels.dtype],
        window.top,
        window.left,
        columns,
        planes,
        window.height,
        window.width,
        enlarge,
    )
