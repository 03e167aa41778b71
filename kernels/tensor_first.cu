// A first convolution and its epilogue, on matrix units from sm_75 on: pixels, or a map of few planes, to a
// map of tensor.cuh; or (LAST) to pixels or another map of few planes.
//
//     out(y, x, o) = epilogue(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//
// Reads the picture's own integers, enlarges it (nearest), and goes on beyond its edges. A matrix
// product on mma m16n8k16: a row of the operand is the neighbourhood of a pixel, whose rows are
// contiguous values in an interleaved picture, so it is gathered from shared memory in pairs of
// values. A pair may begin at an odd value: the pixels stand there twice, the second time one value
// further. 8-bit pixels are exact in one 16-bit term, others take two; weights always have two.
//
// Arguments: `Conv`, then `Source`, both in tensor.cuh. Layouts
//   in       pixels [picture][row][column][IN_PLANES], see IN_PIXEL there; whole pictures, or of a map of
//            few planes the part at hand
//   weights  uint32 [32 output planes][k16][n8][lane][term][word], fragments of `mma`, with output planes in the
//            order of `pack_quads` but for LAST: value k of an output plane is [ky][kx * IN_PLANES + plane], each ky padded to an even count, all to 16;
//            times 256 / 255 or 65536 / 65535 for integers, which come as fractions of a power of two
//   epilogue float [2][OUT_PLANES]: biases, then slopes of all output planes
//   out      map in groups of OUT_GROUP planes, or (LAST) pixels [row][column][PLANES]
// Macros
//   COLUMNS, ROWS (results of a block: a warp makes a row), KERNEL (taps in each direction), IN_PLANES (up
//   to 4), IN_PIXEL, ENLARGE (by how much the picture is), BORDER (see `inside`), OUT_PLANES (a multiple of
//   32), TERMS, SM75 (see mma.cuh), LAST (0 or 1; of 32 output planes), with it PLANES and PIXEL, and those
//   of the store, see tensor.cuh
// Bound: device memory, for the map it writes. Best: NVIDIA H200, 2026-11-21, 1920x1080 out, fp16: 3 > 32 planes
//   0.077 ms, 46 TFLOP/s.
#define TAP_COLUMNS 0
#define WIDTH 32
// The planes that a warp stores at once.
#define TILE_COLUMNS 16
#define TILE_RESULTS 16
#include "mma.cuh"
#include "tensor.cuh"

#define THREADS (ROWS * 32)
#define VALUES (IN_PLANES * KERNEL + 1 & ~1)
#define DEPTH ((VALUES * KERNEL + 15) / 16)
#define IN_TERMS (IN_PIXEL == 8 ? 1 : 2)
#define READ_ROWS (ROWS + KERNEL - 1)
#define READ_COLUMNS (COLUMNS + KERNEL - 1)
// Values of a row of pixels, a whole number of pairs.
#define LINE ((READ_COLUMNS * IN_PLANES + 2) & ~1)

// The terms of a pixel, exact for integers.
__device__ __forceinline__ void split(source_t pixel, uint16_t (&terms)[IN_TERMS]) {
#if IN_PIXEL == 8
    terms[0] = round_to_half(pixel * (1.0f / 256));
#elif IN_PIXEL == 16
    terms[0] = round_to_half((pixel >> 8) * (1.0f / 256));
    terms[1] = round_to_half((pixel & 255) * (1.0f / 65536));
#else
    terms[0] = round_to_half(pixel);
    terms[1] = round_to_half(low_term(pixel));
#endif
}

// Blocks of a multiprocessor that leave a thread enough registers; other chips need more.
#define BLOCKS ((__CUDA_ARCH__ == 900 && IN_TERMS == 1 ? 640 : 512) / THREADS)
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_first(const __grid_constant__ Conv p, const __grid_constant__ Source source) {
    // [term][copy][row][value]; copy 1 begins at value 1.
    __shared__ __align__(4) uint16_t pixels[IN_TERMS][2][READ_ROWS][LINE];
#if LAST
    __shared__ float partial[ROWS][16 * (WIDTH + 1)];
#endif
    const int x0 = blockIdx.x * COLUMNS, y0 = blockIdx.y * ROWS;
    for (int i = threadIdx.x; i < READ_ROWS * READ_COLUMNS; i += THREADS) {
        const int row = i / READ_COLUMNS, column = i % READ_COLUMNS;
        int y = y0 + row, x = x0 + column, picture = 0;
#if STACK
        const int down = y / p.from.rows, along = x / p.from.columns;
        picture = min(down * p.extent.across + along, p.extent.pictures - 1);
        y -= down * p.from.rows;
        x -= along * p.from.columns;
#endif
        // Whole blocks reach beyond the results: any pixel will do there, as long as it is a number.
        y = inside(floor_divide(source.top + y, ENLARGE) - source.padding, source.rows);
        x = inside(floor_divide(source.left + x, ENLARGE) - source.padding, source.columns);
        const bool outside = BORDER == 2 && (y < 0 || x < 0);
        const size_t line = static_cast<size_t>(picture) * source.rows + max(y, 0);
        const source_t* const pixel =
            static_cast<const source_t*>(p.in) + (line * source.columns + max(x, 0)) * IN_PLANES;
        for (int plane = 0; plane < IN_PLANES; plane++) {
            uint16_t terms[IN_TERMS];
            split(outside ? source_t(0) : __ldg(pixel + plane), terms);
            const int at = column * IN_PLANES + plane;
#pragma unroll
            for (int term = 0; term < IN_TERMS; term++) {
                pixels[term][0][row][at] = terms[term];
                if (at > 0) pixels[term][1][row][at - 1] = terms[term];
            }
        }
    }
    // Values that pairs read beyond the last pixel meet zero weights, but must be numbers.
    for (int i = threadIdx.x; i < IN_TERMS * 2 * READ_ROWS * 3; i += THREADS) {
        const int copy = i / 3 / READ_ROWS % 2, at = READ_COLUMNS * IN_PLANES - copy + i % 3;
        if (at < LINE) pixels[i / 3 / READ_ROWS / 2][copy][i / 3 % READ_ROWS][at] = 0;
    }
    __syncthreads();

    const int row = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
    const int plane = blockIdx.z * 32;
    const uint4* const factors = reinterpret_cast<const uint4*>(p.weights) + blockIdx.z * DEPTH * 128 + lane;
#if !LAST
    OwnEpilogue biases, slopes;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        biases.two[i] = epilogue_of<true>(p.epilogue + plane, 0, i, q);
        if (PLANE_SLOPES) slopes.two[i] = epilogue_of<true>(p.epilogue + OUT_PLANES + plane, 0, i, q);
    }
#endif
    for (int part = 0; part < COLUMNS / 16; part++) {
        const int column = part * 16 + lane / 4;
        float sums[4][4] = {};
#pragma unroll
        for (int k16 = 0; k16 < DEPTH; k16++) {
            uint32_t a[IN_TERMS][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // Values beyond the last one meet zero weights.
                const int k = min(k16 * 16 + q * 2 + i / 2 * 8, VALUES * KERNEL - 2);
                const int at = (column + i % 2 * 8) * IN_PLANES + k % VALUES;
#pragma unroll
                for (int term = 0; term < IN_TERMS; term++) {
                    a[term][i] = *reinterpret_cast<const uint32_t*>(&pixels[term][at & 1][row + k / VALUES][at & ~1]);
                    // Behind the last value of a row of taps stands a pixel of a map that may be unwritten.
                    if (IN_PIXEL == 0 && k % VALUES == IN_PLANES * KERNEL - 1) a[term][i] &= 0xffff;
                }
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                // High terms, then low ones.
                const uint4 b = __ldg(factors + (k16 * 4 + n) * 32);
                // Small products first: the unit cuts sums off at 24 bits.
                if (IN_TERMS == 2) mma(sums[n], a[IN_TERMS - 1], b.x, b.y);
                mma(sums[n], a[0], b.z, b.w);
                mma(sums[n], a[0], b.x, b.y);
            }
        }
#if LAST
        float* const own = partial[row];
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) own[(lane / 4 + i / 2 * 8) * (WIDTH + 1) + n * 8 + q * 2 + i % 2] = sums[n][i];
        __syncwarp();
        for (int i = lane; i < ROW_PIXELS; i += 32) {
            const MadePixel made = made_pixel(i, y0 + row, x0 + part * 16, p);
            store_pixel(own, made, added_to(made, p), p.epilogue, p.epilogue + OUT_PLANES, p);
        }
#else
        const AddedVectors<32> added = added_vectors<32>(plane, y0 + row, x0 + column, q, p);
        bool infinite = false;
        store_row<32, true>(&sums[0][0], biases, slopes, plane, y0 + row, x0 + column, q, added, p, infinite);
        flag_single(infinite, p);
#endif
    }
}
