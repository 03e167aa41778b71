"""Lays out the scratch memory of attention; compiled code calls the same functions."""

from __future__ import annotations

from typing import NamedTuple

from waifu2x.backends.cpu.compile.isa import VECTOR

LANES = VECTOR.lanes
BLOCK_WIDTH = 2
"""The most vectors of queries in a block, whose logits are in memory at the same time."""
BLOCK_HEIGHT = 12 if VECTOR.registers >= 32 else 5
"""The keys, or planes of values, of a register tile."""
BLOCK = BLOCK_WIDTH * LANES
"""The most queries of a block."""


class AttentionPlaces(NamedTuple):
    """The offsets, in floats, of the parts of attention's scratch memory, in their order."""

    query_places: int
    """The places of the pixels of all queries, 64-bit integers, as the next four are."""
    result_places: int
    key_places: int
    value_places: int
    bias_places: int
    """The places of the biases of all keys."""
    nothing: int
    """Zeros, which stand for missing pixels."""
    spare: int
    """The target of missing queries."""
    queries: int
    """The head's queries, plane by plane."""
    keys: int
    """The head's keys, plane by plane."""
    values: int
    """The head's values."""
    biases: int
    """The biases of all pairs of a query and a key, key by key."""
    logits: int
    """All logits of a block of queries, key by key."""
    highest: int
    """The highest logit of each query of the block."""
    shares: int
    """One over the sum of powers of each query."""
    made: int
    """The results of the block, plane by plane."""
    end: int


def attention_places(
    start: int, queries: int, keys: int, depth: int, padding: int
) -> AttentionPlaces:
    """Returns the offsets of the parts from `start` on, which must be even.

    They are for windows of `queries` and `keys`, and heads of `depth` planes, the last with
    `padding` planes more.
    """
    padded, padded_keys = -(-queries // LANES) * LANES, -(-keys // LANES) * LANES
    row = -(-depth // LANES) * LANES
    pixel = -(-(depth + padding) // LANES) * LANES
    nothing = start + -(-(4 * padded + 2 * padded_keys + 4 * keys) // LANES) * LANES
    turned = nothing + 2 * pixel
    key_rows = turned + row * padded
    value_rows = key_rows + row * padded_keys
    # Vectors may reach beyond the last value, and the last bias.
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
