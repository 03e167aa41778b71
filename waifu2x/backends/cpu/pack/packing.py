"""Defines the state that packing functions share: the program, its maps and its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.arithmetic import PLAIN, PLANE_UNIT, Arithmetic, Fineness
from waifu2x.backends.cpu.pack.layouts import PixelLayout
from waifu2x.backends.cpu.pack.maps import ProgramMaps
from waifu2x.backends.cpu.pack.records import FUNCTIONS, aligned
from waifu2x.backends.cpu.pack.shapes import CONFIG_FLOATS, LANES
from waifu2x.backends.cpu.pack.tasks import CpuTask, RowWindow
from waifu2x.backends.cpu.pack.weights import tile_config
from waifu2x.errors import BackendError
from waifu2x.lowering.ops.attention import CrossSums
from waifu2x.lowering.ops.vector import GlobalAvgPool
from waifu2x.lowering.plan.box import round_up
from waifu2x.lowering.program import Program
from waifu2x.lowering.values import Target, View
from waifu2x.networks.expressions import Expression


class Arrays:
    """Gathers weights and constants, and assigns their offsets."""

    def __init__(self) -> None:
        self._weights: list[NDArray[np.float32]] = [tile_config()]
        self._constants: list[NDArray[np.float32]] = []
        self._weight_floats, self._constant_floats = CONFIG_FLOATS, 0

    def add_weight(self, values: NDArray[np.float32]) -> int:
        """Adds weights, flat and in the order in which kernels read them; returns their offset."""
        self._weights.append(values)
        self._weight_floats += values.size
        return self._weight_floats - values.size

    def add_constant(self, values: NDArray[np.floating]) -> int:
        """Adds constants, flat; returns their offset."""
        self._constants.append(values.astype(np.float32))
        self._constant_floats += values.size
        return self._constant_floats - values.size

    def weights(self) -> NDArray[np.float32]:
        """Joins all weights in an array on a cache line."""
        return np.concatenate(self._weights, out=aligned(self._weight_floats))

    def constants(self) -> NDArray[np.float32]:
        """Joins all constants in an array on a cache line, padded by one whole vector."""
        last = np.zeros(LANES, np.float32)
        out = aligned(self._constant_floats + LANES)
        return np.concatenate([*self._constants, last], out=out)


class Packing:
    """Holds a program while it is packed. Its methods return fields of records (`records.TASK`)."""

    def __init__(
        self, program: Program, arithmetic: Arithmetic, fineness: Fineness = PLAIN
    ) -> None:
        self.program, self.arithmetic = program, arithmetic
        self.arrays = Arrays()
        self.maps = ProgramMaps(program, arithmetic, self.arrays.add_constant, fineness)
        self.vector_starts = _vector_starts(program, PLANE_UNIT[arithmetic])
        """The offset of each vector among all of them, then their total length."""

    def layout(self, map_: int) -> PixelLayout:
        """Returns the layout of a map."""
        return self.maps.layouts[map_]

    def source(self, view: View) -> dict[str, int]:
        """Returns the fields of the map that a task reads."""
        return {"source_offset": view.offset, **self._place("source", view.value, view.first)}

    def target(self, target: Target, block: int = 1) -> dict[str, int]:
        """Returns the fields of the map that a task writes, by depth-to-space of blocks of that
        side."""
        fields = self._place("target", target.value, target.part)
        fields["target_plane"] += target.plane
        return fields | self._strides("target", target.value, block)

    def padding(self, target: Target, planes: int) -> dict[str, int]:
        """Returns the fields of the number of planes that a task makes, if they end a part, and of
        the zeros behind them."""
        return {"planes": planes, "padding": self.layout(target.value).padded[target.part] - planes}

    def residual(self, view: View, block: int = 1) -> dict[str, int]:
        """Returns the fields of the map that a task joins to its results."""
        fields = self._place("residual", view.value, view.first)
        return (
            fields | {"residual_offset": view.offset} | self._strides("residual", view.value, block)
        )

    def window(self, view: View, more: int = 0) -> RowWindow:
        """Returns the window of rows that a task reads, `more` rows than it makes."""
        return RowWindow(
            view.value, offset=view.offset, more=more, first=view.first, parts=view.parts
        )

    def residual_window(self, view: View, up: int = 1) -> RowWindow:
        """Returns the window of rows of a residual for a task whose rows make `up` rows each."""
        unit = self.layout(view.value).space_to_depth
        return RowWindow(view.value, up=up, offset=view.offset, unit=unit, first=view.first)

    def function(self, function: Expression) -> int:
        """Returns the number of a function among the compiled ones. Raises BackendError."""
        if function not in FUNCTIONS:
            raise BackendError(
                f"{self.program.model.name}: it uses a function that is not among the activations"
                " that "
                "backend cpu compiles",
                "use another backend",
            )
        return FUNCTIONS.index(function)

    def _place(self, role: str, map_: int, part: int) -> dict[str, int]:
        layout = self.layout(map_)
        return {
            role: map_,
            f"{role}_plane": layout.start(part),
            f"{role}_terms": layout.terms,
            f"{role}_lo": layout.values,
            f"{role}_zero": layout.zero_at(part),
        }

    def _strides(self, role: str, map_: int, block: int) -> dict[str, int]:
        names = (f"{role}_pixel", f"{role}_pair", f"{role}_block")
        return dict(zip(names, self.layout(map_).strides(block), strict=True))


def _vector_starts(program: Program, plane_unit: int) -> list[int]:
    """Returns the offset of each vector, and the end of all.

    They are as long as the padded planes of a map: kernels read and add whole pixels.
    """
    unit = max(LANES, plane_unit)
    sizes = [round_up(size, unit) for size in program.vectors]
    for step in program.steps:
        # Two integers for each sum; those of products are added by whole vectors from any place on.
        if isinstance(step, GlobalAvgPool):
            sizes[step.vector] *= 2
        elif isinstance(step, CrossSums):
            sizes[step.vector] = round_up(2 * program.vectors[step.vector], unit) + unit
    starts: list[int] = np.cumsum([0, *sizes]).tolist()
    return starts


Packers = Mapping[type, Callable[[Packing, int, Any], list[CpuTask]]]
"""Functions that make the tasks of a step, by its class, from its number and the step."""
