// Pixels as the target of a kernel: values clipped to [0, 1], rounded half to even, as levels. It
// stands behind dialect.h.
//
// Macros
//   TARGET_TYPE    of a level
//   TARGET_PEAK    the level of 1.0, 0 for float
//   TARGET_PLANES  of a pixel

DEVICE TARGET_TYPE level_of(float value) {
    const float unit = CLAMP(value, 0.0f, 1.0f);
#if TARGET_PEAK
    return (TARGET_TYPE)ROUND(unit * TARGET_PEAK);
#else
    return unit;
#endif
}
