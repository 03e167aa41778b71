"""Signs of life of a process, which another one looks at.

They are no messages: whoever waits for something else reads none, and a connection that is full of
them stops both sides.
"""

from __future__ import annotations

import time
from multiprocessing.context import BaseContext
from typing import Any

from waifu2x.system.lazy_dataclass import dataclass

OFTEN = 1.0
"""Seconds after which the process gives a sign, and after which the other one looks."""


def new_signs(context: BaseContext) -> Any:
    """Numbers in memory that both processes see, an argument of the process: how many signs there
    have been, and for how many seconds more than usual it may give none now."""
    return context.RawArray("d", 2)


class Pulse:
    """As the process has it that lives."""

    def __init__(self, signs: Any) -> None:
        """`signs` is what `new_signs` gives."""
        self._signs = signs
        self._given = time.monotonic()

    def beat(self) -> None:
        """Gives a sign, if the last one is some time ago. Never waits."""
        if time.monotonic() - self._given > OFTEN:
            self.rest(0.0)

    def rest(self, seconds: float) -> None:
        """Gives a sign, and may then give none for so many seconds more than usual."""
        self._given = time.monotonic()
        self._signs[1] = seconds
        self._signs[0] += 1


@dataclass(eq=False)
class Watch:
    """As the process has it that looks."""

    signs: Any
    """What `new_signs` gives."""
    patience: float
    """Seconds without a sign after which the other one counts as lost."""
    seen: float = 0.0
    """The number of signs when it last looked."""
    silent: float = 0.0
    """Seconds since the last one. They are counted by looks: a machine that sleeps takes none."""

    def begin(self) -> None:
        """A message has come, which is a sign as well."""
        self.seen, self.silent = self.signs[0], 0.0

    def is_lost(self) -> bool:
        """Looks after another `OFTEN` seconds: whether there has been no sign for too long."""
        if self.signs[0] != self.seen:
            self.begin()
        else:
            self.silent += OFTEN
        patience: float = self.patience + self.signs[1]
        return self.silent >= patience
