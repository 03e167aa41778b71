// Planes of each head mixed by weights, between maps of tensor.cuh.
//
//     out(pixel, head, i) = sum over j of weights(head, j, i) * in(pixel, head, j)
//
// A block takes RUNS runs of 32 pixels of a row: a run's planes pass by in shared memory, a warp makes 8 planes of it
// of all that the heads have that these belong to, by weights that are zero where a plane is of another head.
//
// Arguments: `Mix` below. Layouts
//   in, out   maps in groups of GROUP, OUT_GROUP planes
//   weights   float [picture][weights_each], each beginning with [HEADS][DEPTH][DEPTH]
// Macros
//   THREADS, RUNS, HEADS, DEPTH (planes of a head), MOST (planes of the heads of 8 planes, at most), WRITTEN (planes
//   with the padding of the target's part, which is written too), GROUP, STORED, FIRST (plane), TERMS; and those of
//   the store, see tensor.cuh
// Bound: device memory, of heads of many planes shared memory.
#define STACK 1
#define D2S 1
#include "tensor_cells.cuh"

#define PLANES (HEADS * DEPTH)
#define PIXELS 32
#define OUTPUT_VECTORS (WRITTEN / 8)

struct Mix {
    const uint8_t* in;
    uint8_t* out;
    const float* weights;
    uint32_t* flags;  // a word for each picture, see `flag_picture`
    Map from, to;
    LayerExtent extent;
    Range valid;
    int weights_each;
    int beyond;
};

__device__ __forceinline__ int head_of(int plane) { return min(plane, PLANES - 1) / DEPTH; }

// Blocks: (parts of columns, rows, pictures).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_mix(const __grid_constant__ Mix p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    // [8 planes made][planes of their heads][8], then [plane][PIXELS], padded by one to spare the banks.
    float* const weights = reinterpret_cast<float*>(shared);
    float* const near = weights + OUTPUT_VECTORS * MOST * 8;
    const int picture = blockIdx.z, down = picture / p.extent.across, along = picture % p.extent.across;
    const float* const own = p.weights + static_cast<size_t>(picture) * p.weights_each;
    for (int i = threadIdx.x; i < OUTPUT_VECTORS * MOST * 8; i += THREADS) {
        const int plane = i / 8 / MOST * 8 + i % 8, from = head_of(i / 8 / MOST * 8) * DEPTH + i / 8 % MOST;
        const bool inside = plane < PLANES && from < PLANES && plane / DEPTH == from / DEPTH;
        weights[i] = inside ? __ldg(own + (from * DEPTH + plane % DEPTH)) : 0.0f;
    }
    const int y = blockIdx.y, lane = threadIdx.x % 32;
    uint32_t sizes = 0;
    for (int run = 0; run < RUNS; run++) {
        const int x0 = (blockIdx.x * RUNS + run) * PIXELS, x = x0 + lane;
        __syncthreads();
        for (int item = threadIdx.x; item < PIXELS * (PLANES / 8 + 2); item += THREADS) {
            const int pixel = item % PIXELS, plane = (FIRST / 8 + item / PIXELS) * 8;
            if (plane >= FIRST + PLANES) continue;
            float values[8] = {};
            if (x0 + pixel < p.extent.columns)
                add<STORED, GROUP>(values, p.in + single_at<GROUP, 1, STORED>(p.from, y + p.from.top,
                    x0 + pixel + p.from.left, plane, down, along), p.from);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const int to = plane + k - FIRST;
                if (to >= 0 && to < PLANES) near[to * (PIXELS + 1) + pixel] = values[k];
            }
        }
        __syncthreads();
        if (x >= p.extent.columns) continue;
        const bool outside = ZERO && (y < p.valid.top || y >= p.valid.bottom || x < p.valid.left || x >= p.valid.right);
        for (int vector = threadIdx.x / 32; vector < OUTPUT_VECTORS; vector += THREADS / 32) {
            const int first = head_of(vector * 8) * DEPTH, end = (head_of(vector * 8 + 7) + 1) * DEPTH;
            const float4* by = reinterpret_cast<const float4*>(weights + vector * MOST * 8);
            float sums[8] = {};
#pragma unroll 4
            for (int from = first; from < end; from++, by += 2) {
                const float value = near[from * (PIXELS + 1) + lane];
#pragma unroll
                for (int k = 0; k < 8; k++) sums[k] = fmaf((&by[k / 4].x)[k % 4], value, sums[k]);
            }
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (outside || vector * 8 + k >= PLANES) sums[k] = 0.0f;
            uint8_t* const target = p.out +
                single_at<OUT_GROUP, 1, OUT_STORED>(p.to, y + p.to.top, x + p.to.left, PART + vector * 8, down, along);
            store_eight(target, low_terms_of<OUT_STORED, OUT_GROUP>(p.to), sums, sizes, p.beyond);
        }
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
