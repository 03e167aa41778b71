// Planewise steps, fp32, between convolutions: crops, enlargements, depth-to-space, space-to-depth, planes
// scaled, gated and added.
//
//     target(y, x, c) = (source(pixel and plane behind it) * factors(c) + shifts(c)) * FACTOR
//                         + residual(y, x, c)
//     with JOIN         JOIN(made, residual) instead of the sum
//     with UP           the sum over 4x4 pixels of the source of a bicubic interpolation, which
//                       repeats the pixels at its edges
//     with BILINEAR     the sum over 2x2 pixels of the source, enlarged to the target's size
//     with POOL         the maximum of POOL x POOL pixels of the source, at every POOL_STEP
//     with PARTS        the pixel of the source is another one: see Interleave in
//                       waifu2x/networks/nodes.py
//     with SAMPLES      samples between 2x2 pixels of the source, at places that the residual shifts: see
//                       GridSample there
//
// A work-item makes WIDTH planes of one pixel of the target. Where planes stay as they are, vectors of
// them are copied; where depth-to-space or its inverse reorders them, one after the other.
//
// Layouts
//   source, target, residual   see maps.h, pixels.h, levels.h; coordinates are pixels of each value
//   factors, shifts            of each picture, one for each plane of the source
//
// Macros, with those of pixels.h and levels.h where the ends are pixels
//   GROUP           work-items of a group, side by side in a row
//   BLOCK           planes of a block of maps
//   WIDTH, VECTOR   planes of a work-item, and their type
//   PLANES          that are made, TARGET_PLANE the first of them in the target's part
//   PART_PLANES     of that part, with what makes it up to whole blocks if this step ends it
//   STEP_D2S, STEP_S2D, ENLARGE   of the source
//   SOURCE_S2D, TARGET_S2D, RESIDUAL_S2D, and where one is above 1 SOURCE_BLOCKS, TARGET_BLOCKS,
//                   RESIDUAL_BLOCKS, those of one pixel
//   FACTOR          if it is not 1
//   UP, DOWN        by how much a bicubic interpolation enlarges: UP / DOWN times
//   BILINEAR, POOL, POOL_STEP   defined: bilinear to the target's size; maxima
//   PARTS, INVERSE  rectangles, in each direction, whose pixels are interleaved; 1 for the way back
//   SAMPLES, SAMPLED, GROUPS   samples of a pixel in each direction, planes of each, and groups of them
//                   that are moved together
//   SHIFTS          defined: besides FACTORS there are shifts
//   JOIN(type, x, residual)   if the residual is not added
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
#define TARGET_ARGUMENTS MAP(GLOBAL ELEMENT *RESTRICT, target)
#endif

// Each value is made of several pixels of the source, whose places its edges decide.
#if defined(UP) || defined(BILINEAR) || defined(POOL) || defined(SAMPLES)
#define RESAMPLES 1
#else
#define RESAMPLES 0
#endif

// Planes stay in their vectors.
#if RESAMPLES
#define WHOLE_VECTORS 0
#else
#define WHOLE_VECTORS                                                                              \
    (STEP_D2S == 1 && STEP_S2D == 1 && TARGET_PLANE % BLOCK == 0 && PART_PLANES % BLOCK == 0)
#endif

#ifndef JOIN
#define JOIN(type, x, residual) ((x) + (residual))
#endif

// The place of a plane of a pixel in a map after space-to-depth by `s2d`; the coordinates of the map's
// first pixel (top, left) are multiples of `s2d`.
DEVICE int place_of(int y, int x, int plane, int s2d, int blocks, int pitch, int area) {
    const int block = (y % s2d * s2d + x % s2d) * blocks + plane / BLOCK;
    return (block * area + y / s2d * pitch + x / s2d) * BLOCK + plane % BLOCK;
}

// The place itself if it is inside, else the edge's.
DEVICE int nearest(int place, int size) {
    return place < 0 ? 0 : place < size ? place : size - 1;
}

#ifdef SAMPLES
// The pixel before a place `offset` pixels from the middle of pixel `first`, and in `share` how far
// behind it that is; beyond the edges, the place at them. Relative to `first`, so that nothing rounds more
// in a large map.
DEVICE int place_before(int first, float offset, int size, float *share) {
    const float inner = CLAMP(offset, (float)-first, (float)(size - 1 - first));
    const int whole = (int)inner - (inner < (float)(int)inner);
    *share = inner - (float)whole;
    return first + whole;
}

// Where a sample of a pixel lies in one direction, in pixels from its middle.
DEVICE float middle_of(int sample) { return (float)(2 * sample + 1 - SAMPLES) / (2 * SAMPLES); }
#endif

#ifdef UP
// Keys's cubic with a = -3/4, of a distance in units of 1 / (2 * UP) pixels.
DEVICE float cubic(int distance) {
    const float t = (float)(distance < 0 ? -distance : distance) / (2 * UP);
    if (t <= 1.0f) return ((1.25f * t - 2.25f) * t) * t + 1.0f;
    return t < 2.0f ? ((-0.75f * t + 3.75f) * t - 6.0f) * t + 3.0f : 0.0f;
}
#endif

#ifdef PARTS
// The row or column of the source, which has `size`, that comes to a place; the edge's beyond it.
DEVICE int rearranged(int place, int size) {
    const int cells = INVERSE ? size / PARTS : PARTS, inner = nearest(place, size);
    return inner % cells * (size / cells) + inner / cells;
}
#endif

// `y_target`, `x_target`: the first pixel of the target that is made, of `rows` x `columns`. `y_source`,
// `y_begin`, `y_residual` ...: the pixel at which each map begins, that of the residual less its view's
// offset. `y_start` to `x_stop`: the pixels that the target has. `shift`: the offset of the source's
// view.
KERNEL(GROUP)
planewise(
#ifdef SOURCE_TYPE
    const GLOBAL SOURCE_TYPE *RESTRICT source, const int height, const int width, const int padding,
#else
    MAP(const GLOBAL ELEMENT *RESTRICT, source), const int y_source, const int x_source,
#endif
#if RESAMPLES || defined(PARTS)
    const int source_rows, const int source_columns, const int made_rows,
    const int made_columns,
#endif
    const int shift, TARGET_ARGUMENTS, const int y_begin, const int x_begin,
    const int y_target, const int x_target, const int rows, const int columns,
    const int y_start, const int y_stop, const int x_start, const int x_stop
#ifdef FACTORS
    , const GLOBAL float *RESTRICT factors, const int factors_first, const int factors_step
#endif
#ifdef SHIFTS
    , const int shifts_first
#endif
#ifdef RESIDUAL
    , MAP(const GLOBAL ELEMENT *RESTRICT, residual), const int y_residual, const int x_residual
#endif
    FLAGS
) {
    const int picture = GROUP_ID(2) / rows;
    const int x_made = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (x_made >= columns) return;
    const int y = y_target + GROUP_ID(2) % rows, x = x_target + x_made;
    const int first = GROUP_ID(1) * WIDTH;
    const bool is_inside = y >= y_start && y < y_stop && x >= x_start && x < x_stop;

#ifdef SOURCE_TYPE
    source += (Wide)picture * height * width * SOURCE_PLANES;
#else
    FIND(source, BLOCK, picture);
#endif
    FIND_TARGET(picture);
    FIND_RESIDUAL(picture);
#ifdef FACTORS
#ifdef SHIFTS
    const GLOBAL float *shifts = factors + shifts_first + picture * factors_step;
#endif
    factors += factors_first + picture * factors_step;
#endif

#if WHOLE_VECTORS && !defined(SOURCE_TYPE) && !defined(TARGET_TYPE)
#ifdef PARTS
    const int y_read = rearranged(y, source_rows) - y_source;
    const int x_read = rearranged(x, source_columns) - x_source;
#else
    const int y_read = floor_divide(y + shift, ENLARGE) - y_source;
    const int x_read = floor_divide(x + shift, ENLARGE) - x_source;
#endif
    const int from =
        place_of(y_read, x_read, first, SOURCE_S2D, SOURCE_BLOCKS, source_pitch, source_area);
    VECTOR value = *(const GLOBAL MAP_VECTOR *)(source + from);
#ifdef FACTORS
    VECTOR scale;
    float *parts = (float *)&scale;
    UNROLL for (int i = 0; i < WIDTH; i++)
        parts[i] = first + i < PLANES ? factors[first + i] : 0.0f;
    value = value * scale;
#endif
#ifdef SHIFTS
    VECTOR added;
    float *added_parts = (float *)&added;
    UNROLL for (int i = 0; i < WIDTH; i++)
        added_parts[i] = first + i < PLANES ? shifts[first + i] : 0.0f;
    value = value + added;
#endif
#ifdef FACTOR
    value = value * SPLAT(VECTOR, FACTOR);
#endif
#ifdef RESIDUAL
    const int other = place_of(y - y_residual, x - x_residual, first, RESIDUAL_S2D,
                               RESIDUAL_BLOCKS, residual_pitch, residual_area);
    value = JOIN(VECTOR, value, *(const GLOBAL MAP_VECTOR *)(residual + other));
#endif
#ifdef ZERO_OUTSIDE
    if (!is_inside) value = SPLAT(VECTOR, 0.0f);
#endif
#if PLANES % WIDTH
    float *all = (float *)&value;
    UNROLL for (int i = 0; i < WIDTH; i++)
        if (first + i >= PLANES) all[i] = 0.0f;
#endif
    const int to = place_of(y - y_begin, x - x_begin, TARGET_PLANE + first, TARGET_S2D,
                            TARGET_BLOCKS, target_pitch, target_area);
    STORE(MAP_VECTOR, target + to, value);
#else
    NO_UNROLL for (int plane = first; plane < first + WIDTH && plane < PART_PLANES; plane++) {
        float value = 0.0f;
        if (plane < PLANES) {
            // The pixel of the source's view, and its plane.
            const int y_view = floor_divide(y, STEP_D2S) * STEP_S2D +
                               plane / STEP_S2D % STEP_S2D;
            const int x_view = floor_divide(x, STEP_D2S) * STEP_S2D + plane % STEP_S2D;
            const int own = plane / (STEP_S2D * STEP_S2D) * (STEP_D2S * STEP_D2S) +
                            (y - floor_divide(y, STEP_D2S) * STEP_D2S) * STEP_D2S +
                            (x - floor_divide(x, STEP_D2S) * STEP_D2S);
#ifdef PARTS
            const int row = rearranged(y, source_rows), column = rearranged(x, source_columns);
#else
            const int row = floor_divide(y_view + shift, ENLARGE);
            const int column = floor_divide(x_view + shift, ENLARGE);
#endif
#ifdef SOURCE_TYPE
            const Place place =
                pixel_place(inside(row - padding, height), inside(column - padding, width), width);
            value = pixel_value(source, place, own);
#elif defined(UP)
            const int y_double = (2 * y + 1) * DOWN - UP, x_double = (2 * x + 1) * DOWN - UP;
            const int top = floor_divide(y_double, 2 * UP) - 1;
            const int left = floor_divide(x_double, 2 * UP) - 1;
            NO_UNROLL for (int i = 0; i < 4; i++) {
                const int y_read = nearest(top + i, source_rows) - y_source;
                float across = 0.0f;
                NO_UNROLL for (int k = 0; k < 4; k++) {
                    const int x_read = nearest(left + k, source_columns) - x_source;
                    const int from = place_of(y_read, x_read, plane, SOURCE_S2D, SOURCE_BLOCKS,
                                              source_pitch, source_area);
                    across = FMA(source[from], cubic(x_double - 2 * UP * (left + k)), across);
                }
                value = FMA(across, cubic(y_double - 2 * UP * (top + i)), value);
            }
#elif defined(BILINEAR) || defined(SAMPLES)
#ifdef BILINEAR
            const int own_plane = plane;
            // Twice the place, in units of one pixel of the target's size.
            Place y_double = (2 * (Place)y + 1) * source_rows - made_rows;
            Place x_double = (2 * (Place)x + 1) * source_columns - made_columns;
            y_double = y_double < 0 ? 0 : y_double;
            x_double = x_double < 0 ? 0 : x_double;
            const int top = (int)(y_double / (2 * made_rows));
            const int left = (int)(x_double / (2 * made_columns));
            const float lower = (float)(int)(y_double % (2 * made_rows)) / (2 * made_rows);
            const float after = (float)(int)(x_double % (2 * made_columns)) / (2 * made_columns);
#else
            const int sample = plane / SAMPLED, own_plane = plane % SAMPLED;
            const int moved = (sample * GROUPS + own_plane / (SAMPLED / GROUPS)) * 2;
            const float across_by = residual[place_of(y - y_residual, x - x_residual, moved, 1,
                                                      RESIDUAL_BLOCKS, residual_pitch, residual_area)];
            const float down_by = residual[place_of(y - y_residual, x - x_residual, moved + 1, 1,
                                                    RESIDUAL_BLOCKS, residual_pitch, residual_area)];
            float lower, after;
            const int top =
                place_before(y, down_by + middle_of(sample / SAMPLES), source_rows, &lower);
            const int left =
                place_before(x, across_by + middle_of(sample % SAMPLES), source_columns, &after);
#endif
            NO_UNROLL for (int i = 0; i < 2; i++) {
                const int y_read = nearest(top + i, source_rows) - y_source;
                float across = 0.0f;
                NO_UNROLL for (int k = 0; k < 2; k++) {
                    const int x_read = nearest(left + k, source_columns) - x_source;
                    const int from = place_of(y_read, x_read, own_plane, SOURCE_S2D, SOURCE_BLOCKS,
                                              source_pitch, source_area);
                    across = FMA(source[from], k ? after : 1.0f - after, across);
                }
                value = FMA(across, i ? lower : 1.0f - lower, value);
            }
#elif defined(POOL)
            NO_UNROLL for (int i = 0; i < POOL; i++) {
                const int y_read = nearest(y * POOL_STEP + i, source_rows) - y_source;
                NO_UNROLL for (int k = 0; k < POOL; k++) {
                    const int x_read = nearest(x * POOL_STEP + k, source_columns) - x_source;
                    const float other = source[place_of(y_read, x_read, plane, SOURCE_S2D,
                                                        SOURCE_BLOCKS, source_pitch, source_area)];
                    value = i + k == 0 || other > value ? other : value;
                }
            }
#else
            value = source[place_of(row - y_source, column - x_source, own, SOURCE_S2D,
                                    SOURCE_BLOCKS, source_pitch, source_area)];
#endif
#ifdef FACTORS
            value *= factors[own];
#endif
#ifdef SHIFTS
            value += shifts[own];
#endif
#ifdef FACTOR
            value *= FACTOR;
#endif
#if defined(RESIDUAL) && !defined(SAMPLES)
            const int other = place_of(y - y_residual, x - x_residual, plane, RESIDUAL_S2D,
                                       RESIDUAL_BLOCKS, residual_pitch, residual_area);
            value = JOIN(float, value, residual[other]);
#endif
        }
#ifdef TARGET_TYPE
        if (!is_inside || plane >= PLANES) continue;
        const Place place = (Place)(y - y_begin) * target_pitch + (x - x_begin);
#ifndef SOURCE_TYPE
        CHECK(value, picture);
#endif
        target[place * TARGET_PLANES + plane] = level_of(value);
#else
#ifdef ZERO_OUTSIDE
        if (!is_inside) value = 0.0f;
#endif
        target[place_of(y - y_begin, x - x_begin, TARGET_PLANE + plane, TARGET_S2D, TARGET_BLOCKS,
                        target_pitch, target_area)] = value;
#endif
    }
#endif
}
