// Moves, fp32: whatever no product does on its way.
//
//     target(y, x, c) = source(pixel and plane behind it) * factors(c) * FACTOR + residual(y, x, c)
//
// A work-item makes BLOCK planes of one pixel of the target. Where planes stay as they are, vectors of
// them are moved; where they are shuffled, one after the other.
//
// Layouts
//   source, target, residual   see maps.h, pixels.h, levels.h; coordinates are pixels of each value
//   factors                    of each picture, one for each plane of the source
//
// Macros, with those of pixels.h and levels.h where the ends are pixels
//   GROUP           work-items of a group, side by side in a row
//   BLOCK, VECTOR   planes of a block of maps, and their type
//   PLANES          that are written, TARGET_PLANE the first of them in the target's part
//   PART_PLANES     of that part, with what makes it up to whole blocks if this move ends it
//   SHUFFLE, UNSHUFFLE, ENLARGE   of the source
//   SOURCE_FOLD, TARGET_FOLD, RESIDUAL_FOLD, and with a fold above 1 SOURCE_BLOCKS, TARGET_BLOCKS,
//                   RESIDUAL_BLOCKS, those of one pixel
//   FACTOR          if it is not 1
//   FACTORS, RESIDUAL, ZERO_OUTSIDE   defined: there are factors, there is a residual, the target holds
//                   zeros outside its size
//
// Bound: memory.

#include "maps.h"
#ifdef SOURCE_TYPE
#include "pixels.h"
#endif
#ifdef TARGET_TYPE
#include "levels.h"
#define TARGET_ARGUMENTS PIXELS
#else
#define TARGET_ARGUMENTS MAP(GLOBAL float *RESTRICT, target)
#endif

// Planes stay in their vectors.
#define WHOLE_VECTORS                                                                              \
    (SHUFFLE == 1 && UNSHUFFLE == 1 && TARGET_PLANE % BLOCK == 0 && PART_PLANES % BLOCK == 0)

// The place of a plane of a pixel in a map, whose first pixel (top, left) is a multiple of its fold.
DEVICE int place_of(int y, int x, int plane, int fold, int blocks, int pitch, int area) {
    const int block = (y % fold * fold + x % fold) * blocks + plane / BLOCK;
    return (block * area + y / fold * pitch + x / fold) * BLOCK + plane % BLOCK;
}

// `y_target`, `x_target`: the first pixel of the target that is made. `y_source` ...: the pixel at which
// each map begins. `rows`, `columns`: what is made; `target_height`, `target_width`: the target's size.
// `y_shift`, `x_shift`: the offset of the source's view; those of the residual's are in its beginning.
KERNEL(GROUP)
move(
#ifdef SOURCE_TYPE
    const GLOBAL SOURCE_TYPE *RESTRICT source, const int height, const int width, const int padding,
#else
    MAP(const GLOBAL float *RESTRICT, source), const int y_source, const int x_source,
#endif
    const int shift, TARGET_ARGUMENTS, const int y_begin, const int x_begin,
    const int y_target, const int x_target, const int rows, const int columns,
    const int y_start, const int y_stop, const int x_start, const int x_stop
#ifdef FACTORS
    , const GLOBAL float *RESTRICT factors, const int factors_first, const int factors_step
#endif
#ifdef RESIDUAL
    , MAP(const GLOBAL float *RESTRICT, residual), const int y_residual, const int x_residual
#endif
) {
    const int picture = GROUP_ID(2) / rows;
    const int x_made = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (x_made >= columns) return;
    const int y = y_target + GROUP_ID(2) % rows, x = x_target + x_made;
    const int first = GROUP_ID(1) * BLOCK;
    const bool is_inside = y >= y_start && y < y_stop && x >= x_start && x < x_stop;

#ifdef SOURCE_TYPE
    source += (Wide)picture * height * width * SOURCE_PLANES;
#else
    FIND(source, BLOCK, picture);
#endif
#ifdef TARGET_TYPE
    FIND_PIXELS(picture);
#else
    FIND(target, BLOCK, picture);
#endif
#ifdef RESIDUAL
    FIND(residual, BLOCK, picture);
#endif
#ifdef FACTORS
    factors += factors_first + picture * factors_step;
#endif

#if WHOLE_VECTORS && !defined(SOURCE_TYPE) && !defined(TARGET_TYPE)
    const int y_read = floor_divide(y + shift, ENLARGE) - y_source;
    const int x_read = floor_divide(x + shift, ENLARGE) - x_source;
    const int from =
        place_of(y_read, x_read, first, SOURCE_FOLD, SOURCE_BLOCKS, source_pitch, source_area);
    VECTOR value = *(const GLOBAL VECTOR *)(source + from);
#ifdef FACTORS
    VECTOR scale;
    float *parts = (float *)&scale;
    UNROLL for (int i = 0; i < BLOCK; i++)
        parts[i] = first + i < PLANES ? factors[first + i] : 0.0f;
    value = value * scale;
#endif
#ifdef FACTOR
    value = value * SPLAT(VECTOR, FACTOR);
#endif
#ifdef RESIDUAL
    const int other = place_of(y - y_residual, x - x_residual, first, RESIDUAL_FOLD,
                               RESIDUAL_BLOCKS, residual_pitch, residual_area);
    value = value + *(const GLOBAL VECTOR *)(residual + other);
#endif
#ifdef ZERO_OUTSIDE
    if (!is_inside) value = SPLAT(VECTOR, 0.0f);
#endif
#if PLANES % BLOCK
    float *all = (float *)&value;
    UNROLL for (int i = 0; i < BLOCK; i++)
        if (first + i >= PLANES) all[i] = 0.0f;
#endif
    const int to = place_of(y - y_begin, x - x_begin, TARGET_PLANE + first, TARGET_FOLD,
                            TARGET_BLOCKS, target_pitch, target_area);
    STORE(VECTOR, target + to, value);
#else
    NO_UNROLL for (int plane = first; plane < first + BLOCK && plane < PART_PLANES; plane++) {
        float value = 0.0f;
        if (plane < PLANES) {
            // The pixel of the source's view, and its plane.
            const int y_view = floor_divide(y, SHUFFLE) * UNSHUFFLE +
                               plane / UNSHUFFLE % UNSHUFFLE;
            const int x_view = floor_divide(x, SHUFFLE) * UNSHUFFLE + plane % UNSHUFFLE;
            const int own = plane / (UNSHUFFLE * UNSHUFFLE) * (SHUFFLE * SHUFFLE) +
                            (y - floor_divide(y, SHUFFLE) * SHUFFLE) * SHUFFLE +
                            (x - floor_divide(x, SHUFFLE) * SHUFFLE);
            const int row = floor_divide(y_view + shift, ENLARGE);
            const int column = floor_divide(x_view + shift, ENLARGE);
#ifdef SOURCE_TYPE
            const Place place =
                pixel_place(inside(row - padding, height), inside(column - padding, width), width);
            value = pixel_value(source, place, own);
#else
            value = source[place_of(row - y_source, column - x_source, own, SOURCE_FOLD,
                                    SOURCE_BLOCKS, source_pitch, source_area)];
#endif
#ifdef FACTORS
            value *= factors[own];
#endif
#ifdef FACTOR
            value *= FACTOR;
#endif
#ifdef RESIDUAL
            value += residual[place_of(y - y_residual, x - x_residual, plane, RESIDUAL_FOLD,
                                       RESIDUAL_BLOCKS, residual_pitch, residual_area)];
#endif
        }
#ifdef TARGET_TYPE
        if (!is_inside || plane >= PLANES) continue;
        const Place place = (Place)(y - y_begin) * target_pitch + (x - x_begin);
        target[place * TARGET_PLANES + plane] = level_of(value);
#else
#ifdef ZERO_OUTSIDE
        if (!is_inside) value = 0.0f;
#endif
        target[place_of(y - y_begin, x - x_begin, TARGET_PLANE + plane, TARGET_FOLD, TARGET_BLOCKS,
                        target_pitch, target_area)] = value;
#endif
    }
#endif
}
