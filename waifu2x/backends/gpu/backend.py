"""A Backend on any Runtime: which roads it has, and how long their layers take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import LayerTime, Precision
from waifu2x.backends.gpu import tuning
from waifu2x.backends.gpu.network import GpuNetwork, GpuStage, Workspace
from waifu2x.backends.gpu.road import Road
from waifu2x.backends.gpu.runtime import OutOfMemoryError, Runtime
from waifu2x.errors import BackendError
from waifu2x.model import Model
from waifu2x.tiling import Box

_BENCH_RUNS = 5


class GpuBackend:
    """Runs models on one device."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        roads: Mapping[Precision, Callable[..., Road]],
    ) -> None:
        """`roads` makes the road of each precision that there is, `auto` among them.

        From a Runtime, a Model and a `tuning.Choose`, which may be left out.
        """
        self.name = name
        self.device = runtime.device
        self._runtime = runtime
        self._roads = roads
        self._workspace = Workspace(runtime)
        self._open: list[Road] = []

    def compile(self, models: Sequence[Model], precision: Precision) -> GpuNetwork:
        """See Backend."""
        self._maker(precision)
        stages: dict[int, GpuStage] = {}
        with self._workspace.lock:
            for model in models:
                if id(model) not in stages:
                    stages[id(model)] = self._stage(model, precision)
        return GpuNetwork([stages[id(model)] for model in models], self._workspace)

    def bench(
        self, model: Model, precision: Precision, pixels: NDArray[Any]
    ) -> tuple[float, list[LayerTime]]:
        """Seconds for one picture by the device's clock, a median, and those of its layers."""
        network = self.compile([model], precision)
        road = network.stages[0].road
        runs = [self._layer_seconds(network, pixels) for _ in range(_BENCH_RUNS + 1)]
        # The first one warms up.
        seconds = statistics.median(float(run.sum()) for run in runs[1:])
        medians = np.median(runs[1:], axis=0)
        peak = road.peak()
        height, width = pixels.shape[0] * model.scale, pixels.shape[1] * model.scale
        times = [
            LayerTime(
                f"{layer.in_planes} > {layer.out_planes}",
                float(time),
                layer.weight.size * height * width,
                peak,
            )
            for layer, time in zip(model.convolutions, medians, strict=True)
        ]
        return seconds, times

    def tune(
        self, model: Model, precision: Precision, pixels: NDArray[Any]
    ) -> Iterator[tuning.Trial]:
        """Measures how each layer is best cut, on a picture; later roads do as was found best.

        Raises BackendError for a precision that it lacks.
        """
        make = self._maker(precision)

        def measure(road: Road) -> list[float]:
            network = GpuNetwork([GpuStage(model, road, self._workspace)], self._workspace)
            return list(self._layer_seconds(network, pixels))

        kept = tuning.Kept(self._runtime.device, model)
        yield from tuning.tune(
            kept, lambda choose: make(self._runtime, model, choose), measure, model
        )

    def _layer_seconds(self, network: GpuNetwork, pixels: NDArray[Any]) -> NDArray[np.float64]:
        """Of one picture through a network of one model, by the device's clock."""
        (stage,) = network.stages
        height, width = pixels.shape[0] * stage.scale, pixels.shape[1] * stage.scale
        with self._runtime.timed() as launches:
            network(pixels, Box(0, 0, height, width), pixels.dtype, lambda part: None)
        layers = np.zeros(stage.layers)
        for kernel, seconds in launches:
            layers[stage.road.layer(kernel)] += seconds
        return layers

    def close(self) -> None:
        """See Backend. Waits for a picture that is being computed."""
        with self._workspace.lock:
            self._workspace.release_scratch()
            while self._open:
                self._open.pop().close()
            self._runtime.close()

    def _maker(self, precision: Precision) -> Callable[..., Road]:
        """What makes roads of a precision. Raises BackendError for one that it lacks."""
        if precision not in self._roads:
            raise BackendError(
                f"backend {self.name} has no precision {precision} on {self.device.name}:"
                f" use {' or '.join(self._roads)}, or another backend"
            )
        return self._roads[precision]

    def _stage(self, model: Model, precision: Precision) -> GpuStage:
        try:
            road = self._roads[precision](self._runtime, model)
        except OutOfMemoryError as error:
            raise BackendError(
                f"{self.device.name}: no memory for the weights of {model.name}:"
                " close other programs that use this device, or use another backend"
            ) from error
        self._open.append(road)
        return GpuStage(model, road, self._workspace)
