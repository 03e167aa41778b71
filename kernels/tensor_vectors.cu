// Means and linear layers: what is computed of the sums of tensor_avg_pool.cu, a block to each picture.
//
// A launch does a few things one after the other, each into the vectors of the picture:
//   CLEAR   sums[target ..] = 0
//   MEAN    vectors[target + i] = sums[source + i] * scale
//   LINEAR  vectors[target + o] = act(bias[o] + sum over i of weight[o][i] * vectors[source + i])
// A power of two of threads makes an output of LINEAR, in one order whatever the device.
//
// Arguments: `Tasks` below. Layouts: all of one picture stand together, and places are counted from the
// picture's first, in elements of their kind.
//   sums      int64 [picture][sums_each]
//   vectors   float [picture][vectors_each]
//   weight    float [outputs][inputs]
//   epilogue  float [outputs][2]: bias and slope of each output
// Macros: THREADS, MOST_TASKS (of a launch), ACTIVATE(number, x, slope): the activations of a program.
// Bound: the time of a launch. (One that tensor_avg_pool.cu's last block goes on with instead, to save the
//   launch, took 2 us more for cunet's four means.)
#define CLEAR 0
#define MEAN 1
// And more by the number of the activation.
#define LINEAR 2

struct Task {
    const float* weight;
    const float2* epilogue;
    double scale;
    int kind, inputs, outputs, source, target, unused;
};

struct Tasks {
    long long* sums;
    float* vectors;
    int sums_each, vectors_each;
    int count, unused;
    Task tasks[MOST_TASKS];
};

extern "C" __global__ void __launch_bounds__(THREADS)
tensor_vectors(const __grid_constant__ Tasks p) {
    long long* const sums = p.sums + static_cast<size_t>(blockIdx.x) * p.sums_each;
    float* const vectors = p.vectors + static_cast<size_t>(blockIdx.x) * p.vectors_each;
    for (int number = 0; number < p.count; number++) {
        const Task& task = p.tasks[number];
        if (task.kind == CLEAR || task.kind == MEAN) {
            for (int i = threadIdx.x; i < task.outputs; i += THREADS) {
                if (task.kind == CLEAR) sums[task.target + i] = 0;
                else vectors[task.target + i] = static_cast<float>(sums[task.source + i] * task.scale);
            }
        } else {
            // A few threads for each output, so that all loads are under way at once.
            int threads = 1;
            while (threads < 32 && threads * 4 < task.inputs) threads *= 2;
            const int thread = threadIdx.x % threads;
#pragma unroll 2
            for (int first = 0; first < task.outputs; first += THREADS / threads) {
                const int output = first + threadIdx.x / threads;
                const bool inside = output < task.outputs;
                float sum = 0.0f;
#pragma unroll 4
                for (int i = thread; i < task.inputs; i += threads)
                    sum = fmaf(inside ? __ldg(task.weight + output * task.inputs + i) : 0.0f,
                               vectors[task.source + i], sum);
                for (int step = threads / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
                const float2 epilogue = inside ? __ldg(task.epilogue + output) : float2();
                sum = ACTIVATE(task.kind - LINEAR, sum + epilogue.x, epilogue.y);
                if (inside && thread == 0) vectors[task.target + output] = sum;
            }
        }
        // Also what this block wrote to memory, for the next thing it does.
        __syncthreads();
    }
}
