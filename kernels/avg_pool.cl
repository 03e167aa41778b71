// Global average pooling: means of planes over a map, in fixed point: integers, whose sum has the same
// bits in any order.
//
//     clear    sums = 0
//     sum      partial(chunk, plane) = sum over the chunk's pixels of round(value * ONE), or of its square
//     add      sums(plane) += sum over chunks of partial(chunk, plane)
//     mean     vector(plane) = sums(plane) * scale
//
// A group of `sum` takes one block of planes of every CHUNKS-th row of a box of the map; then its
// work-items' sums are added up in local memory.
//
// Layouts
//   source    a map, see maps.h
//   sums      64-bit [picture][plane], `step` from a picture to the next
//   partial   64-bit [picture][block][chunk][BLOCK]
//   vector    float [picture][plane], `step` from a picture to the next
//
// Macros
//   GROUP           work-items of a group
//   BLOCK           planes of a block of the map, BLOCKS of a pixel
//   PLANES          of the value
//   S2D             space-to-depth of the map
//   CHUNKS          see above
//   SQUARED         0 or 1: means of squares
//   ONE             what counts as 1: a power of two, 2^24 at most
//
// Values beyond ±32768 count as that, so that 2^24 pixels cannot overflow a sum.
//
// Bound: memory.

#include "maps.h"

#define MOST (32768.0f * ONE)

// The first of a group's work-items has the sum of all.
DEVICE Sum total(LOCAL Sum *shared, Sum own) {
    BARRIER();
    shared[LOCAL_ID()] = own;
    BARRIER();
    for (int count = GROUP / 2; count > 0; count /= 2) {
        if (LOCAL_ID() < count) shared[LOCAL_ID()] += shared[LOCAL_ID() + count];
        BARRIER();
    }
    return shared[0];
}

KERNEL(GROUP)
clear(GLOBAL Sum *sums, const int count) {
    const int item = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (item < count) sums[item] = 0;
}

// Coordinates are pixels of the value from the map's first one, which is a multiple of S2D.
KERNEL(GROUP)
sum(MAP(const GLOBAL float *RESTRICT, source), const int top, const int left, const int rows,
    const int columns, GLOBAL Sum *partial, const int partial_first, const int partial_step) {
    LOCAL_MEMORY Sum shared[GROUP];
    const int chunk = GROUP_ID(0), block = GROUP_ID(1), picture = GROUP_ID(2);
    FIND(source, BLOCK, picture);
    Sum sums[BLOCK];
    UNROLL for (int i = 0; i < BLOCK; i++) sums[i] = 0;
    NO_UNROLL for (int row = chunk; row < rows; row += CHUNKS) {
        NO_UNROLL for (int column = LOCAL_ID(); column < columns; column += GROUP) {
            const int y = top + row, x = left + column;
            const int stored = (y % S2D * S2D + x % S2D) * BLOCKS + block;
            const GLOBAL float *values =
                source + (stored * source_area + y / S2D * source_pitch + x / S2D) * BLOCK;
            UNROLL for (int i = 0; i < BLOCK; i++)
                {
                const float value = SQUARED ? values[i] * values[i] : values[i];
                sums[i] += (Sum)ROUND(CLAMP(value * ONE, -MOST, MOST));
            }
        }
    }
    partial += partial_first + (Wide)picture * partial_step + (block * CHUNKS + chunk) * BLOCK;
    UNROLL for (int i = 0; i < BLOCK; i++) {
        const Sum whole = total(shared, sums[i]);
        if (LOCAL_ID() == 0) partial[i] = whole;
    }
}

KERNEL(GROUP)
add(GLOBAL Sum *sums, const int first, const int partial_first, const int step) {
    const int plane = GROUP_ID(0) * GROUP + LOCAL_ID(), picture = GROUP_ID(2);
    if (plane >= PLANES) return;
    const GLOBAL Sum *partial = sums + partial_first + (Wide)picture * step;
    Sum whole = sums[first + (Wide)picture * step + plane];
    NO_UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
        whole += partial[(plane / BLOCK * CHUNKS + chunk) * BLOCK + plane % BLOCK];
    sums[first + (Wide)picture * step + plane] = whole;
}

KERNEL(GROUP)
mean(const GLOBAL Sum *sums, const int first, const int step, GLOBAL float *vectors,
     const int vector_first, const int vector_step, const float scale) {
    const int plane = GROUP_ID(0) * GROUP + LOCAL_ID(), picture = GROUP_ID(2);
    if (plane >= PLANES) return;
    vectors[vector_first + picture * vector_step + plane] =
        (float)sums[first + (Wide)picture * step + plane] * scale;
}
