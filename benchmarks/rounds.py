"""Rounds that go through all contenders in turn, so that none has a quieter machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable


def measure(timers: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each contender's median; the first round warms up."""
    figures: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(rounds + 1):
        for name, timer in timers.items():
            value = timer()
            if turn:
                figures[name].append(value)
    return {name: statistics.median(values) for name, values in figures.items()}
