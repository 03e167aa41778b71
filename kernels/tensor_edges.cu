// The first and last rows and columns of a picture that a convolution makes which resizes by one half
// (`Resized` in waifu2x/lowering/program.py): their weights are others.
//
//     out(y, x, o) = bias(kinds, o) + sum over ky, kx, i of weight(kinds, o, i, ky, kx) * in(y / 2 + ky, x / 2 + kx, i)
//                    + residual(y, x, o)
//
// A warp makes a pixel, each thread multiplies its own planes. Kinds of rows, and of columns, are 0 for
// the first one, 3 for the last, 1 for even ones and 2 for odd ones.
//
// Arguments: `Conv` in tensor.cuh, as of the convolution that makes the other pixels. Layouts
//   in       map as tensor.cuh has it, in groups of GROUP planes; IN_PLANES of them are read
//   weights  float [kind of row][kind of column][tap][plane of the result][IN_PLANES]
//   epilogue float [kind of row][kind of column][plane of the result]
//   out      pixels [row][column][PLANES]
// Macros
//   IN_PLANES, GROUP, SIDE (taps in each direction), TERMS = 1, THREADS, PLANES, PIXEL, RESIDUAL, STACK, and with
//   RESIDUAL RESIDUAL_PIXEL, RESIDUAL_ENLARGE = 2, RESIDUAL_BLEND, BORDER: see tensor.cuh
// Bound: the time of a launch.
#define LAST 1
#define D2S 2
#define TAP_COLUMNS 0
#define WIDTH 32
#define TILE_COLUMNS 16
#define TILE_RESULTS 16
#define ZERO 0
#define PLANE_SLOPES 0
#define ACTIVATE(x, slope) (x)
#include "tensor.cuh"

// Planes that a thread multiplies at once.
#define EACH 2
// A constant, since nvcc does not expand macros in pragmas.
constexpr int SIDE_TAPS = SIDE;

// Blocks: (parts of the edges, 1, pictures).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_edges(const __grid_constant__ Conv p) {
    const int lane = threadIdx.x % 32, number = (blockIdx.x * THREADS + threadIdx.x) / 32;
    const int rows = p.valid.bottom - p.valid.top, columns = p.valid.right - p.valid.left;
    // Rows at the top and the bottom, then columns at the left and the right.
    const bool is_row = number < 2 * columns;
    const int along = is_row ? number : number - 2 * columns;
    if (!is_row && along >= 2 * rows) return;
    const int y = is_row ? (along < columns ? 0 : rows - 1) : along % rows;
    const int x = is_row ? along % columns : (along < rows ? 0 : columns - 1);
    const int row_kind = y == 0 ? 0 : y == rows - 1 ? 3 : 1 + y % 2;
    const int column_kind = x == 0 ? 0 : x == columns - 1 ? 3 : 1 + x % 2;

    MadePixel made = {};
    made.row = y + p.valid.top;
    made.column = x + p.valid.left;
    made.picture = blockIdx.z;
    const int to_row = made.row + p.to.top, to_column = made.column + p.to.left;
    made.is_stored = made.row >= 0 && made.column >= 0 && made.row < p.extent.rows * D2S &&
        made.column < p.extent.columns * D2S && to_row >= p.stored.top && to_row < p.stored.bottom &&
        to_column >= p.stored.left && to_column < p.stored.right;
    if (!made.is_stored) return;

    const int source_row = made.row / D2S + p.from.top + STACK * (made.picture / p.extent.across * p.from.rows);
    const int source_column =
        made.column / D2S + p.from.left + STACK * (made.picture % p.extent.across * p.from.columns);
    const int kinds = row_kind * 4 + column_kind;
    const float* const weights =
        reinterpret_cast<const float*>(p.weights) + static_cast<size_t>(kinds) * (SIDE * SIDE * PLANES * IN_PLANES);
    float sums[PLANES] = {};
    for (int first = lane * EACH; first < IN_PLANES; first += 32 * EACH)
#pragma unroll SIDE_TAPS
        for (int tap = 0; tap < SIDE * SIDE; tap++) {
            const uint8_t* const at = static_cast<const uint8_t*>(p.in) +
                vector_at<GROUP>(p.from, source_row + tap / SIDE, source_column + tap % SIDE, first) + first % 8 * 2;
            const float2 two = unpack(__ldg(reinterpret_cast<const uint32_t*>(at)));
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                const float2 by =
                    __ldg(reinterpret_cast<const float2*>(weights + (tap * PLANES + plane) * IN_PLANES + first));
                sums[plane] = fmaf(two.y, by.y, fmaf(two.x, by.x, sums[plane]));
            }
        }
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++)
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sums[plane] += __shfl_xor_sync(0xffffffffu, sums[plane], step);
    if (lane > 0) return;
    const Added added = added_to(made, p);
    const size_t line = static_cast<size_t>(made.picture) * p.to.rows + to_row;
    pixel_t* const pixel = static_cast<pixel_t*>(p.out) + (line * p.to.pitch + to_column) * PLANES;
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) {
        if (is_infinite(sums[plane])) p.flags[made.picture] = 1;
        pixel[plane] = to_pixel(sums[plane] + __ldg(p.epilogue + kinds * PLANES + plane) + added.planes[plane]);
    }
}
