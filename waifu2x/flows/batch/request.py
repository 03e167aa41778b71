"""What is asked for of files: how they are made, and by which networks."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction

from waifu2x.api import Upscaler
from waifu2x.flows.batch.codec import CodecTask
from waifu2x.flows.jobs import Output
from waifu2x.imaging.enlarger import Networks
from waifu2x.imaging.sizes import MOST
from waifu2x.networks.chains import FactTable

_IN_FLIGHT = 4
"""Pictures of one file that are under way at a time, at most."""


class FileRequest:
    """What is the same for files that are made alike. Threads may share it."""

    def __init__(
        self, upscaler: Upscaler, output: Output, max_pixels: int, in_network: int
    ) -> None:
        """`in_network` is how many pictures are in the network at a time."""
        enlarger = upscaler.enlarger
        self.networks: Networks = upscaler.networks
        self.task = CodecTask(
            enlarger.facts,
            enlarger.request,
            enlarger.noise,
            enlarger.limits,
            output,
            max_pixels,
            min(in_network + 1, _IN_FLIGHT),
        )
        """What threads are told of it."""
        self._lock = threading.Lock()
        self._told: CodecTask | None = None

    def task_for(self, is_process: bool) -> CodecTask:
        """What a worker is told of it."""
        if not is_process:
            return self.task
        with self._lock:
            self._told = self._told or self._process_task()
            return self._told

    def _process_task(self) -> CodecTask:
        """The task, with facts that need no models: of the scales that pictures may grow by."""
        task = self.task
        scales = [Fraction(scale) for scale in range(1, MOST + 1)]
        if task.request.scale is not None:
            scales = [task.request.scale]
        levels = {task.noise} | (task.limits.levels if task.limits else frozenset())
        return replace(task, facts=FactTable.of(task.facts, levels, scales))
