// Means, linear layers and weights of attention between planes, from the sums of tensor_avg_pool.cu and
// tensor_cross_sums.cu, a block to each picture.
//
// A launch does a few things one after the other, each into the vectors of the picture:
//   CLEAR   sums[target ..] = 0
//   MEAN    vectors[target + i] = sums[source + i] * scale
//   WEIGHTS vectors[target] [head][j][i] = softmax over j of q(i) . k(j) / |q(i)| / |k(j)| * weight[head], where
//           vectors[source] are [head][i][j]: q(i) . k(j); then the squares of all q, of all k; `inputs` planes of
//           each head, `outputs` of all. A picture is flagged where a square of these squares is less than `scale`:
//           they are sums of rounded numbers, and what those lost is then seen
//   LINEAR  vectors[target + o] = act(bias[o] + sum over i of weight[o][i] * vectors[source + i])
// A power of two of threads makes an output of LINEAR, in one order on every device.
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
#define WEIGHTS 2
// And more by the number of the activation.
#define LINEAR 3

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
    unsigned* flags;  // a word for each picture
    Task tasks[MOST_TASKS];
};

// One divided by a norm, which is 1e-12 at least.
__device__ __forceinline__ float inverse_norm(float squares) { return fminf(rsqrtf(squares), 1e12f); }

// The weights of one plane of the result. Loops that are unrolled would take registers that chips do not give.
__device__ __forceinline__ void weigh(const Task& task, float* vectors, int plane) {
    const int planes = task.outputs, depth = task.inputs, head = plane / depth;
    const float* const cross_sums = vectors + task.source + plane * depth;
    const float* const squares = vectors + task.source + planes * depth;
    const float* const key_squares = squares + planes + head * depth;
    float* const made = vectors + task.target + head * depth * depth + plane % depth;
    const float scale = __ldg(task.weight + head) * inverse_norm(squares[plane]);
    float highest = -3.0e38f, sum = 0.0f;
#pragma unroll 1
    for (int key = 0; key < depth; key++) {
        const float logit = cross_sums[key] * scale * inverse_norm(key_squares[key]);
        made[key * depth] = logit;
        highest = fmaxf(highest, logit);
    }
#pragma unroll 1
    for (int key = 0; key < depth; key++) {
        const float power = expf(made[key * depth] - highest);
        made[key * depth] = power;
        sum += power;
    }
    const float share = __fdividef(1.0f, sum);
#pragma unroll 1
    for (int key = 0; key < depth; key++) made[key * depth] *= share;
}

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
        } else if (task.kind == WEIGHTS) {
            const float* const squares = vectors + task.source + task.outputs * task.inputs;
            for (int i = threadIdx.x; i < 2 * task.outputs; i += THREADS)
                if (squares[i] * squares[i] < static_cast<float>(task.scale)) p.flags[blockIdx.x] = 1;
            for (int i = threadIdx.x; i < task.outputs; i += THREADS) weigh(task, vectors, i);
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
