// 3x3 convolutions by Winograd's minimal filtering, fp32: everything in one kernel.
//
// A cell of CELL_Y x CELL_X results needs (CELL_Y + 2) x (CELL_X + 2) inputs. Inputs and weights
// are transformed to as many frequencies; there the sum over input planes is a matrix product
// for each frequency, and a last transform brings M back to results:
//
//     V[f][i][cell] = transform of the inputs
//     M[f][cell][o] = sum over i of V[f][i][cell] * U[f][i][o]     F(4x4): 36 multiplications, not 144
//     target        = epilogue(transform of M + bias)                  F(2x2): 16, not 36
//
// A group makes CELLS cells x OUTS output planes, and M stays in its registers: a work-item has
// CELLS_ITEM cells x OUTS_ITEM planes of FREQUENCIES_ITEM frequencies. Input planes come in chunks
// of DEPTH: down the columns of the group's pixels they are transformed on their way to local
// memory (T), then along the rows from there into V. The pixels of the next chunk are under way
// while a chunk is multiplied. U goes straight to registers, one plane ahead: each of its values
// has but one reader.
//
// The transforms interpolate at 0, ±3/4, ±3/2 and infinity for four results, at 0, ±1 and infinity
// for two.
//
// Layouts
//   source, target, residual   see maps.h, with blocks of 4; the epilogue and the store are store.h's
//   U      [groups of planes][in plane][frequency][OUTS], one spare [frequency][OUTS] at the end
//   bias   [out plane], then as many slopes
//   T      [frequency down][block of the chunk][cell row][column][4], columns padded to 8n + 1
//   V      [frequency][plane of the chunk][cell], planes and frequencies padded as below
// The paddings spread simultaneous accesses over all banks.
//
// Macros, with those of store.h
//   IN_PLANES, OUT_PLANES       padded to whole chunks and groups of planes
//   CELL_Y, CELL_X              results of a cell, 2 or 4 each
//   TILE_Y, TILE_X              cells of a group, TILE_Y a multiple of 4
//   OUTS                        output planes of a group
//   CELLS_ITEM, OUTS_ITEM, FREQUENCIES_ITEM   sums of a work-item, see above; multiples of 4, 4, 1
//   DEPTH                       input planes of a chunk, a multiple of 4
//   GROUP, LOCAL_FLOATS         work-items of a group, and their local memory: T and V, or M
//
// Bound: fp32 multiply-adds, then the L2 cache, from which U and the inputs come again for every
// group. Best: NVIDIA H200, 2026-11-21, 128 > 128 planes, 1920x1080: F(4x4) 7.69 ms, F(2x4) 7.77 ms,
// 79 TFLOP/s by the definition of convolution, 1.65 of what the multiply-add units reach.

#include "store.h"

// A result of a cell in the target and the residual, from the places of the cell's first.
#if S2D == 1
#define TARGET_OF(i, j) place[((i) * target_pitch + (j)) * (D2S * BLOCK)]
#else
#define TARGET_OF(i, j) target[target_place(y + (i), x + (j), plane, target_pitch, target_area)]
#endif
#define RESIDUAL_OF(i, j) other[((i) * residual_pitch + (j)) * BLOCK]

#define FREQUENCIES_Y (CELL_Y + 2)
#define FREQUENCIES_X (CELL_X + 2)
#define FREQUENCIES (FREQUENCIES_Y * FREQUENCIES_X)
#define CELLS (TILE_Y * TILE_X)
#define CELL_LANES (CELLS / CELLS_ITEM)
#define OUT_LANES (OUTS / OUTS_ITEM)
#define LANES (CELL_LANES * OUT_LANES)
STATIC_ASSERT(group_is_of_lanes_and_frequencies, GROUP == LANES * FREQUENCIES / FREQUENCIES_ITEM);

#define COLUMNS (TILE_X * CELL_X + 2)
#define BLOCKS (DEPTH / 4)
#define DOWN_ITEMS (TILE_Y * COLUMNS * DEPTH)
#define DOWN_STEPS ((DOWN_ITEMS + GROUP - 1) / GROUP)
#define ALONG_ITEMS (FREQUENCIES_Y * CELLS * DEPTH)

#define T_ROW ((COLUMNS / 8 * 8 + (COLUMNS % 8 > 1 ? 9 : 1)) * 4)
#define T_FREQUENCY (BLOCKS * TILE_Y * T_ROW)
#define V_PLANE (CELLS / 16 * 16 + 8)
#define V_FREQUENCY (DEPTH * V_PLANE + 16)
#define V_FLOATS (FREQUENCIES * V_FREQUENCY)
#define T_FLOATS (FREQUENCIES_Y * T_FREQUENCY)

// Results go back through local memory, SLICE planes of all cells at a time.
#define SLICE 8
#define M_FREQUENCY (CELLS * SLICE)
#define M_FLOATS (FREQUENCIES * M_FREQUENCY)
STATIC_ASSERT(local_memory_holds_t_and_v_or_m,
              LOCAL_FLOATS == (V_FLOATS + T_FLOATS > M_FLOATS ? V_FLOATS + T_FLOATS : M_FLOATS));

// B^T d of four results: 12 operations.
DEVICE void input_4(const float *d, float *v) {
    const float even_a = FMA(d[2], -2.25f, d[4]), even_b = FMA(d[2], -0.5625f, d[4]);
    const float odd_a = FMA(d[1], -2.25f, d[3]), odd_b = FMA(d[1], -0.5625f, d[3]);
    v[0] = FMA(d[0], 1.265625f, FMA(d[2], -2.8125f, d[4]));
    v[1] = FMA(odd_a, 0.75f, even_a);
    v[2] = FMA(odd_a, -0.75f, even_a);
    v[3] = FMA(odd_b, 1.5f, even_b);
    v[4] = FMA(odd_b, -1.5f, even_b);
    v[5] = FMA(d[1], 1.265625f, FMA(d[3], -2.8125f, d[5]));
}

DEVICE void input_2(const float *d, float *v) {
    v[0] = d[2] - d[0];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
}

// A^T m.
DEVICE void output_4(const float *m, float *r) {
    const float sum_a = m[1] + m[2], sum_b = m[3] + m[4];
    const float difference_a = m[1] - m[2], difference_b = m[3] - m[4];
    r[0] = m[0] + (sum_a + sum_b);
    r[1] = FMA(difference_b, 1.5f, difference_a * 0.75f);
    r[2] = FMA(sum_b, 2.25f, sum_a * 0.5625f);
    r[3] = m[5] + FMA(difference_b, 3.375f, difference_a * 0.421875f);
}

DEVICE void output_2(const float *m, float *r) {
    r[0] = m[0] + (m[1] + m[2]);
    r[1] = m[3] + (m[1] - m[2]);
}

#if CELL_Y == 4
#define INPUT_Y input_4
#define OUTPUT_Y output_4
#else
#define INPUT_Y input_2
#define OUTPUT_Y output_2
#endif
#if CELL_X == 4
#define INPUT_X input_4
#define OUTPUT_X output_4
#else
#define INPUT_X input_2
#define OUTPUT_X output_2
#endif

// One column of a cell row and one plane: FREQUENCIES_Y pixels.
DEVICE void fetch(float pixels[DOWN_STEPS][FREQUENCIES_Y], const GLOBAL float *RESTRICT source,
                  int pitch, int area, int chunk) {
    UNROLL for (int step = 0; step < DOWN_STEPS; step++) {
        const int item = step * GROUP + LOCAL_ID();
        if (item < DOWN_ITEMS) {
            const int plane = item % 4, x = item / 4 % COLUMNS, rest = item / (4 * COLUMNS);
            const int y = rest % TILE_Y * CELL_Y, block = rest / TILE_Y;
            const GLOBAL float *column =
                source + ((chunk * BLOCKS + block) * area + y * pitch + x) * 4 + plane;
            UNROLL for (int i = 0; i < FREQUENCIES_Y; i++) pixels[step][i] = column[i * pitch * 4];
        }
    }
}

// Those pixels, transformed, into T.
DEVICE void transform_down(float pixels[DOWN_STEPS][FREQUENCIES_Y], LOCAL float *t) {
    UNROLL for (int step = 0; step < DOWN_STEPS; step++) {
        const int item = step * GROUP + LOCAL_ID();
        if (item < DOWN_ITEMS) {
            const int plane = item % 4, x = item / 4 % COLUMNS, rest = item / (4 * COLUMNS);
            const int y = rest % TILE_Y, block = rest / TILE_Y;
            float values[FREQUENCIES_Y];
            INPUT_Y(pixels[step], values);
            LOCAL float *place = t + (block * TILE_Y + y) * T_ROW + x * 4 + plane;
            UNROLL for (int i = 0; i < FREQUENCIES_Y; i++) place[i * T_FREQUENCY] = values[i];
        }
    }
}

// T, transformed along rows, into V.
DEVICE void transform_along(const LOCAL float *t, LOCAL float *v) {
    UNROLL for (int step = 0; step * GROUP < ALONG_ITEMS; step++) {
        const int item = step * GROUP + LOCAL_ID();
        if (item < ALONG_ITEMS) {
            const int plane = item % 4, y = item / 4 % TILE_Y, x = item / (4 * TILE_Y) % TILE_X;
            const int rest = item / (4 * CELLS), frequency = rest % FREQUENCIES_Y;
            const int block = rest / FREQUENCIES_Y;
            const LOCAL float *row = t + frequency * T_FREQUENCY + (block * TILE_Y + y) * T_ROW +
                                     x * CELL_X * 4 + plane;
            float pixels[FREQUENCIES_X], values[FREQUENCIES_X];
            UNROLL for (int i = 0; i < FREQUENCIES_X; i++) pixels[i] = row[i * 4];
            INPUT_X(pixels, values);
            LOCAL float *place = v + frequency * FREQUENCIES_X * V_FREQUENCY +
                                 (block * 4 + plane) * V_PLANE + x * TILE_Y + y;
            UNROLL for (int i = 0; i < FREQUENCIES_X; i++) place[i * V_FREQUENCY] = values[i];
        }
    }
}

KERNEL(GROUP)
winograd(MAP(const GLOBAL float *RESTRICT, source), const GLOBAL float4 *RESTRICT weights,
         const GLOBAL float *RESTRICT bias, const int row_groups, STORE_ARGUMENTS) {
    LOCAL_MEMORY float4 memory[LOCAL_FLOATS / 4];
    LOCAL float *v = (LOCAL float *)memory, *t = v + V_FLOATS;

    const int cell_lane = LOCAL_ID() % CELL_LANES;
    const int out_lane = LOCAL_ID() / CELL_LANES % OUT_LANES;
    const int first_frequency = LOCAL_ID() / LANES * FREQUENCIES_ITEM;
    const int planes = GROUP_ID(0) * OUTS;
    const int picture = GROUP_ID(2) / row_groups, row_group = GROUP_ID(2) % row_groups;
    const int x_first = GROUP_ID(1) * (TILE_X * CELL_X), y_first = row_group * (TILE_Y * CELL_Y);

    float sums[FREQUENCIES_ITEM][CELLS_ITEM][OUTS_ITEM];
    UNROLL for (int f = 0; f < FREQUENCIES_ITEM; f++)
        UNROLL for (int c = 0; c < CELLS_ITEM; c++)
            UNROLL for (int o = 0; o < OUTS_ITEM; o++) sums[f][c][o] = 0.0f;

    FIND(source, BLOCK, picture);
    FIND(target, BLOCK, picture);
#ifdef RESIDUAL
    FIND(residual, BLOCK, picture);
#endif
    source += (y_first * source_pitch + x_first) * 4;
    float pixels[DOWN_STEPS][FREQUENCIES_Y];
    fetch(pixels, source, source_pitch, source_area, 0);
    transform_down(pixels, t);

    const int first_row = GROUP_ID(0) * (IN_PLANES * FREQUENCIES) + first_frequency;
    const GLOBAL float4 *weight = weights + first_row * (OUTS / 4) + out_lane;
    // The weights of this plane and of the next one, in turn.
    float4 u[2][FREQUENCIES_ITEM][OUTS_ITEM / 4];
    UNROLL for (int f = 0; f < FREQUENCIES_ITEM; f++)
        UNROLL for (int o = 0; o < OUTS_ITEM / 4; o++)
            u[0][f][o] = weight[f * (OUTS / 4) + o * OUT_LANES];

    BARRIER();
    transform_along(t, v);
    BARRIER();

    const LOCAL float *mine = v + first_frequency * V_FREQUENCY + cell_lane * 4;
    NO_UNROLL for (int chunk = 0; chunk < IN_PLANES / DEPTH; chunk++) {
        // Past the last chunk the first one is fetched again, to no use.
        const int next = chunk + 1 < IN_PLANES / DEPTH ? chunk + 1 : 0;
        fetch(pixels, source, source_pitch, source_area, next);
        UNROLL for (int plane = 0; plane < DEPTH; plane++) {
            UNROLL for (int f = 0; f < FREQUENCIES_ITEM; f++) {
                UNROLL for (int o = 0; o < OUTS_ITEM / 4; o++)
                    u[(plane + 1) % 2][f][o] =
                        weight[((plane + 1) * FREQUENCIES + f) * (OUTS / 4) + o * OUT_LANES];
                const float4 *w = u[plane % 2][f];
                UNROLL for (int c = 0; c < CELLS_ITEM; c += 4) {
                    const float4 four = *(const LOCAL float4 *)(mine + f * V_FREQUENCY +
                                                                plane * V_PLANE + c * CELL_LANES);
                    const float cells[4] = {four.x, four.y, four.z, four.w};
                    UNROLL for (int n = 0; n < 4; n++) {
                        UNROLL for (int o = 0; o < OUTS_ITEM / 4; o++) {
                            float *sum = sums[f][c + n] + o * 4;
                            sum[0] = FMA(cells[n], w[o].x, sum[0]);
                            sum[1] = FMA(cells[n], w[o].y, sum[1]);
                            sum[2] = FMA(cells[n], w[o].z, sum[2]);
                            sum[3] = FMA(cells[n], w[o].w, sum[3]);
                        }
                    }
                }
            }
        }
        weight += DEPTH * FREQUENCIES * (OUTS / 4);
        transform_down(pixels, t);
        BARRIER();
        transform_along(t, v);
        BARRIER();
    }

    // M in slices of SLICE planes: [frequency][cell][SLICE].
    LOCAL float *m = v;
    UNROLL for (int slice = 0; slice < OUTS / SLICE; slice++) {
        const int o = slice / (OUT_LANES / 2), lane = slice % (OUT_LANES / 2) * 2;
        if (out_lane / 2 * 2 == lane) {
            UNROLL for (int f = 0; f < FREQUENCIES_ITEM; f++) {
                UNROLL for (int c = 0; c < CELLS_ITEM; c++) {
                    const int cell = (c / 4 * CELL_LANES + cell_lane) * 4 + c % 4;
                    LOCAL float *place = m + (first_frequency + f) * M_FREQUENCY + cell * SLICE +
                                         (out_lane - lane) * 4;
                    UNROLL for (int i = 0; i < 4; i++) place[i] = sums[f][c][o * 4 + i];
                }
            }
        }
        BARRIER();
        NO_UNROLL for (int item = LOCAL_ID(); item < CELLS * SLICE; item += GROUP) {
            const int part = item % SLICE, cell = item / SLICE;
            const int plane = planes + (o * OUT_LANES + lane) * 4 + part;
            float columns[FREQUENCIES_Y][CELL_X];
            UNROLL for (int i = 0; i < FREQUENCIES_Y; i++) {
                float row[FREQUENCIES_X];
                UNROLL for (int j = 0; j < FREQUENCIES_X; j++)
                    row[j] = m[(i * FREQUENCIES_X + j) * M_FREQUENCY + item];
                OUTPUT_X(row, columns[i]);
            }
            if (HAS_SPARE && plane >= STORED) continue;
            const float start = bias[plane], slope = SLOPE_AT(float, bias + OUT_PLANES, plane);
            const int y = y_first + cell % TILE_Y * CELL_Y, x = x_first + cell / TILE_Y * CELL_X;
#if S2D == 1
            GLOBAL float *place = target + target_place(y, x, plane, target_pitch, target_area);
#endif
#ifdef RESIDUAL
            const GLOBAL float *other =
                residual + residual_place(y, x, plane, residual_pitch, residual_area);
#endif
            UNROLL for (int j = 0; j < CELL_X; j++) {
                float column[FREQUENCIES_Y], results[CELL_Y];
                UNROLL for (int i = 0; i < FREQUENCIES_Y; i++) column[i] = columns[i][j];
                OUTPUT_Y(column, results);
                UNROLL for (int i = 0; i < CELL_Y; i++) {
                    float value = ACTIVATE(float, results[i] + start, slope);
#ifdef RESIDUAL
                    value = SUMMED(float, value, RESIDUAL_OF(i, j));
#else
                    value = SCALED(float, value);
#endif
                    if (!IS_INSIDE(target_y(y + i, plane), target_x(x + j, plane))) value = 0.0f;
                    TARGET_OF(i, j) = value;
                }
            }
        }
        BARRIER();
    }
}
