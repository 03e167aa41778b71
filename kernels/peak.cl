// The peak rate of the fp32 multiply-add units: independent chains in registers, nothing loaded.
//
// Every work-item does REPEATS x CHAINS multiply-adds of vectors and stores a sum, so that none of
// it can be left out.
//
// Layout
//   target         [group][work-item] of VECTOR
//
// Macros
//   VECTOR, WIDTH  type of a chain and its floats
//   GROUP          work-items of a group
//   CHAINS         enough to hide the latency of a multiply-add
//   REPEATS        steps of each chain
//
// Bound: fp32 multiply-adds. Best: NVIDIA H200, 2026-11-21, 47.9 TFLOP/s; 2 cores of Zen 4 behind
// PoCL 3.0, 0.229.

#include "dialect.h"

KERNEL(GROUP)
peak(GLOBAL VECTOR *RESTRICT target, const float factor) {
    VECTOR sums[CHAINS];
    UNROLL for (int n = 0; n < CHAINS; n++) sums[n] = SPLAT(VECTOR, (float)(LOCAL_ID() + n));
    const VECTOR a = SPLAT(VECTOR, factor), b = SPLAT(VECTOR, factor * 0.5f);
    NO_UNROLL for (int step = 0; step < REPEATS; step++) {
        UNROLL for (int n = 0; n < CHAINS; n++) sums[n] = FMA(sums[n], a, b);
    }
    VECTOR total = sums[0];
    UNROLL for (int n = 1; n < CHAINS; n++) total = FMA(sums[n], a, total);
    target[GROUP_ID(0) * GROUP + LOCAL_ID()] = total;
}
