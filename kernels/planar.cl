// Planes of films to RGB for a network's first layer, and the RGB of its results to planes.
//
//     from_planes  target(pixel) = RGB of luma and of chroma interpolated there, clipped to [0, 1]
//     to_planes    codes of luma for each pixel and of chroma for each cell
//
// A cell is the ROW_STEP x COLUMN_STEP pixels that share a sample of chroma. Sums of chroma are of
// whole numbers, 16 times what they mean, and exact. Group (a, b, c) takes pixels, or cells, of row
// a of picture c, all that `across` groups of the row have as their b-th.
//
// Layouts
//   planes           [picture] SAMPLE [row][column] of luma, and behind it of U and of V; of G, B
//                    and R; or of luma alone; without gaps
//   target, source   float [picture][row][column][3]; `offset` is the row at which row 0 of the
//                    first picture lies, which may be outside where only some of its rows are there
//   target           of windows of FRAMES pictures: float [window][row][column][FRAMES][3], with
//                    mirrored pixels around, `top` rows above and `left` columns beside
//   source           has what was made of those: each picture `all_rows` rows of `all_columns`, and
//                    column 0 at `left`
//
// Macros
//   GROUP    work-items of a group
//   FRAMES   pictures of a window
//   SAMPLE   uchar or ushort
//   PEAK     the largest code
//   IS_GREY  1 where there is luma alone
//   IS_RGB   1 where the planes are G, B and R; then `luma` is of each of them
//   ROW_STEP, COLUMN_STEP        1, or 2 where chroma has half the samples
//   ROW_MIDWAY, COLUMN_MIDWAY    1 where a sample lies between its two pixels, 0 where on the first
//
// Bound: memory.

#include "dialect.h"

// Samples of a picture that has `chroma` of U.
#define PICTURE(rows, columns, chroma)                                                             \
    ((Place)(rows) * (columns) + (IS_GREY ? 0 : 2) * (Place)(chroma))

// The pixel that a place shows where a picture is mirrored at its edge pixels, again and again.
#if FRAMES > 1
DEVICE int mirrored(const int place, const int size) {
    const int period = size > 1 ? 2 * size - 2 : 1;
    const int away = (place < 0 ? -place : place) % period;
    return away < size ? away : period - away;
}
#else
#define mirrored(place, size) (place)
#endif

#define INSIDE(place, size) ((place) < 0 ? 0 : (place) < (size) ? (place) : (size) - 1)

// The other sample next to a pixel, and what the nearer one counts in quarters.
#define FAR(step, midway, pixel) \
    ((step) == 1 ? 0 : (pixel) % 2 ? 1 : (midway) ? -1 : 0)
#define NEAR_WEIGHT(midway) ((midway) ? 3 : 2)

// The weight in quarters of a pixel at a distance from the first one of a cell.
#define WEIGHT(step, midway, away)                                                                 \
    ((step) == 1 ? ((away) ? 0 : 4) : (midway) ? ((away) < 0 ? 0 : 2) : (away) ? 1 : 2)

DEVICE int chroma(const GLOBAL SAMPLE *RESTRICT near_row, const GLOBAL SAMPLE *RESTRICT far_row,
                  int near, int far) {
    const int near_weight = NEAR_WEIGHT(COLUMN_MIDWAY), far_weight = 4 - near_weight;
    const int near_sum = near_weight * near_row[near] + far_weight * near_row[far];
    const int far_sum = near_weight * far_row[near] + far_weight * far_row[far];
    return NEAR_WEIGHT(ROW_MIDWAY) * near_sum + (4 - NEAR_WEIGHT(ROW_MIDWAY)) * far_sum;
}

KERNEL(GROUP)
from_planes(const GLOBAL SAMPLE *RESTRICT planes, GLOBAL float *RESTRICT target, const int rows,
            const int columns, const int first, const int offset, const int across, const int top,
            const int left, const int all_rows, const int all_columns, const float luma_zero,
            const float luma_unit, const float chroma_zero, const float red_v, const float green_u,
            const float green_v, const float blue_u) {
    const int place = first + GROUP_ID(0);
    const int row = mirrored(place - top, rows);
    const int chroma_rows = (rows + ROW_STEP - 1) / ROW_STEP;
    const int chroma_columns = (columns + COLUMN_STEP - 1) / COLUMN_STEP;
    const int near_row = row / ROW_STEP;
    const int other_row = near_row + FAR(ROW_STEP, ROW_MIDWAY, row);
    const int far_row = INSIDE(other_row, chroma_rows);
    const int picture = GROUP_ID(2);
    planes += picture * PICTURE(rows, columns, (Place)chroma_rows * chroma_columns);
    const GLOBAL SAMPLE *RESTRICT luma = planes + (Place)row * columns;
    const GLOBAL SAMPLE *RESTRICT u = planes + (Place)rows * columns;
    const GLOBAL SAMPLE *RESTRICT v = u + (Place)chroma_rows * chroma_columns;
    const GLOBAL SAMPLE *RESTRICT near_u = u + (Place)near_row * chroma_columns;
    const GLOBAL SAMPLE *RESTRICT far_u = u + (Place)far_row * chroma_columns;
    const GLOBAL SAMPLE *RESTRICT near_v = v + (Place)near_row * chroma_columns;
    const GLOBAL SAMPLE *RESTRICT far_v = v + (Place)far_row * chroma_columns;
    target += ((Place)(picture / FRAMES) * all_rows + offset + place) * all_columns * (FRAMES * 3);
    target += picture % FRAMES * 3;
    NO_UNROLL for (int beside = GROUP_ID(1) * GROUP + LOCAL_ID(); beside < all_columns;
                   beside += across * GROUP) {
        const int x = mirrored(beside - left, columns);
        const float y = ((float)luma[x] - luma_zero) * luma_unit;
#if IS_GREY
        const float red = y, green = y, blue = y;
#elif IS_RGB
        const float green = y;
        const float blue = ((float)near_u[x] - luma_zero) * luma_unit;
        const float red = ((float)near_v[x] - luma_zero) * luma_unit;
#else
        const int near = x / COLUMN_STEP;
        const int other = near + FAR(COLUMN_STEP, COLUMN_MIDWAY, x);
        const int far = INSIDE(other, chroma_columns);
        const float du = (float)chroma(near_u, far_u, near, far) - chroma_zero;
        const float dv = (float)chroma(near_v, far_v, near, far) - chroma_zero;
        const float red = FMA(red_v, dv, y);
        const float green = FMA(green_u, du, FMA(green_v, dv, y));
        const float blue = FMA(blue_u, du, y);
#endif
        GLOBAL float *RESTRICT pixel = target + beside * (FRAMES * 3);
        pixel[0] = CLAMP(red, 0.0f, 1.0f);
        pixel[1] = CLAMP(green, 0.0f, 1.0f);
        pixel[2] = CLAMP(blue, 0.0f, 1.0f);
    }
}

// The code of a sum that has 0.5 added to it.
#define CODE(sum) (SAMPLE) CLAMP(sum, 0.0f, (float)PEAK)

KERNEL(GROUP)
to_planes(const GLOBAL float *RESTRICT source, GLOBAL SAMPLE *RESTRICT planes, const int rows,
          const int columns, const int first, const int offset, const int across, const int left,
          const int all_rows, const int all_columns, const float luma_red, const float luma_green, const float luma_blue,
          const float luma_zero, const float u_red, const float u_green, const float u_blue,
          const float v_red, const float v_green, const float v_blue, const float chroma_zero) {
    const int cell_row = first + GROUP_ID(0);
    const int cells = (columns + COLUMN_STEP - 1) / COLUMN_STEP;
    const int cell_rows = (rows + ROW_STEP - 1) / ROW_STEP;
    const int top = cell_row * ROW_STEP;
    const int picture = GROUP_ID(2);
    planes += picture * PICTURE(rows, columns, (Place)cell_rows * cells);
    source += (((Place)picture * all_rows + offset + top) * all_columns + left) * 3;
    GLOBAL SAMPLE *RESTRICT luma = planes + (Place)top * columns;
    GLOBAL SAMPLE *RESTRICT u = planes + (Place)rows * columns + (Place)cell_row * cells;
    GLOBAL SAMPLE *RESTRICT v = u + (Place)cell_rows * cells;
    NO_UNROLL for (int cell = GROUP_ID(1) * GROUP + LOCAL_ID(); cell < cells;
                   cell += across * GROUP) {
#if IS_RGB
        const GLOBAL float *RESTRICT pixel = source + cell * 3;
        const float red = FMA(luma_red, pixel[0], luma_zero);
        const float green = FMA(luma_green, pixel[1], luma_zero);
        const float blue = FMA(luma_blue, pixel[2], luma_zero);
        luma[cell] = CODE(green);
        u[cell] = CODE(blue);
        v[cell] = CODE(red);
#else
        const int first_column = cell * COLUMN_STEP;
        float reds = 0.0f, greens = 0.0f, blues = 0.0f;
        UNROLL for (int down = -1; down < 2; down++) {
            UNROLL for (int beside = -1; beside < 2; beside++) {
                const int weight = WEIGHT(ROW_STEP, ROW_MIDWAY, down) *
                                   WEIGHT(COLUMN_STEP, COLUMN_MIDWAY, beside);
                if (weight) {
                    const int y = INSIDE(top + down, rows) - top;
                    const int x = INSIDE(first_column + beside, columns);
                    const GLOBAL float *RESTRICT pixel = source + (y * all_columns + x) * 3;
                    const float red = pixel[0], green = pixel[1], blue = pixel[2];
                    reds = FMA((float)weight, red, reds);
                    greens = FMA((float)weight, green, greens);
                    blues = FMA((float)weight, blue, blues);
                    if (down >= 0 && down < ROW_STEP && beside >= 0 && beside < COLUMN_STEP &&
                        top + down < rows && first_column + beside < columns) {
                        const float sum =
                            FMA(luma_red, red,
                                FMA(luma_green, green, FMA(luma_blue, blue, luma_zero)));
                        luma[y * columns + x] = CODE(sum);
                    }
                }
            }
        }
#if !IS_GREY
        const float u_sum = FMA(u_red, reds, FMA(u_green, greens, FMA(u_blue, blues, chroma_zero)));
        const float v_sum = FMA(v_red, reds, FMA(v_green, greens, FMA(v_blue, blues, chroma_zero)));
        u[cell] = CODE(u_sum);
        v[cell] = CODE(v_sum);
#endif
#endif
    }
}
