// Pictures transformed (rotated and mirrored) for test-time augmentation, and the mean of a network's
// results.
//
//     transform  target(transformed pixel) = source(pixel)
//     add        total(pixel) = total(pixel) + source(transformed pixel); the first time without total
//     finish     target(pixel) = level of total(pixel) * scale
//
// A group takes one row of an untransformed picture, `rows` x `columns` of them; its transformed pixel
// lies where `upside_down`, `mirrored` and then `transposed` take it.
//
// Layouts
//   source, target   of `transform`: [picture][row][column][plane], of LEVEL; of `finish`, see levels.h
//   total            float [picture][row][column][plane]; so is the source of `add`
//
// Macros, with those of levels.h
//   GROUP    work-items of a group
//   PLANES   of a pixel
//   LEVEL    the type of a level of a picture that is transformed
//
// Bound: memory.

#include "dialect.h"
#include "levels.h"

#define TRANSFORM                                                                                  \
    const int rows, const int columns, const int upside_down, const int mirrored,                  \
        const int transposed

// Where a pixel's planes begin in the transformed picture.
#define TRANSFORMED(row, column) \
    (transformed(row, column, rows, columns, upside_down, mirrored, transposed) * PLANES)

// The number of a pixel in the transformed picture, which may have more than 2^31 of them.
DEVICE Place transformed(int row, int column, int rows, int columns, int upside_down, int mirrored,
                         int transposed) {
    const int y = upside_down ? rows - 1 - row : row;
    const int x = mirrored ? columns - 1 - column : column;
    return transposed ? (Place)x * rows + y : (Place)y * columns + x;
}

KERNEL(GROUP)
transform(const GLOBAL LEVEL *RESTRICT source, GLOBAL LEVEL *RESTRICT target, TRANSFORM) {
    const int row = GROUP_ID(0);
    const Wide picture = (Wide)GROUP_ID(2) * rows * columns * PLANES;
    source += picture + (Wide)row * columns * PLANES;
    target += picture;
    NO_UNROLL for (int i = LOCAL_ID(); i < columns * PLANES; i += GROUP)
        target[TRANSFORMED(row, i / PLANES) + i % PLANES] = source[i];
}

KERNEL(GROUP)
add(const GLOBAL float *RESTRICT source, GLOBAL float *RESTRICT total, const int is_first, TRANSFORM) {
    const int row = GROUP_ID(0);
    const Wide picture = (Wide)GROUP_ID(2) * rows * columns * PLANES;
    source += picture;
    total += picture + (Wide)row * columns * PLANES;
    NO_UNROLL for (int i = LOCAL_ID(); i < columns * PLANES; i += GROUP) {
        const float value = source[TRANSFORMED(row, i / PLANES) + i % PLANES];
        total[i] = is_first ? value : total[i] + value;
    }
}

KERNEL(GROUP)
finish(const GLOBAL float *RESTRICT total, GLOBAL TARGET_TYPE *RESTRICT target, const float scale,
       const int rows, const int columns) {
    const Wide first = ((Wide)GROUP_ID(2) * rows + GROUP_ID(0)) * columns * PLANES;
    NO_UNROLL for (int i = LOCAL_ID(); i < columns * PLANES; i += GROUP)
        target[first + i] = level_of(total[first + i] * scale);
}
