// A first 3x3 convolution and its epilogue: pixels, or a map of few planes, to a map of tensor.cuh.
//
// Reads the picture's own integers, enlarges it (nearest), and goes on beyond its edges. A matrix
// product on mma m16n8k16: a row of the operand is the neighbourhood of a pixel, whose three rows are
// contiguous values in an interleaved picture, so it is gathered from shared memory in pairs of
// values. A pair may begin at an odd value: the pixels stand there twice, the second time one value
// further. 8-bit pixels are exact in one 16-bit term, others take two; weights always have two.
//
// Arguments: `Product` in tensor.cuh, then `Source`.
//   in       pixels [picture][row][column][PLANES], see PIXEL there; whole pictures, or of a map of few
//            planes the part at hand
//   weights  uint32 [term][32 output planes][k16][n8][word][lane], fragments of `mma`: value k of an
//            output plane is [ky][kx * PLANES + plane], each ky padded to an even count, all to 16;
//            times 256 / 255 or 65536 / 65535 for integers, which come as fractions of a power of two
//   follows  biases, then slopes of all output planes, [2][OUT_PLANES]
//   out      map in groups of OUT_GROUP planes
// Macros
//   COLUMNS, ROWS (results of a block: a warp makes a row), PLANES (up to 4), PIXEL, ENLARGE (by how
//   much the picture is), BORDER (0: the nearest pixel inside, 1: mirrored, 2: zero), OUT_PLANES (a
//   multiple of 32), TERMS, OLD (see mma.cuh), and those of the store, see tensor.cuh
// Bound: device memory, for the map it writes. Best on an H200, 1920x1080 out: 3 > 32 in 0.067 ms.
#include "mma.cuh"
#include "tensor.cuh"

#define THREADS (ROWS * 32)
#define VALUES (PLANES * 3 + 1 & ~1)
#define DEPTH ((VALUES * 3 + 15) / 16)
#define IN_TERMS (PIXEL == 8 ? 1 : 2)
// Values of a row of pixels, a whole number of pairs.
#define WIDTH ((COLUMNS + 2) * PLANES + 2 & ~1)

struct Source {
    int rows, columns;  // of each picture
    int top, left;      // of the first pixel that is read, in the enlarged picture with its padding
    int padding;        // pixels before the picture's first
};

// The row, or column, of a picture that stands at a place of the enlarged one; -1 for none. Whole
// blocks reach beyond what is needed: any pixel will do there, as long as it is a number.
__device__ __forceinline__ int inside(int at, int padding, int count) {
    // Rounded down, of negative places too.
    at = (at + (ENLARGE << 16)) / ENLARGE - (1 << 16) - padding;
#if BORDER == 0
    return min(max(at, 0), count - 1);
#elif BORDER == 1
    const int period = max(2 * (count - 1), 1);
    at = abs(at) % period;
    return at < count ? at : period - at;
#else
    return at >= 0 && at < count ? at : -1;
#endif
}

// The terms of a pixel, exact for integers.
__device__ __forceinline__ void split(pixel_t pixel, uint16_t (&terms)[IN_TERMS]) {
#if PIXEL == 8
    terms[0] = round_to_half(pixel * (1.0f / 256));
#elif PIXEL == 16
    terms[0] = round_to_half((pixel >> 8) * (1.0f / 256));
    terms[1] = round_to_half((pixel & 255) * (1.0f / 65536));
#else
    terms[0] = round_to_half(pixel);
    terms[1] = round_to_half(low_term(pixel));
#endif
}

// Two blocks at a time leave a thread the registers that it needs.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
tensor_first(const __grid_constant__ Product p, const __grid_constant__ Source source) {
    // [term][copy][row][value]; copy 1 begins at value 1.
    __shared__ __align__(4) uint16_t pixels[IN_TERMS][2][ROWS + 2][WIDTH];
    const int x0 = blockIdx.x * COLUMNS, y0 = blockIdx.y * ROWS;
    for (int i = threadIdx.x; i < (ROWS + 2) * (COLUMNS + 2); i += THREADS) {
        const int row = i / (COLUMNS + 2), column = i % (COLUMNS + 2);
        int y = y0 + row, x = x0 + column, picture = 0;
#if STACK
        const int down = y / p.from.rows, along = x / p.from.columns;
        picture = min(down * p.extent.across + along, p.extent.pictures - 1);
        y -= down * p.from.rows;
        x -= along * p.from.columns;
#endif
        y = inside(source.top + y, source.padding, source.rows);
        x = inside(source.left + x, source.padding, source.columns);
        const bool black = BORDER == 2 && (y < 0 || x < 0);
        const size_t line = static_cast<size_t>(picture) * source.rows + max(y, 0);
        const pixel_t* const pixel = static_cast<const pixel_t*>(p.in) + (line * source.columns + max(x, 0)) * PLANES;
        for (int plane = 0; plane < PLANES; plane++) {
            uint16_t terms[IN_TERMS];
            split(black ? pixel_t(0) : __ldg(pixel + plane), terms);
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
        if (at < WIDTH) pixels[i / 3 / (ROWS + 2) / 2][copy][i / 3 % (ROWS + 2)][at] = 0;
    }
    __syncthreads();

    const int row = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
    const int plane = blockIdx.z * 32;
    const uint32_t* const factors = reinterpret_cast<const uint32_t*>(p.weights) + blockIdx.z * DEPTH * 256 + lane;
    const int second = gridDim.z * DEPTH * 256;
    OwnFollows biases, slopes;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        biases.two[i] = follows_at(p.follows + plane, i, q);
        if (ACTIVATION == 1) slopes.two[i] = follows_at(p.follows + OUT_PLANES + plane, i, q);
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
        store_row<32>(&sums[0][0], biases, slopes, plane, y0 + row, x0 + column, q, p);
    }
}
