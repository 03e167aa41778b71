// Convolutions of each plane with its own kernel, between maps of tensor.cuh.
//
//     out(y, x, c) = act(bias(c) + sum over dy, dx of weight(dy, dx, c) * in(y + dy, x + dx, c)) + residual(y, x, c)
//     with JOIN        JOIN(made, residual) instead of the sum
//
// A thread makes 8 planes of LINE neighbouring pixels of a row, and reads each of a row's pixels once. Pixels
// beyond the last column reach no stored result.
//
// Arguments: `Depthwise` below. Layouts
//   in, out, residual  maps in groups of GROUP, OUT_GROUP, RESIDUAL_GROUP planes
//   weights            float [TAPS][TAPS][WRITTEN]
//   epilogue           float [2][WRITTEN]: biases, then slopes; as the weights, zeros behind the last plane
// Macros
//   THREADS, VECTORS (of a group, which neighbouring threads share: they divide WRITTEN), LINE, TAPS (in each
//   direction), PLANES, WRITTEN (the same with the padding of the target's part, which is written too), GROUP,
//   STORED, IN_PART (first plane), COLUMNS_BEYOND (see tensor/layout.py), TERMS, JOIN(x, residual), RESIDUAL and with it RESIDUAL_GROUP, RESIDUAL_STORED,
//   RESIDUAL_PART; ACTIVATE and those of the store, see tensor.cuh
// Bound: device memory up to 3x3, then multiply-adds.
#define STACK 1
#define D2S 1
#include "tensor_cells.cuh"

static_assert(LINE - 1 <= COLUMNS_BEYOND, "pixels behind a map");

struct Depthwise {
    const uint8_t* in;
    uint8_t* out;
    const uint8_t* residual;
    const float* weights;
    const float* epilogue;
    uint32_t* flags;  // a word for each picture, see `flag_picture`
    Map from, to, added;
    LayerExtent extent;
    Range valid;
    int beyond;
};

__device__ __forceinline__ void load_eight(float (&values)[8], const float* from) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float4 four = __ldg(reinterpret_cast<const float4*>(from) + half);
        values[half * 4] = four.x;
        values[half * 4 + 1] = four.y;
        values[half * 4 + 2] = four.z;
        values[half * 4 + 3] = four.w;
    }
}

__device__ __forceinline__ void read_pixel(float (&values)[8], const Depthwise& p, int y, int x, int plane, int down,
                                           int along) {
#pragma unroll
    for (int k = 0; k < 8; k++) values[k] = 0.0f;
    add<STORED, GROUP>(values, p.in + single_at<GROUP, 1, STORED>(p.from, y + p.from.top, x + p.from.left,
                                                                  IN_PART + plane, down, along), p.from);
}

// Blocks: (parts of columns, rows, pictures * parts of planes).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_depthwise(const __grid_constant__ Depthwise p) {
    const int picture = blockIdx.z / (WRITTEN / (VECTORS * 8));
    const int plane = (blockIdx.z % (WRITTEN / (VECTORS * 8)) * VECTORS + threadIdx.x % VECTORS) * 8;
    const int down = picture / p.extent.across, along = picture % p.extent.across;
    const int y = blockIdx.y, x0 = (blockIdx.x * (THREADS / VECTORS) + threadIdx.x / VECTORS) * LINE;
    if (x0 >= p.extent.columns) return;
    float sums[LINE][8];
#pragma unroll
    for (int i = 0; i < LINE; i++) load_eight(sums[i], p.epilogue + plane);
#pragma unroll 1
    for (int dy = 0; dy < TAPS; dy++) {
        // Pixel x0 + dx + i is in line[(dx + i) % LINE].
        float line[LINE][8];
#pragma unroll
        for (int i = 0; i < LINE - 1; i++) read_pixel(line[i], p, y + dy, x0 + i, plane, down, along);
#pragma unroll
        for (int dx = 0; dx < TAPS; dx++) {
            read_pixel(line[(dx + LINE - 1) % LINE], p, y + dy, x0 + dx + LINE - 1, plane, down, along);
            float weights[8];
            load_eight(weights, p.weights + (dy * TAPS + dx) * WRITTEN + plane);
#pragma unroll
            for (int i = 0; i < LINE; i++)
#pragma unroll
                for (int k = 0; k < 8; k++) sums[i][k] = fmaf(weights[k], line[(dx + i) % LINE][k], sums[i][k]);
        }
    }
    float slopes[8];
    load_eight(slopes, p.epilogue + WRITTEN + plane);
    uint32_t sizes = 0;
#pragma unroll
    for (int i = 0; i < LINE; i++) {
        const int x = x0 + i;
        if (x >= p.extent.columns) continue;
        float more[8] = {};
#if RESIDUAL
        add<RESIDUAL_STORED, RESIDUAL_GROUP>(more, p.residual + single_at<RESIDUAL_GROUP, 1, RESIDUAL_STORED>(p.added,
            y + p.added.top, x + p.added.left, RESIDUAL_PART + plane, down, along), p.added);
#endif
        const bool outside = ZERO && (y < p.valid.top || y >= p.valid.bottom || x < p.valid.left || x >= p.valid.right);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float made = activate(sums[i][k], slopes[k]);
            const bool is_none = outside || plane + k >= PLANES;
#ifdef JOIN
            sums[i][k] = is_none ? 0.0f : JOIN(made, more[k]);
#else
            sums[i][k] = is_none ? 0.0f : made + more[k];
#endif
        }
        uint8_t* const target = p.out +
            single_at<OUT_GROUP, 1, OUT_STORED>(p.to, y + p.to.top, x + p.to.left, PART + plane, down, along);
        store_eight(target, low_terms_of<OUT_STORED, OUT_GROUP>(p.to), sums[i], sizes, p.beyond);
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
