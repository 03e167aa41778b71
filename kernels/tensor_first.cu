// The first 3x3 convolution, then leaky ReLU: pixels of a picture to a feature map of tensor.cuh.
//
// Reads the picture's own integers, enlarges it (nearest), replicates its edges. A matrix product on
// mma m16n8k16: a row of the operand is the neighbourhood of a pixel, whose three rows are contiguous
// values in an interleaved picture, so it is gathered from shared memory in pairs of values. A pair
// may begin at an odd value: the pixels stand there twice, the second time one value further.
// 8-bit pixels are exact in one 16-bit term, others take two; weights always have two.
//
// Pointers
//   in       pixels [picture][row][column][PLANES], PIXEL bits each, of a part of the picture or of
//            several pictures of one size: `Source`, `Cells`
//   weights  uint32 [term][32 output planes][k16][n8][word][lane], fragments of `mma`: value k of an
//            output plane is [ky][kx * PLANES + plane], each ky padded to an even count, all to 16;
//            times 256 / 255 or 65536 / 65535 for integers, which come as fractions of a power of two
//   bias     float[OUT_PLANES]
//   out      feature map in groups of GROUP planes
// Macros
//   PLANES (up to 4), PIXEL, OUT_PLANES (a multiple of 32), GROUP, TERMS, OLD (see mma.cuh),
//   STACK (see tensor.cuh)
// Bound: device memory, for the map it writes. Best on an H200, 1920x1080 out: 3 > 32 in 0.067 ms.
#include "mma.cuh"
#include "tensor.cuh"

#define COLUMNS 64
#define ROWS 8
#define THREADS (ROWS * 32)
#define VALUES (PLANES * 3 + 1 & ~1)
#define DEPTH ((VALUES * 3 + 15) / 16)
#define IN_TERMS (PIXEL == 8 ? 1 : 2)
// Values of a row of pixels, a whole number of pairs.
#define WIDTH ((COLUMNS + 2) * PLANES + 2 & ~1)

struct Source {
    int top, left;      // of the part at hand, in the picture
    int rows, columns;  // of that part
    int height, width;  // of the whole picture
    int factor;         // of the enlargement
};

// Where a pixel of the enlarged picture stands in the part at hand. Whole blocks reach beyond what is
// needed, and so beyond that part: any pixel will do there, as long as it is a number.
__device__ __forceinline__ int inside(int at, int factor, int size, int start, int count) {
    return min(min(max(at, 0) / factor, size - 1) - start, count - 1);
}

// The terms of a pixel, exact for integers.
__device__ __forceinline__ void split(pixel_t pixel, __half (&terms)[IN_TERMS]) {
#if PIXEL == 8
    terms[0] = __float2half_rn(pixel * (1.0f / 256));
#elif PIXEL == 16
    terms[0] = __float2half_rn((pixel >> 8) * (1.0f / 256));
    terms[1] = __float2half_rn((pixel & 255) * (1.0f / 65536));
#else
    terms[0] = __float2half_rn(pixel);
    terms[1] = __float2half_rn(rest(pixel));
#endif
}

// Two blocks at a time leave a thread the registers that it needs.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
tensor_first(const pixel_t* __restrict__ in, const uint32_t* __restrict__ weights,
             const float* __restrict__ bias, uint8_t* __restrict__ out, Source source, Map to,
             int top, int left, float slope, Cells cells) {
    // [term][copy][row][value]; copy 1 begins at value 1.
    __shared__ __align__(4) __half pixels[IN_TERMS][2][ROWS + 2][WIDTH];
    const int x0 = blockIdx.x * COLUMNS, y0 = blockIdx.y * ROWS;
    for (int i = threadIdx.x; i < (ROWS + 2) * (COLUMNS + 2); i += THREADS) {
        const int row = i / (COLUMNS + 2), column = i % (COLUMNS + 2);
        int y = y0 + row, x = x0 + column, picture = 0;
#if STACK
        const int down = y / cells.rows, along = x / cells.columns;
        picture = min(down * cells.across + along, cells.count - 1);
        y -= down * cells.rows;
        x -= along * cells.columns;
#endif
        y = inside(top + y, source.factor, source.height, source.top, source.rows);
        x = inside(left + x, source.factor, source.width, source.left, source.columns);
        const pixel_t* const pixel =
            in + ((static_cast<size_t>(picture) * source.rows + y) * source.columns + x) * PLANES;
        for (int plane = 0; plane < PLANES; plane++) {
            __half terms[IN_TERMS];
            split(pixel[plane], terms);
            const int at = column * PLANES + plane;
#pragma unroll
            for (int term = 0; term < IN_TERMS; term++) {
                pixels[term][0][row][at] = terms[term];
                if (at > 0) pixels[term][1][row][at - 1] = terms[term];
            }
        }
    }
    // What pairs read beyond the last pixel meets zero weights, but must be a number.
    for (int i = threadIdx.x; i < IN_TERMS * 2 * (ROWS + 2) * 3; i += THREADS) {
        const int copy = i / 3 / (ROWS + 2) % 2, at = (COLUMNS + 2) * PLANES - copy + i % 3;
        if (at < WIDTH) pixels[i / 3 / (ROWS + 2) / 2][copy][i / 3 % (ROWS + 2)][at] = __float2half_rn(0.0f);
    }
    __syncthreads();

    const int row = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
    const int plane = blockIdx.z * 32;
    const uint32_t* const factors = weights + blockIdx.z * DEPTH * 256 + lane;
    const int second = gridDim.z * DEPTH * 256;
    float biases[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        biases[i * 2] = __ldg(bias + plane + i * 8 + q * 2);
        biases[i * 2 + 1] = __ldg(bias + plane + i * 8 + q * 2 + 1);
    }
    for (int part = 0; part < COLUMNS / 16; part++) {
        const int column = part * 16 + lane / 4;
        float sums[4][4] = {};
#pragma unroll
        for (int k16 = 0; k16 < DEPTH; k16++) {
            uint32_t a[IN_TERMS][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // Values beyond the last one meet zero weights.
                const int k = min(k16 * 16 + q * 2 + i / 2 * 8, VALUES * 3 - 2);
                const int at = (column + i % 2 * 8) * PLANES + k % VALUES;
#pragma unroll
                for (int term = 0; term < IN_TERMS; term++)
                    a[term][i] = *reinterpret_cast<const uint32_t*>(&pixels[term][at & 1][row + k / VALUES][at & ~1]);
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const uint32_t* const b = factors + (k16 * 4 + n) * 64;
                const uint32_t h0 = __ldg(b), h1 = __ldg(b + 32);
                const uint32_t l0 = __ldg(b + second), l1 = __ldg(b + second + 32);
                // Small products first: the unit cuts sums off at 24 bits.
                if (IN_TERMS == 2) mma(sums[n], a[IN_TERMS - 1], h0, h1);
                mma(sums[n], a[0], l0, l1);
                mma(sums[n], a[0], h0, h1);
            }
        }
        const Place places[2] = {place(y0 + row, x0 + column, to, cells), place(y0 + row, x0 + column + 8, to, cells)};
        store_planes<GROUP, TERMS>(&sums[0][0], biases, slope, out, to, OUT_PLANES, plane, places, q);
    }
}
