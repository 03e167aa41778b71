// Global average pooling: means of planes over a map, in fixed point: integers, whose sum has the same
// bits in any order.
//
//     clear    sums = 0
//     sum      partial(chunk, plane) = sum over the chunk's pixels of the value, or of its square
//     add      sums(plane) += sum over chunks of partial(chunk, plane)
//     mean     vector(plane) = sums(plane) * scale
//
// A sum is two integers: rounded numbers, and their rounding errors times 2^30. So squares of a map count
// however small they are: norms divide by them.
//
// A group of `sum` takes one block of planes of every CHUNKS-th row of a box of the map; then its
// work-items' sums are added up in local memory.
//
// Layouts
//   source    a map, see maps.h
//   sums      64-bit [picture][2][plane], `step` from a picture to the next
//   partial   64-bit [picture][2][block][chunk][BLOCK]
//   vector    float [picture][plane], `step` from a picture to the next
//
// Macros
//   GROUP           work-items of a group
//   BLOCK           planes of a block of the map, BLOCKS of a pixel
//   PLANES          of the value
//   S2D             space-to-depth of the map
//   CHUNKS          see above
//   SQUARED         0 or 1: means of squares
//
// Values beyond +-2^30 are clamped to it.
//
// Bound: memory.

#include "maps.h"

#define MOST 1073741824.0f
#define REST 1073741824.0f
#define PARTS (BLOCKS * CHUNKS * BLOCK)

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
sum(MAP(const GLOBAL ELEMENT *RESTRICT, source), const int top, const int left, const int rows,
    const int columns, GLOBAL Sum *partial, const int partial_first, const int partial_step) {
    LOCAL_MEMORY Sum shared[GROUP];
    const int chunk = GROUP_ID(0), block = GROUP_ID(1), picture = GROUP_ID(2);
    FIND(source, BLOCK, picture);
    Sum wholes[BLOCK], rests[BLOCK];
    UNROLL for (int i = 0; i < BLOCK; i++) wholes[i] = rests[i] = 0;
    NO_UNROLL for (int row = chunk; row < rows; row += CHUNKS) {
        NO_UNROLL for (int column = LOCAL_ID(); column < columns; column += GROUP) {
            const int y = top + row, x = left + column;
            const int stored = (y % S2D * S2D + x % S2D) * BLOCKS + block;
            const GLOBAL ELEMENT *values =
                source + (stored * source_area + y / S2D * source_pitch + x / S2D) * BLOCK;
            float read[BLOCK];
#if BLOCK % 4 == 0
            UNROLL for (int i = 0; i < BLOCK; i += 4) {
                const float4 four = *(const GLOBAL ELEMENT4 *)(values + i);
                read[i] = four.x, read[i + 1] = four.y, read[i + 2] = four.z, read[i + 3] = four.w;
            }
#else
            UNROLL for (int i = 0; i < BLOCK; i++) read[i] = values[i];
#endif
            UNROLL for (int i = 0; i < BLOCK; i++) {
                const float value = SQUARED ? read[i] * read[i] : read[i];
                const float made = CLAMP(value, -MOST, MOST), whole = ROUND(made);
                wholes[i] += (int)whole;
                rests[i] += (int)ROUND((made - whole) * REST);
            }
        }
    }
    partial += partial_first + (Wide)picture * partial_step + (block * CHUNKS + chunk) * BLOCK;
    UNROLL for (int i = 0; i < BLOCK; i++) {
        const Sum whole = total(shared, wholes[i]), rest = total(shared, rests[i]);
        if (LOCAL_ID() != 0) continue;
        partial[i] = whole;
        partial[PARTS + i] = rest;
    }
}

KERNEL(GROUP)
add(GLOBAL Sum *sums, const int first, const int partial_first, const int step) {
    const int number = GROUP_ID(0) * GROUP + LOCAL_ID(), plane = number % PLANES;
    if (number >= 2 * PLANES) return;
    sums += (Wide)GROUP_ID(2) * step;
    const GLOBAL Sum *partial = sums + partial_first + number / PLANES * PARTS;
    Sum whole = sums[first + number];
    NO_UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
        whole += partial[(plane / BLOCK * CHUNKS + chunk) * BLOCK + plane % BLOCK];
    sums[first + number] = whole;
}

KERNEL(GROUP)
mean(const GLOBAL Sum *sums, const int first, const int step, GLOBAL float *vectors,
     const int vector_first, const int vector_step, const float scale) {
    const int plane = GROUP_ID(0) * GROUP + LOCAL_ID(), picture = GROUP_ID(2);
    if (plane >= PLANES) return;
    sums += first + (Wide)picture * step + plane;
    vectors[vector_first + picture * vector_step + plane] =
        FMA((float)sums[PLANES], 1.0f / REST, (float)sums[0]) * scale;
}
