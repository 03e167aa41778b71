// Means and dense layers, of the sums that tensor_average.cu makes: a block does a few things to the
// vectors of a picture, one after the other.
//
//   CLEAR  sums[target ..] = 0
//   MEAN   vectors[target + i] = sums[source + i] * scale
//   DENSE  vectors[target + o] = act(bias[o] + sum over i of weight[o][i] * vectors[source + i])
//
// A warp makes an output of DENSE, its lanes every 32nd product, in one order whatever the device.
// Sums are int64, vectors float, and places are counted from the picture's first, in elements of their
// kind. weight: float [outputs][inputs]; follows: bias and slope of each output.
#include "activation.cuh"

#define VECTOR_THREADS 256
#define MOST 6
#define CLEAR 0
#define MEAN 1
// And more by the code of the activation.
#define DENSE 2

struct Task {
    const float* weight;
    const float2* follows;
    double scale;
    int kind, inputs, outputs, source, target, unused;
};

struct Tasks {
    long long* sums;
    float* vectors;
    int sums_each, vectors_each;
    int count, unused;
    Task tasks[MOST];
};

// By all VECTOR_THREADS of a block.
__device__ __forceinline__ void run_tasks(const Tasks& p, const int picture) {
    long long* const sums = p.sums + static_cast<size_t>(picture) * p.sums_each;
    float* const vectors = p.vectors + static_cast<size_t>(picture) * p.vectors_each;
    for (int number = 0; number < p.count; number++) {
        const Task& task = p.tasks[number];
        if (task.kind == CLEAR || task.kind == MEAN) {
            for (int i = threadIdx.x; i < task.outputs; i += VECTOR_THREADS) {
                if (task.kind == CLEAR) sums[task.target + i] = 0;
                // Other blocks may have added to it a moment ago: not through this one's L1.
                else vectors[task.target + i] = static_cast<float>(__ldcg(sums + task.source + i) * task.scale);
            }
        } else {
            const int lane = threadIdx.x % 32;
            for (int output = threadIdx.x / 32; output < task.outputs; output += VECTOR_THREADS / 32) {
                float sum = 0.0f;
                for (int i = lane; i < task.inputs; i += 32)
                    sum = fmaf(task.weight[output * task.inputs + i], vectors[task.source + i], sum);
#pragma unroll
                for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
                const float2 follows = task.follows[output];
                sum += follows.x;
                sum = activation_of(task.kind - DENSE, sum, follows.y);
                if (lane == 0) vectors[task.target + output] = sum;
            }
        }
        // Also what this block wrote to memory, for the next thing it does.
        __syncthreads();
    }
}
