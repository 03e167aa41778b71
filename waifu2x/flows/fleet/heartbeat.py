"""Signs of life of a process, in shared memory: as messages, nobody would read them while the other
side waits for something else, and a full pipe would stop both."""

from __future__ import annotations

import time
from typing import Any

from waifu2x.flows.fleet.processes import start_context
from waifu2x.system.lazy_dataclass import dataclass

OFTEN = 1.0
"""Seconds between two signs of life, and between two looks at them."""


def new_signs() -> Any:
    """Returns two numbers in shared memory, for Heartbeat and HeartbeatWatch: the signs so far, and
    the seconds of permitted extra silence."""
    return start_context().RawArray("d", 2)


class Heartbeat:
    def __init__(self, signs: Any) -> None:
        self._signs = signs
        self._given = time.monotonic()

    def beat(self) -> None:
        """Gives a sign if the last one is some time ago. Never waits."""
        if time.monotonic() - self._given > OFTEN:
            self.rest(0.0)

    def rest(self, seconds: float) -> None:
        """Gives a sign, and allows itself `seconds` more of silence than usual."""
        self._given = time.monotonic()
        self._signs[1] = seconds
        self._signs[0] += 1


@dataclass(eq=False)
class HeartbeatWatch:
    """Watches the signs of life of another process."""

    signs: Any
    patience: float
    """Seconds without a sign after which the process counts as lost."""
    seen: float = 0.0
    silent: float = 0.0
    """Seconds since the last sign. They are counted by looks: a machine that sleeps takes none."""

    def begin(self) -> None:
        """Counts a message as a sign."""
        self.seen, self.silent = self.signs[0], 0.0

    def is_lost(self) -> bool:
        """Looks after another `OFTEN` seconds; returns whether the silence is too long."""
        if self.signs[0] != self.seen:
            self.begin()
        else:
            self.silent += OFTEN
        patience: float = self.patience + self.signs[1]
        return self.silent >= patience
