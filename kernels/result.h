// Stores results of convolutions in vectors of planes: see store.h, whose macros it needs.
//
// Macros
//   VECTOR, WIDTH    the type of a vector, and its planes
//   CHECKED          defined: the source is a map of 16-bit floats. A sum of a pixel with a value beyond
//                    them is no finite number, so that a work-item looks at one sum of each pixel in a
//                    box of `rows` x `columns`, which are the pixels that are used.

#include "store.h"
#ifdef TARGET_TYPE
#include "levels.h"
#define TARGET_NAMES target, target_rows, target_pitch, target_top, target_left
#else
#define TARGET_NAMES target, target_base, target_step, target_first, target_pitch, target_area
#endif
#ifdef RESIDUAL
#define RESIDUAL_NAMES                                                                             \
    , residual, residual_base, residual_step, residual_first, residual_pitch, residual_area
#else
#define RESIDUAL_NAMES
#endif
#if defined(ZERO_OUTSIDE) || defined(TARGET_TYPE)
#define BOUND_NAMES , y_start, y_stop, x_start, x_stop
#else
#define BOUND_NAMES
#endif
// The names of STORE_ARGUMENTS.
#define STORE_NAMES TARGET_NAMES RESIDUAL_NAMES BOUND_NAMES
#ifdef CHECKED
#define CHECK_ARGUMENTS FLAGS, const int rows, const int columns
#define CHECK_SUM(sum, y, x, picture)                                                              \
    if ((y) < rows && (x) < columns && IS_INSIDE(target_y(y, 0), target_x(x, 0)))                  \
        CHECK(sum, picture)
#else
#define CHECK_ARGUMENTS
#define CHECK_SUM(sum, y, x, picture)
#endif

// Stores planes plane .. plane + WIDTH - 1 of a pixel of the convolution, behind their activation.
DEVICE void store_result(VECTOR value, const int y, const int x, const int plane, STORE_ARGUMENTS) {
#ifdef TARGET_TYPE
    const float *parts = (const float *)&value;
    UNROLL for (int i = 0; i < WIDTH; i++) {
        const int own = plane + i;
        const int row = target_y(y, own), column = target_x(x, own);
        if (own >= STORED || !IS_INSIDE(row, column)) continue;
        float part = parts[i];
#ifdef RESIDUAL
        part = SUMMED(float, part,
                      residual[residual_place(y, x, own, residual_pitch, residual_area)]);
#else
        part = SCALED(float, part);
#endif
        const Place place = ((Place)row * target_pitch + column) * TARGET_PLANES;
        target[place + own % SUB_PLANES] = level_of(part);
    }
#else
#ifdef RESIDUAL
    const int from = residual_place(y, x, plane, residual_pitch, residual_area);
    VECTOR made = SUMMED(VECTOR, value, *(const GLOBAL MAP_VECTOR *)(residual + from));
#else
    VECTOR made = SCALED(VECTOR, value);
#endif
    if (!IS_INSIDE(target_y(y, plane), target_x(x, plane))) made = SPLAT(VECTOR, 0.0f);
    STORE(MAP_VECTOR, target + target_place(y, x, plane, target_pitch, target_area), made);
#endif
}
