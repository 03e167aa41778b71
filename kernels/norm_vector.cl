// The factor of each plane of a norm over groups of planes, fp32, or with SHIFTS its shift.
//
//     factor(c) = weight(c) / sqrt(variance + EPS)
//     shift(c)  = bias(c) - mean * factor(c)
//
// where mean and variance are those of all values of the plane's group, made of the means of its planes
// and of their squares. A work-item makes one of them.
//
// Layouts
//   vectors   float [picture][...], `step` from a picture to the next; the others are parts of them
//   weights   float [plane], then as many biases
//
// Macros
//   GROUP           work-items of a group
//   PLANES, EACH    of the vectors, and of a group of them
//   EPS
//   SHIFTS          0 or 1
//
// Bound: latency.

#include "dialect.h"

KERNEL(GROUP)
norm_vector(GLOBAL float *vectors, const int means, const int squares, const int target,
            const int step, const GLOBAL float *RESTRICT weights) {
    const int plane = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (plane >= PLANES) return;
    vectors += GROUP_ID(2) * step;
    const int first = plane / EACH * EACH;
    float mean = 0.0f;
    NO_UNROLL for (int i = first; i < first + EACH; i++) mean += vectors[means + i];
    mean *= 1.0f / EACH;
    // Variances within planes, then between them: no more bits cancel than in the vectors.
    float sum = 0.0f;
    NO_UNROLL for (int i = first; i < first + EACH; i++) {
        const float own = vectors[means + i], off = own - mean;
        sum += FMA(off, off, FMA(-own, own, vectors[squares + i]));
    }
    const float factor = weights[plane] / SQRT(MAX(sum * (1.0f / EACH), 0.0f) + EPS);
    vectors[target + plane] = SHIFTS ? FMA(-mean, factor, weights[PLANES + plane]) : factor;
}
