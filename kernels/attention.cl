// Attention in windows, fp32, without logits in memory.
//
//     target(q) = sum over keys k of softmax(queries(q) . keys(k) * SCALE + bias(k - q)) values(k)
//
// A group computes one head of one window, LANES queries in a work-item: all keys pass by in chunks
// through local memory; the highest logit so far, the sum of powers and the results are made smaller
// whenever a higher one comes. The order depends on the window's place in the picture alone.
//
// Layouts
//   queries, keys, values, target   maps, see maps.h
//   biases    [HEADS][BIAS_ROWS][BIAS_COLUMNS], by how a key lies to a query
//
// Macros
//   GROUP, UNIT, BLOCK       work-items of a group; see maps.h
//   LANES, VECTOR            queries of a work-item, and the type of a number of each
//   HEADS, DEPTH             heads, and planes of each
//   QUERY_PLANE, KEY_PLANE, VALUE_PLANE   the first of each
//   PART_PLANES              of the target's part, with what makes it up to whole blocks
//   WINDOW_ROWS, WINDOW_COLUMNS, OVERLAP, CELL   see waifu2x/networks/windows.py
//   SCALE
//   BIAS_ROWS, BIAS_COLUMNS  where there are biases
//   KEYS                     keys of a chunk
//
// Bound: fp32 multiply-adds.

#include "maps.h"

#ifdef ON_CPU
// Vectors of queries lie in memory in any case, and unrolled code takes seconds to compile.
#define EACH_PLANE NO_UNROLL
#else
#define EACH_PLANE UNROLL
#endif
#define QUERIES (WINDOW_ROWS * WINDOW_COLUMNS)
#define TOGETHER 4
#define LOWEST -3.0e38f
STATIC_ASSERT(chunks_are_whole, KEYS % TOGETHER == 0);

DEVICE int plane_at(int plane, int pixel, int area) {
    return (plane / BLOCK * area + pixel) * BLOCK + plane % BLOCK;
}

// Maps begin at their own corners, which are `*_top`, `*_left`. Windows from (top, left) on, `down` of
// them below one another; the map of queries has `rows` x `columns`, that of keys `key_rows` x
// `key_columns`; `filled_rows`, `filled_columns`: the first as it is when filled up.
KERNEL_FOR(GROUP, 4)
attention(MAP(const GLOBAL float *RESTRICT, queries), MAP(const GLOBAL float *RESTRICT, keys),
          MAP(const GLOBAL float *RESTRICT, values), MAP(GLOBAL float *RESTRICT, target),
          const GLOBAL float *RESTRICT biases, const int query_top, const int query_left,
          const int key_top, const int key_left, const int value_top, const int value_left,
          const int target_top, const int target_left, const int first_top, const int first_left,
          const int down, const int rows, const int columns, const int key_rows,
          const int key_columns, const int filled_rows, const int filled_columns) {
    LOCAL_MEMORY float near_keys[KEYS * DEPTH];
    LOCAL_MEMORY float near_values[KEYS * DEPTH];
    LOCAL_MEMORY int slots[KEYS];
    const int head = GROUP_ID(1), picture = GROUP_ID(2) / down;
    const int top = first_top + GROUP_ID(2) % down * WINDOW_ROWS;
    const int left = first_left + GROUP_ID(0) * WINDOW_COLUMNS;
    FIND(queries, BLOCK, picture);
    FIND(keys, BLOCK, picture);
    FIND(values, BLOCK, picture);
    FIND(target, BLOCK, picture);
    const int first_row = (max(top, 0) - OVERLAP) / CELL;
    const int first_column = (max(left, 0) - OVERLAP) / CELL;
    const int height = (min(top + WINDOW_ROWS, filled_rows) + OVERLAP) / CELL - first_row;
    const int width = (min(left + WINDOW_COLUMNS, filled_columns) + OVERLAP) / CELL - first_column;
    const int count = height > 0 && width > 0 ? height * width : 0;
    NO_UNROLL for (int first = 0; first < QUERIES; first += GROUP * LANES) {
        VECTOR query[DEPTH], made[DEPTH];
        VECTOR highest = SPLAT(VECTOR, LOWEST), sum = SPLAT(VECTOR, 0.0f);
        int own[LANES];
        NO_UNROLL for (int lane = 0; lane < LANES; lane++) {
            const int number = first + LOCAL_ID() * LANES + lane;
            const int y = top + number / WINDOW_COLUMNS, x = left + number % WINDOW_COLUMNS;
            const int inside = number < QUERIES && y >= 0 && y < rows && x >= 0 && x < columns;
            const int pixel = inside ? (y - query_top) * queries_pitch + x - query_left : 0;
            EACH_PLANE for (int d = 0; d < DEPTH; d++)
                ((float *)&query[d])[lane] =
                    inside ? queries[plane_at(QUERY_PLANE + head * DEPTH + d, pixel, queries_area)] *
                                 SCALE
                           : 0.0f;
            own[lane] = 0;
#ifdef BIAS_COLUMNS
            if (inside)
                own[lane] = (WINDOW_ROWS / CELL - 1 - (y - top) / CELL) * BIAS_COLUMNS +
                            WINDOW_COLUMNS / CELL - 1 - (x - left) / CELL +
                            head * (BIAS_ROWS * BIAS_COLUMNS);
#endif
        }
        EACH_PLANE for (int d = 0; d < DEPTH; d++) made[d] = SPLAT(VECTOR, 0.0f);
        NO_UNROLL for (int chunk = 0; chunk < count; chunk += KEYS) {
            BARRIER();
            NO_UNROLL for (int item = LOCAL_ID(); item < KEYS * DEPTH; item += GROUP) {
                const int key = chunk + item / DEPTH, plane = head * DEPTH + item % DEPTH;
                const int y = first_row + key / width, x = first_column + key % width;
                const int inside =
                    key < count && y >= 0 && y < key_rows && x >= 0 && x < key_columns;
                const int key_pixel = (y - key_top) * keys_pitch + x - key_left;
                const int value_pixel = (y - value_top) * values_pitch + x - value_left;
                near_keys[item] =
                    inside ? keys[plane_at(KEY_PLANE + plane, key_pixel, keys_area)] : 0.0f;
                near_values[item] =
                    inside ? values[plane_at(VALUE_PLANE + plane, value_pixel, values_area)] : 0.0f;
#ifdef BIAS_COLUMNS
                if (item % DEPTH == 0)
                    slots[item / DEPTH] =
                        key < count ? (y - (top - OVERLAP) / CELL) * BIAS_COLUMNS + x -
                                          (left - OVERLAP) / CELL
                                    : 0;
#endif
            }
            BARRIER();
            const int end = min(count - chunk, KEYS);
            NO_UNROLL for (int begin = 0; begin < end; begin += TOGETHER) {
                VECTOR logits[TOGETHER];
                VECTOR top_logit = highest;
                UNROLL for (int n = 0; n < TOGETHER; n++) {
                    const LOCAL float *key = near_keys + (begin + n) * DEPTH;
                    VECTOR logit = SPLAT(VECTOR, 0.0f);
#ifdef BIAS_COLUMNS
                    UNROLL for (int lane = 0; lane < LANES; lane++)
                        ((float *)&logit)[lane] = biases[own[lane] + slots[begin + n]];
#endif
                    EACH_PLANE for (int d = 0; d < DEPTH; d++)
                        logit = FMA(query[d], SPLAT(VECTOR, key[d]), logit);
                    logits[n] = begin + n < end ? logit : SPLAT(VECTOR, LOWEST);
                    top_logit = MAX(top_logit, logits[n]);
                }
                const VECTOR smaller = EXP(VECTOR, highest - top_logit);
                highest = top_logit;
                sum = sum * smaller;
                EACH_PLANE for (int d = 0; d < DEPTH; d++) made[d] = made[d] * smaller;
                UNROLL for (int n = 0; n < TOGETHER; n++) {
                    const LOCAL float *value = near_values + (begin + n) * DEPTH;
                    const VECTOR power = EXP(VECTOR, logits[n] - highest);
                    sum = sum + power;
                    EACH_PLANE for (int d = 0; d < DEPTH; d++)
                        made[d] = FMA(power, SPLAT(VECTOR, value[d]), made[d]);
                }
            }
        }
        NO_UNROLL for (int lane = 0; lane < LANES; lane++) {
            const int number = first + LOCAL_ID() * LANES + lane;
            if (number >= QUERIES) continue;
            const int y = top + number / WINDOW_COLUMNS, x = left + number % WINDOW_COLUMNS;
            const int inside = y >= 0 && y < rows && x >= 0 && x < columns;
            const int pixel = (y - target_top) * target_pitch + x - target_left;
            const float share = 1.0f / ((float *)&sum)[lane];
            EACH_PLANE for (int d = 0; d < DEPTH; d++)
                target[plane_at(head * DEPTH + d, pixel, target_area)] =
                    inside ? ((float *)&made[d])[lane] * share : 0.0f;
            if (head == HEADS - 1)
                for (int plane = HEADS * DEPTH; plane < PART_PLANES; plane++)
                    target[plane_at(plane, pixel, target_area)] = 0.0f;
        }
    }
}
