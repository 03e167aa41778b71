// Pixels as the target of a kernel: values clipped to [0, 1], rounded half to even, as levels. To be
// included after dialect.h.
//
// Macros
//   TARGET_TYPE    of a level
//   TARGET_PEAK    the level of 1.0, 0 for float
//   TARGET_PLANES  of a pixel

// The pixels among the arguments: the rows and columns of each picture, which together may be more than
// 2^31 pixels, and the place of the one at which the kernel's coordinates begin.
#define PIXELS                                                                                     \
    GLOBAL TARGET_TYPE *RESTRICT target, const int target_rows, const int target_pitch,            \
        const int target_top, const int target_left

// Moves the pointer to the pixel at which coordinates begin.
#define FIND_PIXELS(picture)                                                                       \
    target += (((Place)(picture) * target_rows + target_top) * target_pitch + target_left) * TARGET_PLANES

DEVICE TARGET_TYPE level_of(float value) {
    const float unit = CLAMP(value, 0.0f, 1.0f);
#if TARGET_PEAK
    return (TARGET_TYPE)ROUND(unit * TARGET_PEAK);
#else
    return unit;
#endif
}
