// Attention between planes of a whole map, fp32: planes times planes over the picture, weights of them,
// and planes mixed by weights.
//
//     multiply     partial(chunk) = sum over the chunk's pixels of q(i) k(j), of each head; then of the
//                  squares of all q; then of k
//     add          sums += sum over chunks of partial(chunk)
//     floats       vector = sums
//     weights      vector(head, j, i) = softmax over j of q(i) . k(j) / |q(i)| / |k(j)| * temperature
//     mix_planes   target(pixel, i) = sum over j of weights(head, j, i) values(pixel, j)
//
// A sum is two integers, which have the same bits in any order: numbers times 2^20, rounded, and their
// rounding errors times 2^50. One is not enough: sums are divided by norms, and those of a plane that is
// almost zero are as small as it is.
//
// With a PERIOD there are parts, one for each place in cells of PERIOD x PERIOD pixels, each with its own
// sums and weights.
//
// A group of `multiply` takes one head of a part, or a slice of its pairs of planes, and every
// CHUNKS-th row that the part has in a box of the map: runs of PIXELS pass by in local memory, sums stay
// in registers.
//
// Layouts
//   source, target   maps, see maps.h
//   sums             64-bit [picture][2][part][ELEMENTS], `step` from a picture to the next
//   partial          64-bit [picture][chunk][2][part][ELEMENTS]
//   vectors          float [picture][part][...], `step` from a picture to the next
//   temperatures     [HEADS]
//
// Macros
//   GROUP, UNIT, BLOCK   work-items of a group; see maps.h
//   HEADS, DEPTH         heads, and planes of each
//   PERIOD, CHUNKS, PIXELS   see above
//   EACH                 sums of a work-item
//
// Values beyond +-2^19 are clamped to it, so that 2^24 pixels cannot overflow a sum.
//
// Bound: memory.

#include "maps.h"

#ifdef ON_CPU
// A work-item has all sums of a slice: they lie in memory in any case.
#define EACH_SUM NO_UNROLL
#else
#define EACH_SUM UNROLL
#endif
#define PLANES (HEADS * DEPTH)
#define PAIRS (DEPTH * DEPTH)
#define OWN (PAIRS + 2 * DEPTH)
#define ELEMENTS (HEADS * OWN)
#define PARTS (PERIOD * PERIOD)
#define ALL (PARTS * ELEMENTS)
#define SLICE (GROUP * EACH)
#define SLICES ((OWN + SLICE - 1) / SLICE)
#define LARGEST 524288.0f
#define WHOLE 1048576.0f
#define REST 1125899906842624.0f

DEVICE int plane_at(int plane, int pixel, int area) {
    return (plane / BLOCK * area + pixel) * BLOCK + plane % BLOCK;
}

// By how many pixels, fewer than PERIOD, the next with that place in its cell follows one.
DEVICE int until(int place, int from) { return ((place - from) % PERIOD + PERIOD) % PERIOD; }

// Coordinates are pixels from the map's first one, which is at `map_top`, `map_left` of its value.
KERNEL_FOR(GROUP, 8)
multiply(MAP(const GLOBAL float *RESTRICT, source), const int query_plane, const int key_plane,
         const int map_top, const int map_left, const int top, const int left, const int rows,
         const int columns, GLOBAL Sum *sums, const int partial_first, const int step) {
    LOCAL_MEMORY float near[PIXELS * 2 * DEPTH];
    const int own_part = GROUP_ID(0) / (HEADS * SLICES), own = GROUP_ID(0) % (HEADS * SLICES);
    const int head = own / SLICES, first = own % SLICES * SLICE + LOCAL_ID();
    const int chunk = GROUP_ID(1), picture = GROUP_ID(2);
    const int first_row = until(own_part / PERIOD, map_top + top);
    const int first_column = until(own_part % PERIOD, map_left + left);
    FIND(source, BLOCK, picture);
    Sum wholes[EACH], rests[EACH];
    EACH_SUM for (int i = 0; i < EACH; i++) wholes[i] = rests[i] = 0;
    NO_UNROLL for (int row = first_row + chunk * PERIOD; row < rows; row += CHUNKS * PERIOD) {
        NO_UNROLL for (int column = first_column; column < columns; column += PIXELS * PERIOD) {
            const int begin = (top + row) * source_pitch + left + column;
            BARRIER();
            NO_UNROLL for (int item = LOCAL_ID(); item < PIXELS * 2 * DEPTH; item += GROUP) {
                const int pixel = item / (2 * DEPTH), plane = item % (2 * DEPTH);
                const int at = head * DEPTH + (plane < DEPTH ? query_plane + plane
                                                             : key_plane + plane - DEPTH);
                near[item] = column + pixel * PERIOD < columns
                                 ? source[plane_at(at, begin + pixel * PERIOD, source_area)]
                                 : 0.0f;
            }
            BARRIER();
            EACH_SUM for (int i = 0; i < EACH; i++) {
                const int element = first + i * GROUP;
                if (element >= OWN) continue;
                const int one = element < PAIRS ? element / DEPTH : element - PAIRS;
                const int other = element < PAIRS ? DEPTH + element % DEPTH : one;
                NO_UNROLL for (int pixel = 0; pixel < PIXELS; pixel++) {
                    const LOCAL float *planes = near + pixel * 2 * DEPTH;
                    const float product = planes[one] * planes[other];
                    const float made = CLAMP(product, -LARGEST, LARGEST);
                    const float whole = ROUND(made * WHOLE);
                    const float rest = FMA(whole, -1.0f / WHOLE, made);
                    wholes[i] += (Sum)whole;
                    rests[i] += (int)ROUND(rest * REST);
                }
            }
        }
    }
    sums += partial_first + (Wide)picture * step + chunk * 2 * ALL + own_part * ELEMENTS;
    EACH_SUM for (int i = 0; i < EACH; i++) {
        const int element = first + i * GROUP, square = element - PAIRS;
        if (element >= OWN) continue;
        const int place = square < 0       ? head * PAIRS + element
                          : square < DEPTH ? HEADS * PAIRS + head * DEPTH + square
                                           : HEADS * PAIRS + (HEADS - 1 + head) * DEPTH + square;
        sums[place] = wholes[i];
        sums[ALL + place] = rests[i];
    }
}

KERNEL(GROUP)
add(GLOBAL Sum *sums, const int first, const int partial_first, const int step) {
    const int number = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (number >= 2 * ALL) return;
    sums += (Wide)GROUP_ID(2) * step;
    Sum total = sums[first + number];
    NO_UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
        total += sums[partial_first + chunk * 2 * ALL + number];
    sums[first + number] = total;
}

KERNEL(GROUP)
floats(const GLOBAL Sum *sums, const int first, const int step, GLOBAL float *vectors,
       const int vector_first, const int vector_step) {
    const int element = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (element >= ALL) return;
    sums += first + (Wide)GROUP_ID(2) * step + element;
    vectors[vector_first + (Wide)GROUP_ID(2) * vector_step + element] =
        FMA((float)sums[0], 1.0f / WHOLE, (float)sums[ALL] * (1.0f / REST));
}

DEVICE float norm_of(const GLOBAL float *squares) { return MAX(SQRT(*squares), 1e-12f); }

// A work-item makes the weights of one plane of the result.
KERNEL(GROUP)
weights(GLOBAL float *vectors, const int sums_first, const int first, const int step,
        const GLOBAL float *RESTRICT temperatures) {
    const int number = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (number >= PARTS * PLANES) return;
    vectors += (Wide)GROUP_ID(2) * step;
    const int own_part = number / PLANES, query = number % PLANES, head = query / DEPTH;
    const GLOBAL float *sums = vectors + sums_first + own_part * ELEMENTS;
    const GLOBAL float *products_of = sums + query * DEPTH;
    const GLOBAL float *squares = sums + PLANES * DEPTH;
    const GLOBAL float *key_squares = squares + PLANES + head * DEPTH;
    GLOBAL float *made = vectors + first + (own_part * HEADS + head) * PAIRS + query % DEPTH;
    const float scale = temperatures[head] / norm_of(squares + query);
    float highest = -3.0e38f, sum = 0.0f;
    NO_UNROLL for (int key = 0; key < DEPTH; key++) {
        const float logit = products_of[key] * scale / norm_of(key_squares + key);
        made[key * DEPTH] = logit;
        highest = MAX(highest, logit);
    }
    NO_UNROLL for (int key = 0; key < DEPTH; key++) {
        const float power = EXP(float, made[key * DEPTH] - highest);
        made[key * DEPTH] = power;
        sum += power;
    }
    NO_UNROLL for (int key = 0; key < DEPTH; key++) made[key * DEPTH] /= sum;
}

// A work-item makes a block of planes of a pixel of a box, `top`, `left`, `rows` and `columns`. Maps
// begin at their own corners, which are `*_top`, `*_left`. Pixels outside `y_start` to `x_stop`, and
// planes behind the last one, become zero.
KERNEL(GROUP)
mix_planes(MAP(const GLOBAL float *RESTRICT, source), MAP(GLOBAL float *RESTRICT, target),
           const int source_top, const int source_left, const int target_top, const int target_left,
           const int value_plane, const int top, const int left, const int rows, const int columns,
           const GLOBAL float *RESTRICT vectors, const int first, const int step, const int y_start,
           const int y_stop, const int x_start, const int x_stop) {
    const int column = GROUP_ID(0) * GROUP + LOCAL_ID(), block = GROUP_ID(1);
    const int picture = GROUP_ID(2) / rows, y = top + GROUP_ID(2) % rows, x = left + column;
    if (column >= columns) return;
    FIND(source, BLOCK, picture);
    FIND(target, BLOCK, picture);
    const int own_part = until(y, 0) * PERIOD + until(x, 0);
    vectors += first + (Wide)picture * step + own_part * HEADS * PAIRS;
    const int inside = y >= y_start && y < y_stop && x >= x_start && x < x_stop;
    const int pixel = (y - source_top) * source_pitch + x - source_left;
    target += plane_at(block * BLOCK, (y - target_top) * target_pitch + x - target_left, target_area);
    NO_UNROLL for (int i = 0; i < BLOCK; i++) {
        const int plane = block * BLOCK + i, head = plane / DEPTH;
        float sum = 0.0f;
        if (inside && plane < PLANES) {
            const GLOBAL float *by = vectors + head * PAIRS + plane % DEPTH;
            NO_UNROLL for (int key = 0; key < DEPTH; key++) {
                const int at = plane_at(value_plane + head * DEPTH + key, pixel, source_area);
                sum = FMA(by[key * DEPTH], source[at], sum);
            }
        }
        target[i] = sum;
    }
}
