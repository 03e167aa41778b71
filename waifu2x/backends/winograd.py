"""Transforms weights for Winograd's minimal filtering F(m, 3), for all backends.

The transforms interpolate at 0, ±3/4, ±3/2 and infinity for four results, at 0, ±1 and infinity for
two, and at 0, ±1/2, ±1, ±2 and infinity for six. Those for four cost the same arithmetic as the
usual 0, ±1, ±2 and lose 3 to 5 dB less to rounding; Barabasz et al. 2020, "Error analysis and
improving the accuracy of Winograd convolution for deep neural networks", explain why.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
    6: tuple(map(Fraction, ("0", "1/2", "-1/2", "1", "-1", "2", "-2"))),
}
"""The points of interpolation, in order, by the number of results of a cell; infinity, the last
one, is left out."""


def share(cell_y: int, cell_x: int) -> float:
    """Returns the multiply-adds of a 3x3 convolution by cells of `cell_y` x `cell_x` results, as a
    share of those of its definition: 4/9 for 2 x 2, 1/4 for 4 x 4."""
    return (cell_y + 2) * (cell_x + 2) / (9 * cell_y * cell_x)


def transform_weights(weight: NDArray[np.float32], cell_y: int, cell_x: int) -> NDArray[np.float32]:
    """Transforms weights (out, in, 3, 3) into (frequencies, out, in), rounded once to float32."""
    down, along = _matrix(cell_y), _matrix(cell_x)
    wide = weight.astype(np.float64)
    transformed = np.einsum("ay,oiyx,bx->aboi", down, wide, along, optimize=True)
    rounded: NDArray[np.float32] = transformed.astype(np.float32)
    return rounded.reshape(-1, *weight.shape[:2])


def each_frequency(weight: NDArray[np.float32], cell: int) -> Iterator[NDArray[np.float64]]:
    """Transforms weights (out, in, 3, 3), and yields (in, out) of one frequency after the other, in
    float64: all of G w G^T would exceed the caches."""
    matrix = _matrix(cell)
    kernels = np.ascontiguousarray(weight.transpose(2, 3, 1, 0), np.float64)
    for rows in matrix @ kernels.reshape(3, -1):
        yield from (matrix @ rows.reshape(3, -1)).reshape(-1, *kernels.shape[2:])


def _matrix(cell: int) -> NDArray[np.float64]:
    """Returns G, (cell + 2, 3)."""
    points = POINTS[cell]
    rows = []
    for point in points:
        norm = Fraction(1)
        for other in points:
            norm *= point - other if other != point else 1
        rows.append([float(point**power / norm) for power in range(3)])
    return np.array([*rows, [0.0, 0.0, 1.0]])
