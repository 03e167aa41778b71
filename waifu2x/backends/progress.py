"""Progress of work that may have to begin again."""

from __future__ import annotations

from waifu2x.backends import Progress


class Furthest:
    """Tells progress of work that may begin again: what has been told once is not told again."""

    def __init__(self, on_progress: Progress) -> None:
        self._on_progress = on_progress
        self._told = 0.0

    def attempt(self) -> Progress:
        """The progress of the next attempt."""
        done = 0.0

        def report(part: float) -> None:
            nonlocal done
            done += part
            if done > self._told:
                part, self._told = done - self._told, done
                self._on_progress(part)

        return report
