"""Sizes that are refused before anything is computed: no memory holds such maps."""

from __future__ import annotations

from collections.abc import Sequence

from waifu2x.errors import BackendError
from waifu2x.lowering.steps import Program
from waifu2x.networks.model import Size

_MOST_RESOLUTION = 1 << 12
"""Pixels of a map for each pixel of the picture, in each direction."""
_MOST_SIDE = 1 << 31
"""Rows or columns of a map."""
_MOST_VALUES = 1 << 46
"""Values of a map: 64 TiB, as bytes."""


def check_resolution(program: Program) -> None:
    """Raises BackendError for a network that enlarges what it computes beyond all measure."""
    most = max(value.resolution for value in program.values)
    if most > _MOST_RESOLUTION:
        raise BackendError(
            f"{program.model.name}: enlarges maps more than {_MOST_RESOLUTION} times:"
            " backend cpu computes no such network"
        )


def check_sizes(program: Program, sizes: Sequence[Size]) -> None:
    """Raises BackendError for a picture with a map that no memory holds."""
    for value, (rows, columns) in zip(program.values, sizes, strict=True):
        if max(rows, columns) > _MOST_SIDE or rows * columns * value.planes > _MOST_VALUES:
            height, width = sizes[0]
            raise BackendError(
                f"{program.model.name}: a picture of {width}x{height} is too large: it takes a map"
                f" of {columns}x{rows} pixels"
            )
