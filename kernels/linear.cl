// Linear (fully connected) layers, fp32, on vectors.
//
//     target(o) = activation(bias(o) + sum over i of weight(i, o) * source(i))
//
// A work-item makes one result, input after input.
//
// Layouts
//   vectors   float [picture][...], `step` from a picture to the next; source and target are parts of
//             them
//   weight    float [in][out]
//   bias      float [out], then as many slopes
//
// Macros
//   GROUP           work-items of a group
//   INPUTS, OUTPUTS
//   ACTIVATE(type, x, slope)   the activation, in the words of dialect.h
//
// Bound: latency.

#include "dialect.h"

KERNEL(GROUP)
linear(GLOBAL float *vectors, const int source, const int target, const int step,
      const GLOBAL float *RESTRICT weight, const GLOBAL float *RESTRICT bias) {
    const int output = GROUP_ID(0) * GROUP + LOCAL_ID();
    if (output >= OUTPUTS) return;
    vectors += GROUP_ID(2) * step;
    float value = bias[output];
    NO_UNROLL for (int input = 0; input < INPUTS; input++)
        value = FMA(weight[input * OUTPUTS + output], vectors[source + input], value);
    vectors[target + output] = ACTIVATE(float, value, bias[OUTPUTS + output]);
}
