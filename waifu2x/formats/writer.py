"""What all writers of files have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

from waifu2x.imaging.streams import Timed


class Writer(ABC):
    """Writes the content of a file, picture by picture."""

    @abstractmethod
    def add(self, timed: Timed) -> None:
        """Writes the next picture. Raises OutputError, and OSError if the file is not writable."""

    def finish(self) -> None:  # noqa: B027 (most formats end with their last picture)
        """Writes what comes after the last picture. Raises as `add` does."""

    def abort(self) -> None:  # noqa: B027
        """Ends the work, instead of `finish`."""
