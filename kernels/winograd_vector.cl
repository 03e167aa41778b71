// 3x3 convolutions by Winograd's F(4x4, 3x3) for processors, fp32.
//
// The mathematics is that of winograd.cl, the order of the work another: on a processor a work-item
// is a group, its vectors hold neighbouring planes, and caches take the place of local
// memory that many work-items fill together. A group makes a row of CELLS cells, all planes of it:
//
//     V[f][cell][i]  transform of the inputs, down columns into T, then along rows
//     M[f][cell][o]  sum over i of V[f][cell][i] * U[f][i][o], VECTORS vectors of planes at once
//     target         epilogue(transform of M + bias)
//
// V stays in the second level cache for the whole group; the matrix product of one frequency stays
// in the first. It keeps LINE cells x VECTORS vectors of sums in registers.
//
// Layouts
//   source, target, residual   see maps.h, with blocks of WIDTH; the epilogue and the store are
//          store.h's
//   U      [out planes / (VECTORS * WIDTH)][frequency][in plane][VECTORS][WIDTH]
//   bias   [out plane], then as many slopes
//
// Macros, with those of store.h
//   IN_PLANES, OUT_PLANES  padded to whole vectors, and whole VECTORS of them
//   WIDTH, VECTOR          floats of a vector and its type
//   VECTORS, LINE          sums of a matrix product, see above
//   CELLS                  of a group, a multiple of LINE
//   LOCAL_FLOATS           of local memory: T, V and M
//
// Bound: fp32 multiply-adds. Best: 2 cores of Zen 4 behind PoCL 3.0 (AVX2), 2026-11-21,
// 128 > 128 planes, 400x200: 719 GFLOP/s by the definition of convolution, 3.1 of what the
// multiply-add units reach.

#include "store.h"

#define FREQUENCIES 36
#define COLUMNS (CELLS * 4 + 2)
#define IN_VECTORS (IN_PLANES / WIDTH)
STATIC_ASSERT(local_memory_holds_t_v_and_m,
              LOCAL_FLOATS == (6 * COLUMNS + FREQUENCIES * CELLS * (IN_VECTORS + VECTORS)) * WIDTH);

// B^T d: see input_4 of winograd.cl.
DEVICE void transform_input(const VECTOR *d, LOCAL VECTOR *v, int step) {
    const VECTOR even_a = FMA(d[2], -2.25f, d[4]), even_b = FMA(d[2], -0.5625f, d[4]);
    const VECTOR odd_a = FMA(d[1], -2.25f, d[3]), odd_b = FMA(d[1], -0.5625f, d[3]);
    v[0 * step] = FMA(d[0], 1.265625f, FMA(d[2], -2.8125f, d[4]));
    v[1 * step] = FMA(odd_a, 0.75f, even_a);
    v[2 * step] = FMA(odd_a, -0.75f, even_a);
    v[3 * step] = FMA(odd_b, 1.5f, even_b);
    v[4 * step] = FMA(odd_b, -1.5f, even_b);
    v[5 * step] = FMA(d[1], 1.265625f, FMA(d[3], -2.8125f, d[5]));
}

// A^T m.
DEVICE void transform_output(const VECTOR *m, VECTOR *r) {
    const VECTOR sum_a = m[1] + m[2], sum_b = m[3] + m[4];
    const VECTOR difference_a = m[1] - m[2], difference_b = m[3] - m[4];
    r[0] = m[0] + (sum_a + sum_b);
    r[1] = FMA(difference_b, 1.5f, difference_a * 0.75f);
    r[2] = FMA(sum_b, 2.25f, sum_a * 0.5625f);
    r[3] = m[5] + FMA(difference_b, 3.375f, difference_a * 0.421875f);
}

// A row of cells, from one vector of planes of a map into V.
DEVICE void transform_in(const GLOBAL VECTOR *RESTRICT source, int pitch, LOCAL VECTOR *t,
                         LOCAL VECTOR *v) {
    NO_UNROLL for (int x = 0; x < COLUMNS; x++) {
        VECTOR column[6];
        UNROLL for (int i = 0; i < 6; i++) column[i] = source[i * pitch + x];
        transform_input(column, t + x, COLUMNS);
    }
    NO_UNROLL for (int i = 0; i < 6; i++) {
        NO_UNROLL for (int cell = 0; cell < CELLS; cell++) {
            VECTOR row[6];
            UNROLL for (int j = 0; j < 6; j++) row[j] = t[i * COLUMNS + cell * 4 + j];
            transform_input(row, v + (i * 6 * CELLS + cell) * IN_VECTORS, CELLS * IN_VECTORS);
        }
    }
}

// One frequency of LINE cells: (LINE, in planes) by (in planes, VECTORS).
DEVICE void multiply(const LOCAL float *v, const GLOBAL VECTOR *RESTRICT u, LOCAL VECTOR *m) {
    VECTOR sums[LINE][VECTORS];
    UNROLL for (int n = 0; n < LINE; n++)
        UNROLL for (int o = 0; o < VECTORS; o++) sums[n][o] = SPLAT(VECTOR, 0.0f);
    NO_UNROLL for (int i = 0; i < IN_PLANES; i++) {
        UNROLL for (int n = 0; n < LINE; n++) {
            const VECTOR value = SPLAT(VECTOR, v[n * IN_PLANES + i]);
            UNROLL for (int o = 0; o < VECTORS; o++)
                sums[n][o] = FMA(u[i * VECTORS + o], value, sums[n][o]);
        }
    }
    UNROLL for (int n = 0; n < LINE; n++)
        UNROLL for (int o = 0; o < VECTORS; o++) m[n * VECTORS + o] = sums[n][o];
}

// One cell, from M to four by four results.
DEVICE void transform_out(const LOCAL VECTOR *m, VECTOR results[4][4]) {
    VECTOR rows[6][4];
    UNROLL for (int i = 0; i < 6; i++) {
        VECTOR row[6];
        UNROLL for (int j = 0; j < 6; j++) row[j] = m[(i * 6 + j) * CELLS * VECTORS];
        transform_output(row, rows[i]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        VECTOR column[6];
        UNROLL for (int i = 0; i < 6; i++) column[i] = rows[i][j];
        transform_output(column, results[j]);
    }
}

KERNEL(1)
winograd_vector(MAP(const GLOBAL VECTOR *RESTRICT, source), const GLOBAL VECTOR *RESTRICT weights,
                const GLOBAL VECTOR *RESTRICT bias, const int row_groups, STORE_ARGUMENTS) {
    LOCAL_MEMORY VECTOR t[6 * COLUMNS];
    LOCAL_MEMORY VECTOR v[FREQUENCIES * CELLS * IN_VECTORS];
    LOCAL_MEMORY VECTOR m[FREQUENCIES * CELLS * VECTORS];
    const int picture = GROUP_ID(2) / row_groups;
    const int x = GROUP_ID(1) * (CELLS * 4), y = GROUP_ID(2) % row_groups * 4;
    FIND(source, BLOCK, picture);
    FIND(target, BLOCK, picture);
#ifdef RESIDUAL
    FIND(residual, BLOCK, picture);
#endif

    NO_UNROLL for (int block = 0; block < IN_VECTORS; block++)
        transform_in(source + block * source_area + y * source_pitch + x, source_pitch, t,
                     v + block);

    const GLOBAL VECTOR *u = weights;
    NO_UNROLL for (int block = 0; block < OUT_PLANES / WIDTH; block += VECTORS) {
        NO_UNROLL for (int f = 0; f < FREQUENCIES; f++) {
            NO_UNROLL for (int cell = 0; cell < CELLS; cell += LINE)
                multiply((const LOCAL float *)v + (f * CELLS + cell) * IN_PLANES, u,
                         m + (f * CELLS + cell) * VECTORS);
            u += IN_PLANES * VECTORS;
        }
        NO_UNROLL for (int cell = 0; cell < CELLS; cell++) {
            NO_UNROLL for (int o = 0; o < VECTORS; o++) {
                const int plane = (block + o) * WIDTH;
                if (HAS_SPARE && plane >= STORED) continue;
                const VECTOR start = bias[block + o];
                const VECTOR slope = SLOPE_AT(VECTOR, bias + OUT_PLANES / WIDTH, block + o);
                VECTOR results[4][4];
                transform_out(m + cell * VECTORS + o, results);
                UNROLL for (int j = 0; j < 4; j++) {
                    UNROLL for (int i = 0; i < 4; i++) {
                        const int py = y + i, px = x + cell * 4 + j;
                        VECTOR value = ACTIVATE(VECTOR, results[j][i] + start, slope);
#ifdef RESIDUAL
                        const int from =
                            residual_place(py, px, plane, residual_pitch, residual_area);
                        value = SUMMED(VECTOR, value, *(const GLOBAL VECTOR *)(residual + from));
#else
                        value = SCALED(VECTOR, value);
#endif
                        if (!IS_INSIDE(target_y(py, plane), target_x(px, plane)))
                            value = SPLAT(VECTOR, 0.0f);
                        const int to = target_place(py, px, plane, target_pitch, target_area);
                        STORE(VECTOR, target + to, value);
                    }
                }
            }
        }
    }
}
