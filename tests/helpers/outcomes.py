"""Outcomes of jobs: of some that never ran, and of those of a driver."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.flows.batch import driver
from waifu2x.flows.jobs import Job, Output
from waifu2x.flows.outcome import Outcome
from waifu2x.flows.upscaling import Upscaled


def done(job: Job, seconds: float, height: int, width: int, **others: Any) -> Outcome:
    """The outcome of a file that was made; `others` are fields of Upscaled."""
    return Outcome(job, Upscaled(height, width, {}, seconds, **others))


def run(
    jobs: Iterable[Job | None],
    upscaler: Upscaler,
    output: Output,
    *,
    many: bool = False,
    **options: Any,
) -> Generator[Outcome]:
    """The outcomes of jobs that a driver makes with these RunOptions."""
    return driver.run(jobs, upscaler, output, driver.RunOptions(**options), many=many)
