// Convolutions of each plane with its own kernel, fp32.
//
//     target(y, x, c) = epilogue(bias(c) + sum over dy, dx of weight(c, dy, dx) * source(y + dy, x + dx, c))
//
// A work-item makes BLOCK planes of LINE neighbouring pixels of a row: what it reads serves several of
// them, from registers or the nearest cache.
//
// Layouts
//   source, target, residual   see maps.h; the epilogue is that of store.h
//   weights  [blocks of planes][TAPS][TAPS][BLOCK]
//   bias     [blocks of planes][BLOCK], then as many slopes
//
// Macros, with those of store.h
//   TAPS            in each direction
//   PLANES          that are made; others of the last block become zero
//   OUT_PLANES      the same, padded to whole blocks
//   GROUP, LINE     work-items of a group, side by side in a row, and the pixels of each
//   VECTOR          the type of a block of planes
//
// Bound: memory up to 7x7, then multiply-adds.

#include "store.h"

#define VECTORS_OF(map) ((const GLOBAL VECTOR *)(map))

// `rows` are those of a picture: those of all pictures follow each other.
KERNEL(GROUP)
depthwise(MAP(const GLOBAL float *RESTRICT, source), const GLOBAL VECTOR *RESTRICT weights,
          const GLOBAL VECTOR *RESTRICT bias, const int rows, const int columns, STORE_ARGUMENTS) {
    const int block = GROUP_ID(1);
    const int picture = GROUP_ID(2) / rows, y = GROUP_ID(2) % rows;
    const int x = (GROUP_ID(0) * GROUP + LOCAL_ID()) * LINE;
    if (x >= columns) return;
    FIND(source, BLOCK, picture);
    FIND(target, BLOCK, picture);
#ifdef RESIDUAL
    FIND(residual, BLOCK, picture);
#endif
    VECTOR sums[LINE];
    const VECTOR start = bias[block];
    UNROLL for (int n = 0; n < LINE; n++) sums[n] = start;
    const GLOBAL VECTOR *weight = weights + block * (TAPS * TAPS);
    NO_UNROLL for (int dy = 0; dy < TAPS; dy++) {
        const GLOBAL VECTOR *line =
            VECTORS_OF(source) + block * source_area + (y + dy) * source_pitch + x;
#if TAPS <= 7
        UNROLL
#else
        NO_UNROLL
#endif
        for (int dx = 0; dx < TAPS; dx++) {
            const VECTOR w = *weight++;
            // Beyond the last column nothing need be there.
            UNROLL for (int n = 0; n < LINE; n++)
                sums[n] = FMA(w, line[min(n, columns - 1 - x) + dx], sums[n]);
        }
    }
    const int plane = block * BLOCK;
    const VECTOR slope = SLOPE_AT(VECTOR, bias + OUT_PLANES / BLOCK, block);
    UNROLL for (int n = 0; n < LINE; n++) {
        if (x + n >= columns) continue;
        VECTOR value = ACTIVATE(VECTOR, sums[n], slope);
#ifdef RESIDUAL
        const int from = residual_place(y, x + n, plane, residual_pitch, residual_area);
        value = SUMMED(VECTOR, value, *(const GLOBAL VECTOR *)(residual + from));
#endif
        if (!IS_INSIDE(y, x + n)) value = SPLAT(VECTOR, 0.0f);
#if PLANES % BLOCK
        float *all = (float *)&value;
        UNROLL for (int i = 0; i < BLOCK; i++)
            if (plane + i >= PLANES) all[i] = 0.0f;
#endif
        STORE(VECTOR, target + target_place(y, x + n, plane, target_pitch, target_area), value);
    }
}
