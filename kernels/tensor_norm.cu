// Norms over the planes of a pixel, between maps of tensor.cuh.
//
//     out(c) = (in(c) - mean) / sqrt(variance + EPS) * weight(c) + bias(c)
//
// where mean and variance are those of the PLANES of the pixel. LANES neighbouring threads share a pixel, whose
// planes stay in their registers; the mean is taken off before the variance is summed up.
//
// Arguments: `Norm` below. Layouts
//   in, out   maps in groups of GROUP, OUT_GROUP planes
//   weights   float [WRITTEN], then as many biases: zeros behind the last plane
// Macros
//   THREADS, LANES (a power of two), VECTORS (of 8 planes, of a thread), REPEATS (pixels of a thread), PLANES,
//   WRITTEN (the same with the padding of the target's part, which is written too), GROUP, STORED, IN_PART (first
//   plane), EPS, TERMS; and those of the store, see tensor.cuh
// Bound: device memory.
#define STACK 1
#define D2S 1
#include "tensor_cells.cuh"

#define EACH_COLUMNS (THREADS / LANES)

struct Norm {
    const uint8_t* in;
    uint8_t* out;
    const float* weights;
    uint32_t* flags;  // a word for each picture, see `flag_picture`
    Map from, to;
    LayerExtent extent;
    Range valid;
    int beyond;
};

__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// Blocks: (parts of columns, rows, pictures).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_norm(const __grid_constant__ Norm p) {
    const int picture = blockIdx.z, down = picture / p.extent.across, along = picture % p.extent.across;
    const int lane = threadIdx.x % LANES, y = blockIdx.y;
    const int x0 = blockIdx.x * EACH_COLUMNS * REPEATS + threadIdx.x / LANES;
    float values[REPEATS][VECTORS][8] = {};
#pragma unroll
    for (int i = 0; i < REPEATS; i++) {
        const int x = x0 + i * EACH_COLUMNS;
#pragma unroll
        for (int n = 0; n < VECTORS; n++) {
            const int plane = (n * LANES + lane) * 8;
            if (x < p.extent.columns && plane < PLANES)
                add<STORED, GROUP>(values[i][n], p.in + single_at<GROUP, 1, STORED>(p.from, y + p.from.top,
                    x + p.from.left, IN_PART + plane, down, along), p.from);
        }
    }
    uint32_t sizes = 0;
#pragma unroll
    for (int i = 0; i < REPEATS; i++) {
        const int x = x0 + i * EACH_COLUMNS;
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int n = 0; n < VECTORS; n++)
#pragma unroll
            for (int k = 0; k < 8; k++) sum += values[i][n][k];
        const float mean = sum_of_lanes(sum) * (1.0f / PLANES);
#pragma unroll
        for (int n = 0; n < VECTORS; n++)
#pragma unroll
            for (int k = 0; k < 8; k++) {
                values[i][n][k] = (n * LANES + lane) * 8 + k < PLANES ? values[i][n][k] - mean : 0.0f;
                squares = fmaf(values[i][n][k], values[i][n][k], squares);
            }
        const float factor = 1.0f / sqrtf(sum_of_lanes(squares) * (1.0f / PLANES) + EPS);
        if (x >= p.extent.columns) continue;
        const bool outside = ZERO && (y < p.valid.top || y >= p.valid.bottom || x < p.valid.left || x >= p.valid.right);
#pragma unroll
        for (int n = 0; n < VECTORS; n++) {
            const int plane = (n * LANES + lane) * 8;
            if (plane >= WRITTEN) continue;
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float made = fmaf(values[i][n][k] * factor, __ldg(p.weights + plane + k),
                                        __ldg(p.weights + WRITTEN + plane + k));
                values[i][n][k] = outside ? 0.0f : made;
            }
            uint8_t* const target = p.out +
                single_at<OUT_GROUP, 1, OUT_STORED>(p.to, y + p.to.top, x + p.to.left, PART + plane, down, along);
            store_eight(target, low_terms_of<OUT_STORED, OUT_GROUP>(p.to), values[i][n], sizes, p.beyond);
        }
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
