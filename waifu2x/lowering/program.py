"""Defines the lowered model, which an engine runs."""

from __future__ import annotations

from waifu2x.lowering.ops.base import Step
from waifu2x.lowering.values import Value, View
from waifu2x.networks.model import Model
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Program:
    """A model as steps over values and vectors, in order."""

    model: Model
    values: tuple[Value, ...]
    vectors: tuple[int, ...]
    """The size of each vector."""
    steps: tuple[Step, ...]
    """In an order in which each step reads values written before it."""
    cuts: tuple[int, ...] = ()
    """Numbers of the steps that begin phases, besides the phases that means end."""

    @property
    def result(self) -> int:
        """The number of the value that becomes pixels, clipped to [0, 1] and rounded to their type.
        Only one step writes it, and none reads it."""
        return len(self.values) - 1

    def planes_read(self, view: View) -> int:
        """Returns the planes of a view's single pixels."""
        return sum(self.values[view.value].parts[view.first : view.first + view.parts])
