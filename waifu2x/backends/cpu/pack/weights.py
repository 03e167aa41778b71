"""Packs weights in the order in which kernels read them; each kernel's header says why."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cpu.pack.records import CELL
from waifu2x.backends.cpu.pack.shapes import (
    BLOCK,
    CHUNK,
    COLUMNS,
    FLAT,
    LANES,
    MOST_INPUT,
    PART_PAIRS,
    TILE_ROWS,
    block_widths,
)
from waifu2x.backends.winograd import each_frequency
from waifu2x.lowering.plan.box import round_up

_BALANCES = np.outer([1, 1, 1, 1, 1, 2, 2, 1], [1, 1, 1, 1, 1, 2, 2, 1]).ravel()
"""The factors of the transformed inputs of each frequency, which make all about equally large, so
that none loses more to rounding."""
_LIKENESS = 0.8
"""The assumed correlation of neighbouring pixels of a feature map: the best of 0.5 to 0.99."""
_MOST_WEIGHT = (1 << 15) - 1
_MOST_SUM = (1 << 31) - 1


def pack_direct(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, taps, taps), out padded to LANES -> flat blocks of (taps, taps, in, block
    planes)."""
    ordered = weight.transpose(2, 3, 1, 0)
    return _blocks(ordered, group_planes)


def pack_depthwise(weight: NDArray[np.float32], planes: int) -> NDArray[np.float32]:
    """Packs (planes, taps, taps), padded to `planes` planes, -> flat vectors of planes of
    (taps, taps, LANES)."""
    padded = np.zeros((planes, *weight.shape[1:]), np.float32)
    padded[: len(weight)] = weight
    return padded.reshape(-1, LANES, *weight.shape[1:]).transpose(0, 2, 3, 1).ravel()


def pack_few_outputs(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, 3, 3), in padded to LANES -> flat (out, 3 rows, 3 taps, in)."""
    return weight.transpose(0, 2, 3, 1).ravel()


def pack_winograd(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, taps, taps), planes padded to LANES, taps to threes -> U, flat: chunks of
    (64, blocks of (in, planes of the block)). Several threes are further inputs: (across, along,
    in)."""
    out_planes, in_planes, taps, _ = weight.shape
    threes = weight.reshape(out_planes, in_planes, taps // 3, 3, taps // 3, 3)
    weight = threes.transpose(0, 2, 4, 1, 3, 5).reshape(out_planes, -1, 3, 3)
    frequencies = zip(each_frequency(weight, CELL), _BALANCES, strict=True)
    transformed = np.stack([(exact / by).astype(np.float32) for exact, by in frequencies])
    return np.concatenate(
        [
            transformed[frequency, :, block].ravel()
            for chunk in _chunks(len(weight), group_planes)
            for frequency in range(len(transformed))
            for block in chunk
        ]
    )


def pack_integers(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, 3, 3), in padded to INTEGER_BLOCK, out to LANES -> the kernel's order, as
    float32 memory."""
    out_planes, in_planes = weight.shape[:2]
    pairs = np.empty((len(_BALANCES), in_planes // 2, out_planes, 2), np.int16)
    scales = np.zeros((len(_BALANCES), out_planes), np.float32)
    for frequency, exact in enumerate(each_frequency(weight, CELL)):
        exact /= _BALANCES[frequency]
        if frequency == FLAT:
            flat, scales[frequency] = exact.astype(np.float32), 1
        else:
            rounded, scales[frequency] = round_integers(exact)
            pairs[frequency] = _in_pairs(rounded)
    blocks, first = [], 0
    for _ in range(out_planes // group_planes):
        for width in block_widths(group_planes):
            part = slice(first, first + width * LANES)
            by_vector = scales[:, part].reshape(len(scales), width, LANES).swapaxes(0, 1)
            before, after = (
                _as_floats(pairs[:FLAT, :, part]),
                _as_floats(pairs[FLAT + 1 :, :, part]),
            )
            blocks += [by_vector.ravel(), before, flat[:, part].ravel(), after]
            first += width * LANES
    return np.concatenate(blocks)


def pack_integer_points(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, 1, 1), in padded to INTEGER_BLOCK, out to LANES -> the kernel's order, as
    float32 memory."""
    rounded, scales = round_integers(weight[:, :, 0, 0].T.astype(np.float64))
    pairs = _in_pairs(rounded)
    blocks, first = [], 0
    for _ in range(len(weight) // group_planes):
        for width in block_widths(group_planes):
            part = slice(first, first + width * LANES)
            blocks += [scales[part], _as_floats(pairs[:, part])]
            first += width * LANES
    return np.concatenate(blocks)


def _in_pairs(integers: NDArray[np.int16]) -> NDArray[np.int16]:
    """Packs (in, out) -> (in / 2, out, 2): pairs of inputs from two vectors each, or of neighbours
    in a last single vector."""
    in_planes = len(integers)
    whole = in_planes // (2 * LANES) * 2 * LANES
    paired = np.arange(whole).reshape(-1, 2, LANES).swapaxes(1, 2)
    order = np.concatenate([paired.ravel(), np.arange(whole, in_planes)])
    pairs: NDArray[np.int16] = integers[order].reshape(in_planes // 2, 2, -1).swapaxes(1, 2)
    return pairs


def _as_floats(integers: NDArray[np.int16]) -> NDArray[np.float32]:
    """Views pairs as flat float32 memory."""
    return np.ascontiguousarray(integers).reshape(-1).view(np.float32)


def round_integers(exact: NDArray[np.float64]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Quantizes (in, out) to 16-bit integers, with the finest scale for which the sums of products
    with inputs of at most MOST_INPUT fit into 32 bits, part by part; returns scales (out,), too."""
    sizes = abs(exact)
    parts = np.add.reduceat(sizes, range(0, len(exact), 2 * PART_PAIRS))
    room = _MOST_SUM / MOST_INPUT - PART_PAIRS  # rounding adds at most a half to each
    fineness = np.minimum(
        _MOST_WEIGHT / np.maximum(sizes.max(axis=0), 1e-30),
        room / np.maximum(parts.max(axis=0), 1e-30),
    )
    integers = np.rint(exact * fineness).astype(np.int16)
    return integers, (1 / fineness).astype(np.float32)


def _chunks(planes: int, group_planes: int) -> list[list[slice]]:
    """Divides output planes into chunks of blocks."""
    chunks: list[list[slice]] = []
    begin, first = 0, 0
    for _ in range(planes // group_planes):
        for width in block_widths(group_planes):
            block = slice(first, first + width * LANES)
            if not chunks or block.stop > begin + CHUNK:
                chunks.append([])
                begin = first
            chunks[-1].append(block)
            first = block.stop
    return chunks


def _blocks(ordered: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Cuts the last axis into groups, and those into the widths of register tiles."""
    blocks, first = [], 0
    for _ in range(ordered.shape[-1] // group_planes):
        for width in block_widths(group_planes):
            blocks.append(ordered[..., first : first + width * LANES].ravel())
            first += width * LANES
    return np.concatenate(blocks)


def tile_config() -> NDArray[np.float32]:
    """Returns the tile configuration: palette 1, all eight tiles 16 rows of 64 bytes."""
    content = np.zeros(64, np.uint8)
    content[0] = 1
    content[16:32].view(np.uint16)[:] = 64
    content[48:56] = TILE_ROWS
    return content.view(np.float32)


def round_bfloats(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounds values to bf16, half to even, as float32."""
    bits = values.astype(np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).view(np.float32)


def round_weights(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounds (out, in, taps, taps) to bf16 with error feedback over the taps of each kernel."""
    taps = weight.shape[2]
    shares = _error_shares(taps)
    kernels = weight.reshape(-1, taps**2).astype(np.float64)
    order = np.argsort(-abs(kernels), axis=1, kind="stable")
    every, left = np.arange(len(kernels)), np.full(len(kernels), (1 << taps**2) - 1)
    for tap in order.T:
        wanted = kernels[every, tap]
        rounded = round_bfloats(wanted)
        left -= 1 << tap
        kernels += shares[left, tap] * (wanted - rounded)[:, np.newaxis]
        kernels[every, tap] = rounded
    return kernels.reshape(weight.shape).astype(np.float32)


@cache
def _error_shares(taps: int) -> NDArray[np.float64]:
    """Returns (sets of taps, tap, tap): the share of a tap's error that each tap of a set, given by
    its bits, takes, so that the sum changes least for a correlation of _LIKENESS ** distance."""
    count = taps**2
    places = np.stack(np.divmod(np.arange(count), taps), axis=1)
    distances = np.linalg.norm(places[:, np.newaxis] - places, axis=2)
    likeness = _LIKENESS**distances
    shares = np.zeros((1 << count, count, count))
    for number in range(1, 1 << count):
        inside = np.flatnonzero([number >> tap & 1 for tap in range(count)])
        shares[number][:, inside] = np.linalg.solve(
            likeness[np.ix_(inside, inside)], likeness[inside]
        ).T
    return shares


def bfloat_bits(weight: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounds (out, in, taps, taps) with error feedback, and returns the bits of bf16."""
    return (round_weights(weight).view(np.uint32) >> 16).astype(np.uint16)


def pack_tiles(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, taps, taps), out a multiple of COLUMNS and in of BLOCK -> the kernel's order,
    as float32 memory."""
    weight = np.pad(weight, ((0, -len(weight) % BLOCK), (0, 0), (0, 0), (0, 0)))
    out_planes, in_planes, taps, _ = weight.shape
    bits = bfloat_bits(weight)
    # (out, ky, kx, in) -> (out block, tile, output, ky, step, pair, 2)
    ordered = bits.transpose(0, 2, 3, 1).reshape(
        out_planes // BLOCK, 2, 16, taps, taps * in_planes // BLOCK, 16, 2
    )
    packed = np.ascontiguousarray(ordered.transpose(0, 3, 4, 1, 5, 2, 6))
    return packed.reshape(-1).view(np.float32)


def pack_pixel_tiles(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, 3, 3), out a multiple of COLUMNS -> the kernel's order, as float32 memory."""
    first = round_bfloats(weight.astype(np.float64))
    rest = round_bfloats(weight.astype(np.float64) - first)
    # (out, in, ky, kx) twice -> (ky, terms of weights, pair, out, terms of inputs)
    count = 3 * weight.shape[1]
    pairs = np.zeros((3, 2, COLUMNS, round_up(len(weight), BLOCK), 2), np.float32)
    for term, values in enumerate((first, rest)):
        ordered = values.transpose(2, 3, 1, 0).reshape(3, count, -1)
        pairs[:, term, :count, : len(weight), 0] = ordered
        if not term:
            pairs[:, term, :count, : len(weight), 1] = ordered
    bits = (pairs.view(np.uint32) >> 16).astype(np.uint16)
    blocks = bits.reshape(3, 2, COLUMNS, -1, 2, COLUMNS, 2).transpose(3, 0, 1, 4, 2, 5, 6)
    return np.ascontiguousarray(blocks).reshape(-1).view(np.float32)


def pack_few_tiles(weight: NDArray[np.float32], group_planes: int) -> NDArray[np.float32]:
    """Packs (out, in, 3, 3), in a multiple of BLOCK -> the kernel's order, as float32 memory."""
    out_planes, in_planes = weight.shape[:2]
    columns = np.zeros((3, in_planes, COLUMNS), np.uint16)
    taps = bfloat_bits(weight).transpose(2, 1, 3, 0)  # (ky, in, kx, out)
    columns[..., : 3 * out_planes] = taps.reshape(3, in_planes, -1)
    pairs = columns.reshape(3, in_planes // 2, 2, COLUMNS).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(pairs).reshape(-1).view(np.float32)
