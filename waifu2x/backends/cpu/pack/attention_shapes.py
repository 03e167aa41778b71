"""How attention uses its scratch memory; compiled code asks the same functions."""

from __future__ import annotations

from typing import NamedTuple

from waifu2x.backends.cpu.compile.isa import VECTOR

LANES = VECTOR.lanes
BLOCK_WIDTH = 2
"""Vectors of queries, at most, in a block whose logits are there at the same time."""
BLOCK_HEIGHT = 12 if VECTOR.registers >= 32 else 5
"""Keys, or planes of values, of a register tile."""
BLOCK = BLOCK_WIDTH * LANES
"""Queries of such a block."""


class AttentionPlaces(NamedTuple):
    """Where everything lies in the scratch memory of attention, in floats, one behind the other."""

    query_places: int
    """Places of the pixels of all queries, 64-bit integers; likewise the next four."""
    result_places: int
    key_places: int
    value_places: int
    bias_places: int
    """Places of the biases of all keys."""
    nothing: int
    """Zeros, which stand for pixels that are not there."""
    spare: int
    """The place written for queries that are not there."""
    queries: int
    """The head's queries, plane by plane,"""
    keys: int
    """its keys, plane by plane,"""
    values: int
    """its values,"""
    biases: int
    """and the biases of all pairs, key by key."""
    logits: int
    """All logits of a block of queries, key by key,"""
    highest: int
    """the highest of each query,"""
    shares: int
    """one over the sum of its powers,"""
    made: int
    """and its results, plane by plane."""
    end: int


def attention_places(
    start: int, queries: int, keys: int, depth: int, padding: int
) -> AttentionPlaces:
    """Returns the places from `start`, which is even, on.

    For windows of that many queries and keys, and heads of `depth` planes, the last of them with
    `padding` planes more.
    """
    padded, padded_keys = -(-queries // LANES) * LANES, -(-keys // LANES) * LANES
    row = -(-depth // LANES) * LANES
    pixel = -(-(depth + padding) // LANES) * LANES
    nothing = start + -(-(4 * padded + 2 * padded_keys + 4 * keys) // LANES) * LANES
    turned = nothing + 2 * pixel
    key_rows = turned + row * padded
    value_rows = key_rows + row * padded_keys
    # Vectors may go beyond the last value, and the last bias.
    table = value_rows + row * keys + LANES
    logits = table + keys * padded + LANES
    highest = logits + keys * BLOCK
    made = highest + 2 * BLOCK
    return AttentionPlaces(
        start,
        start + 2 * padded,
        start + 4 * padded,
        start + 4 * padded + 2 * padded_keys,
        start + 4 * padded + 2 * padded_keys + 2 * keys,
        nothing,
        nothing + pixel,
        turned,
        key_rows,
        value_rows,
        table,
        logits,
        highest,
        highest + BLOCK,
        made,
        # The last register tile may have planes beyond those of a head.
        made + (pixel + 16) * BLOCK,
    )
