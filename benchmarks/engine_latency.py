"""Measures the host's work before a device can begin, on a driver that computes nothing.

python benchmarks/engine_latency.py [-m vgg_7 ...] [--side 256] [--repeats 300]

With an engine open and its network compiled, by another request: from asking for the network, and
from making an Upscaler for the same models, to the first launch of a kernel for one picture. Needs
no GPU: it is this machine's Python that is timed. Medians and the slowest of twenty, in ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.fake_device import in_place_of_the_driver
from tests.helpers.fake_cuda import FakeDriver, FakeLibrary
from waifu2x.api import Upscaler
from waifu2x.backends.call import Call
from waifu2x.backends.engine.engine import Engine
from waifu2x.networks import model_set


class TimedDriver(FakeDriver):
    """Notes when the first kernel, or graph of kernels, is launched."""

    def __init__(self) -> None:
        super().__init__()
        self.capability = (9, 0)
        self.first = 0.0

    def launch(self, *launch: Any) -> None:
        self.first = self.first or time.perf_counter()
        super().launch(*launch)

    def fetch(self, target: int, address: int, size: int) -> None:
        """Leaves results as they are: patterns would take longer than all else."""


class TimedLibrary(FakeLibrary):
    """The same for graphs."""

    # ruff: noqa: N802

    def __init__(self, driver: TimedDriver) -> None:
        super().__init__(driver)
        self.timed = driver

    def cuGraphLaunch(self, executable: Any, stream: int) -> int:
        self.timed.first = self.timed.first or time.perf_counter()
        return super().cuGraphLaunch(executable, stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", action="append", help="default: vgg_7, cunet")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=300)
    arguments = parser.parse_args()
    pixels = np.zeros((arguments.side, arguments.side, 3), np.uint8)
    print(f"{'model':12} {'from':20} {'median':>8} {'of 20':>8}")
    driver = TimedDriver()
    with in_place_of_the_driver(TimedLibrary(driver)):
        for name in arguments.model or ["vgg_7", "cunet"]:
            with Engine("cuda") as engine, Upscaler(2, model=name, engine=engine) as held:
                models = model_set.find(name).models(2, None)
                held(pixels)

                def network() -> None:
                    lease = engine.network(models)  # noqa: B023
                    lease.run(Call(pixels, np.uint8))
                    lease.close()

                def request() -> None:
                    with Upscaler(2, model=name, engine=engine) as upscaler:  # noqa: B023
                        upscaler(pixels)

                for label, work in (("Engine.network", network), ("an Upscaler", request)):
                    found = [latency(driver, work) * 1e3 for _ in range(arguments.repeats)]
                    slow = sorted(found)[int(0.95 * len(found))]
                    print(f"{name:12} {label:20} {statistics.median(found):8.3f} {slow:8.3f}")


def latency(driver: TimedDriver, work: Callable[[], None]) -> float:
    """Seconds to the first launch."""
    driver.first = 0.0
    driver.launched.clear()
    start = time.perf_counter()
    work()
    assert driver.first
    return driver.first - start


if __name__ == "__main__":
    main()
