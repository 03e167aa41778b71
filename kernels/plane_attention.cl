// Attention between planes in windows, fp32, without weights in memory.
//
//     target(pixel, i) = sum over j of softmax over j of q(i) . k(j) / |q(i)| / |k(j)| * temperature
//                        times values(pixel, j), of each head; sums and norms are over a window
//
// A group computes one head of one window: runs of PIXELS pass by in local memory, and so do the sums.
// The order depends on the window's place in the picture alone.
//
// Layouts
//   queries, keys, values, target   maps, see maps.h
//   temperatures                    [HEADS]
//
// Macros
//   GROUP, UNIT, BLOCK       work-items of a group; see maps.h
//   HEADS, DEPTH             heads, and planes of each
//   QUERY_PLANE, KEY_PLANE, VALUE_PLANE   the first of each
//   PART_PLANES              of the target's part, with what makes it up to whole blocks
//   WINDOW                   rows and columns of a window
//   PIXELS                   see above
//
// Bound: memory.

#include "maps.h"

#define PAIRS (DEPTH * DEPTH)
#define OWN (PAIRS + 2 * DEPTH)

DEVICE int plane_at(int plane, int pixel, int area) {
    return (plane / BLOCK * area + pixel) * BLOCK + plane % BLOCK;
}

// Maps begin at their own corners, which are `*_top`, `*_left`. Windows from (top, left) on, `down` of
// them below one another; the maps of queries, keys and values have `rows` x `columns`. Pixels beyond
// become zero.
KERNEL(GROUP)
plane_attention(MAP(const GLOBAL float *RESTRICT, queries), MAP(const GLOBAL float *RESTRICT, keys),
                MAP(const GLOBAL float *RESTRICT, values), MAP(GLOBAL float *RESTRICT, target),
                const GLOBAL float *RESTRICT temperatures, const int query_top,
                const int query_left, const int key_top, const int key_left, const int value_top,
                const int value_left, const int target_top, const int target_left,
                const int first_top, const int first_left, const int down, const int rows,
                const int columns) {
    LOCAL_MEMORY float near[PIXELS * 2 * DEPTH];
    LOCAL_MEMORY float sums[OWN];
    const int head = GROUP_ID(1), picture = GROUP_ID(2) / down;
    const int top = first_top + GROUP_ID(2) % down * WINDOW, left = first_left + GROUP_ID(0) * WINDOW;
    FIND(queries, BLOCK, picture);
    FIND(keys, BLOCK, picture);
    FIND(values, BLOCK, picture);
    FIND(target, BLOCK, picture);
    const int height = min(WINDOW, rows - top), width = min(WINDOW, columns - left);
    const int count = top >= 0 && left >= 0 && height > 0 && width > 0 ? height * width : 0;
    NO_UNROLL for (int element = LOCAL_ID(); element < OWN; element += GROUP) sums[element] = 0.0f;
    NO_UNROLL for (int begin = 0; begin < count; begin += PIXELS) {
        BARRIER();
        NO_UNROLL for (int item = LOCAL_ID(); item < PIXELS * 2 * DEPTH; item += GROUP) {
            const int number = begin + item / (2 * DEPTH), plane = item % (2 * DEPTH);
            const int y = top + number / width, x = left + number % width;
            float value = 0.0f;
            if (number < count && plane < DEPTH)
                value = queries[plane_at(QUERY_PLANE + head * DEPTH + plane,
                                         (y - query_top) * queries_pitch + x - query_left,
                                         queries_area)];
            else if (number < count)
                value = keys[plane_at(KEY_PLANE + head * DEPTH + plane - DEPTH,
                                      (y - key_top) * keys_pitch + x - key_left, keys_area)];
            near[item] = value;
        }
        BARRIER();
        NO_UNROLL for (int element = LOCAL_ID(); element < OWN; element += GROUP) {
            const int one = element < PAIRS ? element / DEPTH : element - PAIRS;
            const int other = element < PAIRS ? DEPTH + element % DEPTH : one;
            float sum = sums[element];
            NO_UNROLL for (int pixel = 0; pixel < PIXELS; pixel++) {
                const LOCAL float *planes = near + pixel * 2 * DEPTH;
                sum = FMA(planes[one], planes[other], sum);
            }
            sums[element] = sum;
        }
    }
    BARRIER();
    NO_UNROLL for (int query = LOCAL_ID(); query < DEPTH; query += GROUP) {
        LOCAL float *row = sums + query * DEPTH;
        const float scale = temperatures[head] / MAX(SQRT(sums[PAIRS + query]), 1e-12f);
        float highest = -3.0e38f, sum = 0.0f;
        NO_UNROLL for (int key = 0; key < DEPTH; key++) {
            row[key] = row[key] * scale / MAX(SQRT(sums[PAIRS + DEPTH + key]), 1e-12f);
            highest = MAX(highest, row[key]);
        }
        NO_UNROLL for (int key = 0; key < DEPTH; key++) {
            row[key] = EXP(float, row[key] - highest);
            sum += row[key];
        }
        NO_UNROLL for (int key = 0; key < DEPTH; key++) row[key] /= sum;
    }
    BARRIER();
    const int last = head == HEADS - 1 ? PART_PLANES - head * DEPTH : DEPTH;
    NO_UNROLL for (int item = LOCAL_ID(); item < WINDOW * WINDOW * last; item += GROUP) {
        const int number = item / last, plane = item % last;
        const int y = top + number / WINDOW, x = left + number % WINDOW;
        float sum = 0.0f;
        if (plane < DEPTH && y >= 0 && y < rows && x >= 0 && x < columns) {
            const int pixel = (y - value_top) * values_pitch + x - value_left;
            NO_UNROLL for (int key = 0; key < DEPTH; key++) {
                const int at = plane_at(VALUE_PLANE + head * DEPTH + key, pixel, values_area);
                sum = FMA(sums[plane * DEPTH + key], values[at], sum);
            }
        }
        target[plane_at(head * DEPTH + plane, (y - target_top) * target_pitch + x - target_left,
                        target_area)] = sum;
    }
}
