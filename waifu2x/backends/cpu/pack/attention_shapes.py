"""How attention uses its scratch memory; compiled code asks the same functions."""

from __future__ import annotations

from waifu2x.backends.cpu.compile.isa import VECTOR

LANES = VECTOR.lanes
BLOCK_WIDTH = 2
"""Vectors of queries, at most, in a block whose logits are there at the same time."""
BLOCK_HEIGHT = 12 if VECTOR.registers >= 32 else 5
"""Keys, or planes of values, of a register tile."""
BLOCK = BLOCK_WIDTH * LANES
"""Queries of such a block."""
(
    QUERY_PLACES,
    RESULT_PLACES,
    KEY_PLACES,
    VALUE_PLACES,
    BIAS_PLACES,
    NOTHING,
    SPARE,
    QUERIES,
    KEYS,
    VALUES,
    BIASES,
    LOGITS,
    HIGHEST,
    SHARES,
    MADE,
    END,
) = range(16)
"""What lies in the scratch memory of attention. Places of the pixels of all queries, results, keys
and values, and of the biases of all keys, are 64-bit integers. NOTHING is zeros, which stand for
pixels that are not there, and SPARE is written where none is. Then the head's queries and keys,
plane by plane, its values, and the biases of all pairs, key by key; for a block of queries, all
logits, key by key, the highest of each query, one over the sum of its powers, and its results,
plane by plane."""


def attention_places(
    start: int, queries: int, keys: int, depth: int, padding: int
) -> tuple[int, ...]:
    """Where each of them begins, in floats, and the end of all; the first one at `start`, which is
    even.

    For windows of so many queries and keys, and heads of so many planes, the last of them with more
    planes that are padding.
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
    return (
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
