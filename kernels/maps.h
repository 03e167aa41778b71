// Where maps and pictures lie, and how they are read and written: for kernels of the fp32 executor.
//
// Layouts
//   maps    [picture][planes / BLOCK][rows][columns][BLOCK]: `area` pixels from a block to the next,
//           `pitch` from a row to the next. The planes of each part of a value begin a block. Rows and
//           columns are allocated for whole groups, so that most kernels check nothing; what lies
//           beyond the pixels that are wanted is computed and never used.
//   space-to-depth  a map with S2D x S2D pixels as one, their planes in the order [dy][dx][plane], the
//           planes of each beginning a block
//   pixels  [picture][rows][columns][planes]

#include "dialect.h"

// Macros
//   UNIT   floats; places and steps of maps are counted in it
//
// A map among the arguments of a kernel: `base` and `step`, from a picture to the next, are counted in
// UNITs, `first` is the pixel at which the kernel's coordinates begin.
#define MAP(type, name)                                                                            \
    type name, const int name##_base, const int name##_step, const int name##_first,               \
        const int name##_pitch, const int name##_area

// Moves a map's pointer to the pixel at which coordinates begin.
#define FIND(name, block, picture)                                                                 \
    name += ((Wide)name##_base + (Wide)name##_step * (picture)) * UNIT / (sizeof(*name) / 4) +     \
            (Wide)name##_first * (block) / (sizeof(*name) / 4)

DEVICE int floor_divide(int a, int b) { return a / b - (a % b < 0); }

// The place of a picture's pixel in one direction, or -1 where the border is zero.
DEVICE int inside(int place, int length) {
#if defined(BORDER_REFLECT)
    const int period = 2 * (length - 1);
    if (period == 0) return 0;
    const int mirrored = (place % period + period) % period;
    return mirrored < length ? mirrored : period - mirrored;
#elif defined(BORDER_ZERO)
    return place >= 0 && place < length ? place : -1;
#else
    return min(max(place, 0), length - 1);
#endif
}
