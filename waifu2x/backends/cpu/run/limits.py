"""Pictures that are refused before anything is computed: no memory holds their maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from waifu2x.errors import BackendError
from waifu2x.lowering.program import Program
from waifu2x.networks.model import Size

_MOST_VALUES = 1 << 46
"""Values of a map: 64 TiB, as bytes."""


def check_maps(program: Program, sizes: Sequence[Size]) -> None:
    """Raises BackendError for a picture whose maps, of those sizes, no memory holds."""
    for value, (rows, columns) in zip(program.values, sizes, strict=True):
        if rows * columns * value.planes > _MOST_VALUES:
            raise _too_large(program.model.name, (rows, columns, value.planes))


def check_result(shape: tuple[int, ...]) -> None:
    """Raises BackendError for a result of a shape that no memory holds."""
    if math.prod(shape) > _MOST_VALUES:
        raise _too_large("backend cpu", shape[-3:])


def _too_large(name: str, shape: tuple[int, ...]) -> BackendError:
    rows, columns, planes = shape
    return BackendError(
        f"{name}: the picture is too large: it takes {columns}x{rows} pixels of {planes} planes"
    )
