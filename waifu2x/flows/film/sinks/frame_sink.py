"""What all sinks of enlarged frames do: which frame is written again, and which is let go of."""

from __future__ import annotations

from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.frames.steps import EnlargedFrame, Planes, Step
from waifu2x.imaging.streams import Header


class FrameSink:
    """Writes results, frame by frame: a sink of a flow. A held frame is the last one once more."""

    def __init__(self, stages: Stages) -> None:
        """`stages` are told of the time that writing takes."""
        self._stages = stages
        self._last: Planes = ()
        self.frames = self.computed = 0
        """Frames written in all, and those that the network made."""
        self.lost: tuple[str, ...] = ()
        """What is missing in the streams that are copied, each a clause."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What could not be kept, each a clause."""
        return ()

    def open(self, header: Header) -> None:
        """Begins. Raises OutputError."""

    def add(self, result: EnlargedFrame) -> None:
        """Writes a frame, and lets go of the one it is made of. Raises OutputError."""
        try:
            with self._stages.at_work("encoding"):
                if result.planes is not None:
                    self._last = result.planes
                    self.computed += 1
                self._write(result.step, self._last, is_held=result.planes is None)
            self.frames += 1
        finally:
            result.step.frame.release()

    def _write(self, step: Step, planes: Planes, *, is_held: bool) -> None:
        """Writes a frame, which `is_held` if its planes are those of the frame before."""
        raise NotImplementedError

    def close(self) -> None:
        """Completes what was written. Raises OutputError."""

    def abort(self) -> None:
        """Leaves no more than is of use by itself."""
