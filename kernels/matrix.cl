// Convolutions of 1x1 or 3x3 taps as matrix products of 16-bit floats, summed in fp32: pixels times
// input planes by input planes times output planes.
//
//     target(y, x, o) = epilogue(bias(o) + sum over i, dy, dx of
//                                weight(o, i, dy, dx) * source(y + dy, x + dx, i))
//
// A group makes ROWS x COLUMNS pixels of OUT_GROUP planes. For CHUNK input planes at a time it copies their
// pixels with the border, and their weights, into shared memory. A subgroup multiplies SUB_M rows of
// MATRIX_M pixels by SUB_N times MATRIX_N planes; a row of pixels is loaded once for all taps of a column.
// The next chunk is read into registers while this one is multiplied.
// Sums are added up in the order of planes, columns of taps, rows of taps, at every size.
//
// Layouts
//   source, target, residual   see maps.h; the epilogue and the store are those of result.h
//   weights  16-bit floats [groups of planes][chunk][tap down][tap across][in plane][OUT_GROUP]
//   bias     [planes], then as many slopes
//
// Macros, with those of result.h, matrices.h and, where results are pixels, of levels.h
//   TAPS                   in each direction
//   IN_BLOCKS              blocks of the source
//   CHUNKS                 of input planes, each CHUNK / BLOCK blocks; the last may be cut
//   GROUP                  work-items of a group
//   SUB_M, SUB_N           see above
//   SUBS_Y, SUBS_X, SUBS_N subgroups down, across, and side by side in planes
//
// Bound: matrix products, in the middle of a network. Best: NVIDIA H200, 2026-11-27, 128 > 128 planes,
// 1920x1080: 1.53 ms, 400 TFLOP/s of the units' 608; 64 > 64 0.46 ms, 331 TFLOP/s.

#include "matrices.h"
#include "result.h"

#define ROWS (SUBS_Y * SUB_M)
#define COLUMNS (SUBS_X * MATRIX_M)
#define OUT_GROUP (SUBS_N * SUB_N * MATRIX_N)
#define BORDER (TAPS - 1)
#define PATCH_COLUMNS (COLUMNS + BORDER)
#define PATCH ((ROWS + BORDER) * PATCH_COLUMNS)
#define BLOCKS (CHUNK / BLOCK)
// An odd number of vectors from a pixel, and from a row of weights, to the next: other banks.
#define PIXEL (BLOCKS + 1)
#define WEIGHT_ROW (OUT_GROUP / BLOCK + 1)
#define PIXEL_ITEMS (PATCH * BLOCKS)
#define PIXEL_READS ((PIXEL_ITEMS + GROUP - 1) / GROUP)
#define WEIGHT_ITEMS (TAPS * TAPS * CHUNK * (OUT_GROUP / BLOCK))
#define WEIGHT_READS ((WEIGHT_ITEMS + GROUP - 1) / GROUP)
#define WEIGHTS (PATCH * PIXEL)
#define STAGED (WEIGHTS + TAPS * TAPS * CHUNK * WEIGHT_ROW)
// Sums of a row of pixels of every subgroup, which take the place of the last chunk.
#define SUM_ROW (SUB_N * MATRIX_N / 4 + 1)
#define SUM_PART (MATRIX_M * SUM_ROW)
#define SUM_ITEMS (MATRIX_M * SUB_N * MATRIX_N / 4)
#define RESULTS (SUBS_Y * SUBS_X * SUBS_N * SUM_PART)

STATIC_ASSERT(blocks_are_vectors, BLOCK == 8);
STATIC_ASSERT(group_is_of_subgroups, GROUP == SUBS_Y * SUBS_X * SUBS_N * SUB);

// Whether an item of `items` is one that a work-item copies in its turn `i`.
#define HAS_ITEM(i, items) ((i + 1) * GROUP <= (items) || (i)*GROUP + LOCAL_ID() < (items))

#define READ_CHUNK(chunk)                                                                          \
    EACH for (int i = 0; i < PIXEL_READS; i++) {                                                   \
        const int item = i * GROUP + LOCAL_ID(), block = item / PATCH, pixel = item % PATCH;       \
        const int place = (block + (chunk)*BLOCKS) * source_area +                                 \
                          pixel / PATCH_COLUMNS * source_pitch + pixel % PATCH_COLUMNS;            \
        if (HAS_ITEM(i, PIXEL_ITEMS)) {                                                            \
            if (IN_BLOCKS % BLOCKS == 0 || block + (chunk)*BLOCKS < IN_BLOCKS) {                   \
                READ(pixels[i], from + place * BLOCK);                                             \
            } else {                                                                               \
                CLEAR(pixels[i]);                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    EACH for (int i = 0; i < WEIGHT_READS; i++) {                                                  \
        const int item = i * GROUP + LOCAL_ID();                                                   \
        if (HAS_ITEM(i, WEIGHT_ITEMS))                                                             \
            READ(factors[i], weights + (item + (chunk)*WEIGHT_ITEMS) * BLOCK);                     \
    }

#define PUT_CHUNK()                                                                                \
    EACH for (int i = 0; i < PIXEL_READS; i++) {                                                   \
        const int item = i * GROUP + LOCAL_ID(), block = item / PATCH, pixel = item % PATCH;       \
        if (HAS_ITEM(i, PIXEL_ITEMS)) PUT(shared, pixel * PIXEL + block, pixels[i]);               \
    }                                                                                              \
    EACH for (int i = 0; i < WEIGHT_READS; i++) {                                                  \
        const int item = i * GROUP + LOCAL_ID();                                                   \
        const int row = item / (OUT_GROUP / BLOCK), part = item % (OUT_GROUP / BLOCK);             \
        if (HAS_ITEM(i, WEIGHT_ITEMS)) PUT(shared, WEIGHTS + row * WEIGHT_ROW + part, factors[i]); \
    }

// `row_groups` are the groups down a picture: those of all pictures follow each other.
KERNEL(GROUP)
matrix(MAP(const GLOBAL half *RESTRICT, source), const GLOBAL half *RESTRICT weights,
       const GLOBAL float4 *RESTRICT bias, const int row_groups, STORE_ARGUMENTS CHECK_ARGUMENTS) {
    SHARED(shared, STAGED > RESULTS ? STAGED : RESULTS);
    HELD(pixels, PIXEL_READS);
    HELD(factors, WEIGHT_READS);
    SUMS(sums, SUB_M, SUB_N);
    const int subgroup = SUBGROUP, lane = LANE;
    const int picture = GROUP_ID(2) / row_groups, row_group = GROUP_ID(2) % row_groups;
    const int y_group = row_group * ROWS, x_group = GROUP_ID(1) * COLUMNS;
    const int y_own = subgroup / (SUBS_N * SUBS_X) * SUB_M;
    const int x_own = subgroup / SUBS_N % SUBS_X * MATRIX_M;
    const int n_own = subgroup % SUBS_N * SUB_N * MATRIX_N;

    FIND(source, BLOCK, picture);
    FIND_TARGET(picture);
    FIND_RESIDUAL(picture);
    const GLOBAL half *from = source + (y_group * source_pitch + x_group) * BLOCK;
    weights += GROUP_ID(0) * (CHUNKS * WEIGHT_ITEMS * BLOCK);

    EACH for (int m = 0; m < SUB_M; m++) {
        EACH for (int n = 0; n < SUB_N; n++) {
            ZERO(sums[m][n]);
        }
    }
    READ_CHUNK(0)
    NO_UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
        PUT_CHUNK()
        BARRIER();
        if (chunk + 1 < CHUNKS) {
            READ_CHUNK(chunk + 1)
        }
        EACH for (int k = 0; k < CHUNK; k += MATRIX_K) {
            EACH for (int dx = 0; dx < TAPS; dx++) {
                LEFTS(lefts, SUB_M + BORDER);
                EACH for (int m = 0; m < SUB_M + BORDER; m++)
                    LOAD_LEFT(lefts[m], shared,
                              ((y_own + m) * PATCH_COLUMNS + x_own + dx) * PIXEL + k / BLOCK, PIXEL);
                EACH for (int dy = 0; dy < TAPS; dy++) {
                    RIGHTS(rights, SUB_N);
                    EACH for (int n = 0; n < SUB_N; n++)
                        LOAD_RIGHT(rights[n], shared,
                                   WEIGHTS + ((dy * TAPS + dx) * CHUNK + k) * WEIGHT_ROW +
                                       n_own / BLOCK + n * (MATRIX_N / BLOCK),
                                   WEIGHT_ROW);
                    EACH for (int m = 0; m < SUB_M; m++) {
                        EACH for (int n = 0; n < SUB_N; n++) {
                            MULTIPLY(lefts[m + dy], rights[n], sums[m][n]);
                        }
                    }
                }
            }
        }
        BARRIER();
    }

    const int results = subgroup * SUM_PART;
    EACH for (int m = 0; m < SUB_M; m++) {
        EACH for (int n = 0; n < SUB_N; n++)
            STORE_SUMS(sums[m][n], shared, results + n * (MATRIX_N / 4), SUM_ROW);
        SUBGROUP_BARRIER();
        EACH for (int turn = 0; turn < (SUM_ITEMS + SUB - 1) / SUB; turn++) {
            const int item = turn * SUB + lane, pixel = item % MATRIX_M, quad = item / MATRIX_M;
            const int plane = GROUP_ID(0) * OUT_GROUP + n_own + quad * 4;
            if (SUM_ITEMS % SUB > 0 && item >= SUM_ITEMS) continue;
            if (HAS_SPARE && plane >= STORED) continue;
            const int y = y_group + y_own + m, x = x_group + x_own + pixel;
            const float4 sum = QUAD(shared, results + pixel * SUM_ROW + quad);
            if (plane == 0) {
                CHECK_SUM(sum.x, y, x, picture);
            }
            const float4 slope = SLOPE_AT(float4, bias + OUT_PLANES / 4, plane / 4);
            store_result(ACTIVATE(float4, sum + bias[plane / 4], slope), y, x, plane, STORE_NAMES);
        }
        SUBGROUP_BARRIER();
    }
}
