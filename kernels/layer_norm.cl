// Norms over the planes of a pixel, fp32.
//
//     target(c) = (source(c) - mean) / sqrt(variance + EPS) * weight(c) + bias(c)
//
// where mean and variance are those of the PLANES of the pixel. A work-item makes a pixel: it reads it
// three times, from the caches after the first.
//
// Layouts
//   source, target   see maps.h
//   weights          [blocks of planes][BLOCK], then as many biases
//
// Macros
//   GROUP           work-items of a group, side by side in a row
//   PLANES          of the maps' parts; others of the last block become zero
//   BLOCK, VECTOR   planes of a block, and their type
//   BLOCKS          of a pixel
//   EPS
//   ZERO_OUTSIDE    defined: the target holds zeros outside `y_start`, `y_stop`, `x_start`, `x_stop`
//
// Bound: memory.

#include "maps.h"

#ifdef ZERO_OUTSIDE
#define BOUNDS , const int y_start, const int y_stop, const int x_start, const int x_stop
#define IS_INSIDE(y, x) ((y) >= y_start && (y) < y_stop && (x) >= x_start && (x) < x_stop)
#else
#define BOUNDS
#define IS_INSIDE(y, x) 1
#endif

// A vector of planes from `plane` on, less `mean`; zero behind the last plane.
DEVICE VECTOR centred(const GLOBAL float *RESTRICT source, int place, int plane, float mean) {
    VECTOR value = *(const GLOBAL VECTOR *)(source + place) - SPLAT(VECTOR, mean);
#if PLANES % BLOCK
    float *all = (float *)&value;
    UNROLL for (int i = 0; i < BLOCK; i++)
        if (plane + i >= PLANES) all[i] = 0.0f;
#endif
    return value;
}

DEVICE float total(VECTOR sums) {
    const float *all = (const float *)&sums;
    float whole = all[0];
    UNROLL for (int i = 1; i < BLOCK; i++) whole += all[i];
    return whole;
}

// `rows` are those of a picture: those of all pictures follow each other.
KERNEL(GROUP)
layer_norm(MAP(const GLOBAL float *RESTRICT, source), const GLOBAL VECTOR *RESTRICT weights,
           const int rows, const int columns, MAP(GLOBAL float *RESTRICT, target) BOUNDS) {
    const int x = GROUP_ID(0) * GROUP + LOCAL_ID();
    const int y = GROUP_ID(1), picture = GROUP_ID(2);
    if (x >= columns || y >= rows) return;
    FIND(source, BLOCK, picture);
    FIND(target, BLOCK, picture);
    const int from = (y * source_pitch + x) * BLOCK, step = source_area * BLOCK;
    VECTOR sums = SPLAT(VECTOR, 0.0f);
    NO_UNROLL for (int n = 0; n < BLOCKS; n++)
        sums = sums + centred(source, from + n * step, n * BLOCK, 0.0f);
    const float mean = total(sums) * (1.0f / PLANES);
    sums = SPLAT(VECTOR, 0.0f);
    NO_UNROLL for (int n = 0; n < BLOCKS; n++) {
        const VECTOR value = centred(source, from + n * step, n * BLOCK, mean);
        sums = FMA(value, value, sums);
    }
    const float factor = 1.0f / SQRT(total(sums) * (1.0f / PLANES) + EPS);
    NO_UNROLL for (int n = 0; n < BLOCKS; n++) {
        VECTOR value = centred(source, from + n * step, n * BLOCK, mean) * SPLAT(VECTOR, factor);
        value = FMA(value, weights[n], weights[BLOCKS + n]);
        if (!IS_INSIDE(y, x)) value = SPLAT(VECTOR, 0.0f);
        const int to = (n * target_area + y * target_pitch + x) * BLOCK;
        STORE(VECTOR, target + to, value);
    }
}
