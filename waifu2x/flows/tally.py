"""What has become of the files of a batch so far."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import field
from pathlib import Path

from waifu2x.flows.outcome import Outcome
from waifu2x.system.lazy_dataclass import dataclass


@dataclass
class Tally:
    """Counts and sums of the outcomes of a batch; failed outcomes are kept."""

    counts: Counter[str] = field(default_factory=Counter)
    """How many outcomes there are of each status but failed."""
    failed: dict[Path, Outcome] = field(default_factory=dict)
    """Failed outcomes by source. A file that has changed and is done after all counts as done."""
    spent: Counter[str] = field(default_factory=Counter)
    """Seconds by stage, of all pictures that are done."""
    levels: Counter[int | None] = field(default_factory=Counter)
    """JPEGs, pages of archives too, by the noise level that was chosen for them."""
    pictures: int = 0
    """How many pictures the files that are done hold: a file may have many."""
    recomputed: int = 0
    """How many of them were computed again in fp32."""
    pixels: int = 0
    """Pixels of all results."""
    start: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome) -> None:
        """Counts how one more ended."""
        if outcome.status == "failed":
            self.failed[outcome.job.source] = outcome
            return
        self.failed.pop(outcome.job.source, None)
        self.counts[outcome.status] += 1
        if (made := outcome.made) is None:
            return
        self.spent.update(made.spent)
        self.levels.update(choice.level for choice in made.choices)
        if not made.copied:
            self.pictures += made.pictures
            self.recomputed += made.recomputed
            self.pixels += made.pixels

    @property
    def ended(self) -> int:
        """How many files have ended, failed ones among them."""
        return self.counts.total() + len(self.failed)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> float:
        """Megapixels of results a second."""
        return self.pixels / 1e6 / max(self.seconds, 1e-9)
