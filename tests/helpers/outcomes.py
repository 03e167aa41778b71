"""Outcomes of jobs that never ran."""

from __future__ import annotations

from typing import Any

from waifu2x.flows.jobs import Job
from waifu2x.flows.outcome import Outcome
from waifu2x.flows.upscaling import Upscaled


def done(job: Job, seconds: float, height: int, width: int, **others: Any) -> Outcome:
    """The outcome of a file that was made; `others` are fields of Upscaled."""
    return Outcome(job, Upscaled(height, width, {}, seconds, **others))
