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
//   UNIT   bytes; places and steps of maps are counted in it
//   HALF_MAPS   defined: maps hold 16-bit floats, which only the compiler for Vulkan knows
//
// A map among the arguments of a kernel: `base` and `step`, from a picture to the next, are counted in
// UNITs, `first` is the pixel at which the kernel's coordinates begin.
#define MAP(type, name)                                                                            \
    type name, const int name##_base, const int name##_step, const int name##_first,               \
        const int name##_pitch, const int name##_area

// An element of a map, and vectors of them; registers hold floats.
#ifdef HALF_MAPS
#define ELEMENT half
#define ELEMENT4 half4
#define ELEMENT_BYTES 2
#define MAP_VECTOR half4
#else
#define ELEMENT float
#define ELEMENT4 float4
#define ELEMENT_BYTES 4
#define MAP_VECTOR VECTOR
#endif

// Marks a picture with a value that is no finite number, since one before it is beyond 16 bits.
#ifdef HALF_MAPS
#define FLAGS , GLOBAL int *RESTRICT flags
#define CHECK(value, picture)                                                                      \
    if (!isfinite(value)) flags[picture] = 1
#else
#define FLAGS
#define CHECK(value, picture)
#endif

// Moves a map's pointer to the pixel at which coordinates begin.
#define FIND(name, block, picture)                                                                 \
    name += ((Wide)name##_base + (Wide)name##_step * (picture)) * (UNIT / ELEMENT_BYTES) /         \
                (sizeof(*name) / ELEMENT_BYTES) +                                                  \
            (Wide)name##_first * (block) / (sizeof(*name) / ELEMENT_BYTES)

// The same for the target, which may be pixels (see levels.h), and for a residual, if there is one.
#ifdef TARGET_TYPE
#define FIND_TARGET(picture) FIND_PIXELS(picture)
#else
#define FIND_TARGET(picture) FIND(target, BLOCK, picture)
#endif
#ifdef RESIDUAL
#define FIND_RESIDUAL(picture) FIND(residual, BLOCK, picture)
#else
#define FIND_RESIDUAL(picture)
#endif

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
