// A convolution of 3x3, 2x2 or one tap (5x5 to a picture) and its epilogue, on the matrix units of sm_90a: maps to maps, or to
// a picture.
//
//     out(y, x, o) = epilogue(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//
// An implicit matrix product: a tile is ROWS x 64 output pixels times WIDTH output planes; each of
// WARPGROUPS warpgroups accumulates its share of the rows in registers. One copy of (ROWS + 2) x 66 pixels
// of 64 (32) input planes in shared memory serves all nine taps, which differ only in the address where
// the matrix descriptor begins. One warp copies input, one weights, through rings of buffers; blocks
// stay and take tile after tile. The second warpgroup is held a few steps behind the first, so
// that one finishes its tile while the other keeps the matrix unit busy.
//
// To a picture, or a map of few planes (LAST): sums go through shared memory, and each becomes a value
// of a pixel, depth-to-space. Where they are few (TAP_COLUMNS) they would leave the unit idle, so the three
// taps of a row are columns of the matrix product, WIDTH >= 3 * SUMS, and are summed with a shift of one
// pixel each at the end. A tile then is ROWS x 62 pixels.
//
// One tap (SIDE = 1): the same, without the rows and columns around a tile.
//
// Arguments: `Conv` in tensor.cuh. Layouts
//   in       map as tensor.cuh has it, in groups of GROUP planes; of its STORED_GROUPS groups IN_PLANES
//            planes are read, from FIRST_GROUP on. A tile reads on beyond the last row and column,
//            where anything may stand
//   weights  [tile of output planes][K-block][tap][WIDTH][GROUP], 16-bit floats: see K_BLOCKS in
//            tensor.cuh. Vectors of 16 bytes stand as in a map whose columns are output planes
//   epilogue float [2][DEPTH * WIDTH]: biases, then slopes of all output planes
//   out      map in groups of OUT_GROUP planes, OUT_STORED in all, or (LAST) pixels [row][column][PLANES]
//   residual with RESIDUAL = 1, as `residual_at` says; (LAST) float [row][column][PLANES]
// Macros
//   IN_PLANES, GROUP, USED (planes of a group before its padding, which is not multiplied), STORED_GROUPS,
//   FIRST_GROUP, SIDE (taps in each direction), WIDTH, DEPTH (tiles of
//   output planes), TERMS, WARPGROUPS, ROWS (of all of them), A_STAGES and B_STAGES (buffers of pixels
//   and of weights), BLOCKS (on one multiprocessor at a time), REGISTERS (of a thread that multiplies),
//   LAST (0 or 1), with it PLANES, PIXEL and PARTIAL_ROWS (rows of a warpgroup whose sums are in shared memory
//   at once), TAP_COLUMNS (0 or 1), SPARSE_TAPS, MARGIN; SCALED (0 or 1: planes of the
//   source are scaled, and rounded to 16 bits) with IN_EACH (those of a single pixel);
//   THREADS, SHARED (bytes of a block), TILE_COLUMNS, TILE_RESULTS, ROWS_BEYOND, COLUMNS_BEYOND (see
//   tensor.cuh);
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, RESIDUAL_GROUP,
//   RESIDUAL_STORED, RESIDUAL_PART, STACK: of the store, see tensor.cuh
// Bound: the matrix unit for 64 planes and more out; below, shared memory, which it reads operands
//   from at 128 bytes a clock; for LAST and for one tap, device memory. Best: NVIDIA H200, 2026-11-21,
//   1920x1080 out, fp16: 128 > 128 planes 703 TFLOP/s, 79 % of what tensor_peak.cu reaches; 64 > 64 623;
//   32 > 32 355; 128 > 3 0.148 ms; 480x270: 64 to 160 > 32 229 to 278, 192 > 64 426.
#include "barriers.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

// The last tile ends behind the last row and column that are wanted, and reads as far.
static_assert(ROWS - 1 <= ROWS_BEYOND && TILE_COLUMNS - 1 <= COLUMNS_BEYOND, "memory behind a map");
#define ROWS_EACH (ROWS / WARPGROUPS)
// Rows of a tile begin at multiples of the swizzle's period of 8 pixels. One that begins 7 pixels into
// it ends a pixel behind its place, where the next row has none, nor has the room behind the last tile.
#define PITCH (TILE_COLUMNS + 8)
#define A_BYTES (A_ROWS * PITCH * PIXEL_BYTES)
// All weights fit: they are copied once and stay.
#define RESIDENT (B_STAGES == STEPS)
#define BARRIERS (2 * A_STAGES + 2 * B_STAGES + 2)
#define PARTIAL_FLOATS (LAST ? WARPGROUPS * PARTIAL_ROWS * TILE_COLUMNS * (WIDTH + 1) : 0)
static_assert(SHARED == A_STAGES * A_BYTES + B_STAGES * B_BYTES + PIXEL_BYTES + WIDTH * 8 + BARRIERS * 8 +
              PARTIAL_FLOATS * 4, "tensor/shape.py assumes other shared memory");
// Threads for which one says that they have read pixels: a product is of a warpgroup, and done for all of it.
#define READING (SCALED ? 32 : 128)
#define READERS (128 / READING)
// Where device memory is the bound, addends are loaded together with pixels.
#define ADDED_EARLY (RESIDUAL && SIDE == 1 && !LAST && !STACK && TERMS == 1 && !SCALED_RESIDUAL)
// Steps by which the first warpgroup is ahead.
#define LEAD (TAPS < 3 ? TAPS : 3)
static_assert(THREADS == WARPGROUPS * 128 + 128, "one warpgroup more than multiply");
static_assert(TILE_COLUMNS == 64, "rows of the matrix product of a warpgroup");
// The warps that copy need few.
#define SPARE_REGISTERS (REGISTERS > 200 ? 40 : REGISTERS > 112 ? 24 : 32)

#if RESIDUAL && !LAST && !STACK
// Asks for what will be added to a tile: to be near when it is.
__device__ __forceinline__ void prefetch_residual(const Tile& tile, int deep, const Conv& p) {
    const int group = (RESIDUAL_PART + deep * WIDTH) / RESIDUAL_GROUP;
    const uint8_t* const residual = static_cast<const uint8_t*>(p.residual);
#pragma unroll 1
    for (int i = 0; i < (WIDTH + RESIDUAL_GROUP - 1) / RESIDUAL_GROUP; i++)
#pragma unroll 1
        for (int row = 0; row < ROWS; row++) {
            const size_t line = tile.y + row + p.added.top;
            const size_t pixel = line * p.added.pitch + tile.x + p.added.left;
            const uint8_t* const from = residual + static_cast<size_t>(group + i) * p.added.group * 16 +
                pixel * (RESIDUAL_GROUP * 2);
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                ::"l"(from), "r"(TILE_COLUMNS * RESIDUAL_GROUP * 2) : "memory");
        }
}
#endif

// Where a tap's pixels begin in a tile.
__device__ __forceinline__ uint32_t tap_offset(int tap) {
    return (TAP_COLUMNS ? tap * PITCH : tap / SIDE * PITCH + tap % SIDE) * PIXEL_BYTES;
}

// One tap of one group of planes, for the rows of a warpgroup.
__device__ __forceinline__ void multiply(float (&sums)[ROWS_EACH][WIDTH / 2], uint32_t a, uint32_t b, int add) {
#pragma unroll
    for (int k = 0; k < (USED + 15) / 16; k++)
#pragma unroll
        for (int row = 0; row < ROWS_EACH; row++)
            wgmma(sums[row], descriptor(a + row * PITCH * PIXEL_BYTES + k * 32), descriptor(b + k * 32), add | k);
}

#if SCALED
static_assert(SIDE == 1 && TERMS == 1, "each pixel is scaled once");

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// The same with pixels that are scaled, by way of registers: those from `shift` pixels into a row on, of a
// warpgroup's rows from (y, x) on. It waits for the matrix products.
__device__ __forceinline__ void multiply_scaled(float (&sums)[ROWS_EACH][WIDTH / 2], uint32_t a, uint32_t b, int k_block,
                                                int shift, int y, int x, const Conv& p) {
    const int lane = threadIdx.x % 32, q = lane % 4, first = threadIdx.x % 128 / 32 * 16;
    const int pixel = shift + first + lane % 16;
    uint32_t pixels[ROWS_EACH][GROUP / 16][4];
#pragma unroll
    for (int row = 0; row < ROWS_EACH; row++) {
        const uint32_t start = a + (row * PITCH + pixel - shift) * PIXEL_BYTES;
        const float* factors[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const OutputCoordinate at =
                output_coordinate(y + row, x + first + lane / 4 + half * 8, p.from, p.extent);
            factors[half] = factors_of(p.factors, at, p) + k_block * GROUP % IN_EACH + q * 2;
        }
#pragma unroll
        for (int k = 0; k < GROUP / 16; k++) {
            load_matrices(pixels[row][k], start + ((k * 2 + lane / 16) ^ swizzle_phase<GROUP>(pixel)) * 16);
#pragma unroll
            for (int i = 0; i < 4; i++)
                pixels[row][k][i] = scaled(pixels[row][k][i], factors[i % 2] + k * 16 + i / 2 * 8);
        }
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < GROUP / 16; k++)
#pragma unroll
        for (int row = 0; row < ROWS_EACH; row++)
            wgmma_of_registers(sums[row], pixels[row][k], descriptor(b + k * 32), k_block | k);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    // Registers are read until here.
#pragma unroll
    for (int i = 0; i < ROWS_EACH * GROUP / 4; i++)
        asm volatile("" ::"r"((&pixels[0][0][0])[i]) : "memory");
    pin_accumulators(sums);
}
#endif

#if LAST
// Parts of a warpgroup's rows, and the pixels of each that a thread stores.
#define PARTS (ROWS_EACH / PARTIAL_ROWS)
#define PIXELS_EACH ((PARTIAL_ROWS * ROW_PIXELS + 127) / 128)
static_assert(PARTS * PARTIAL_ROWS == ROWS_EACH, "whole parts");
// Addends of few planes are loaded before their sums are made: it takes long.
#define EARLY (RESIDUAL && PARTS * PIXELS_EACH <= 4)
// A constant, since nvcc does not expand macros in pragmas.
constexpr int UNROLLED = EARLY ? PIXELS_EACH : 2;

// Pixel i of a thread, of a part's rows from (y, x) on.
__device__ __forceinline__ MadePixel own_pixel(int i, int y, int x, const Conv& p) {
    const int number = i * 128 + threadIdx.x % 128;
    MadePixel made = made_pixel(number, y, x, p);
    made.is_stored = made.is_stored && number < PARTIAL_ROWS * ROW_PIXELS;
    return made;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_wgmma(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const b_tiles = shared;
    uint8_t* const a_tiles = b_tiles + B_STAGES * B_BYTES;
    float* const biases = reinterpret_cast<float*>(a_tiles + A_STAGES * A_BYTES + PIXEL_BYTES);
    float* const slopes = biases + WIDTH;
    uint64_t* const barriers = reinterpret_cast<uint64_t*>(slopes + WIDTH);
    const uint32_t a_full = shared_address(barriers), a_empty = a_full + 8 * A_STAGES;
    const uint32_t b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES;
    const uint32_t lead = b_empty + 8 * B_STAGES;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) {
            barrier_init(a_full + 8 * i, 1);
            barrier_init(a_empty + 8 * i, WARPGROUPS * READERS);
        }
        for (int i = 0; i < B_STAGES; i++) {
            barrier_init(b_full + 8 * i, 1);
            barrier_init(b_empty + 8 * i, WARPGROUPS);
        }
        barrier_init(lead, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // One tile of output planes to a block, so that its weights and biases can stay.
    const int deep = blockIdx.x % DEPTH, first = blockIdx.x / DEPTH;
    const int stride = gridDim.x / DEPTH, tiles = p.extent.tiles;
#if MARGIN
    clear_margin<WIDTH>(p, deep * WIDTH, blockIdx.x / DEPTH, gridDim.x / DEPTH);
#endif
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        biases[i] = p.epilogue[deep * WIDTH + i];
        if (PLANE_SLOPES) slopes[i] = p.epilogue[(DEPTH + deep) * WIDTH + i];
    }
    const uint8_t* const weights = p.weights + static_cast<size_t>(deep) * STEPS * B_BYTES;
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            int use = 0;
            for (int number = first; number < tiles; number += stride) {
                const Tile tile = tile_at(number, p);
                // Swizzled vectors keep their place modulo 8 columns.
                const int shift = tile.column & 7;
#if RESIDUAL && !LAST && !STACK
                prefetch_residual(tile, deep, p);
#endif
                for (int k_block = 0; k_block < K_BLOCKS; k_block++, use++) {
                    const int stage = use % A_STAGES, round = use / A_STAGES;
                    if (round > 0) barrier_wait(a_empty + 8 * stage, round - 1 & 1);
                    const uint32_t bytes = TILE_READS * PIXEL_BYTES, full = a_full + 8 * stage;
                    barrier_expect(full, A_ROWS * bytes);
                    const uint8_t* source = k_block_at(k_block, tile, p);
                    uint32_t target = shared_address(a_tiles + stage * A_BYTES) + shift * PIXEL_BYTES;
                    #pragma unroll 1
                    for (int row = 0; row < A_ROWS; row++) {
                        bulk_copy(target, source, bytes, full);
                        source += p.from.pitch * PIXEL_BYTES;
                        target += PITCH * PIXEL_BYTES;
                    }
                }
            }
        }
        if (warp == WARPGROUPS * 4 + 1 && lane == 0) {
            int use = 0;
            for (int number = first; number < tiles; number += stride) {
                for (int step = 0; step < STEPS; step++, use++) {
                    const int stage = use % B_STAGES, round = use / B_STAGES;
                    if (round > 0) barrier_wait(b_empty + 8 * stage, round - 1 & 1);
                    barrier_expect(b_full + 8 * stage, B_BYTES);
                    bulk_copy(shared_address(b_tiles + stage * B_BYTES), weights + step * B_BYTES,
                              B_BYTES, b_full + 8 * stage);
                }
                if (RESIDENT) break;
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        const int group = warp / 4;
        if (group > 0 && first < tiles) barrier_wait(lead, 0);
        int a_use = 0;
        [[maybe_unused]] int b_use = 0;
        bool follow = group == 0;
        float sums[ROWS_EACH][WIDTH / 2];
        for (int number = first; number < tiles; number += stride) {
            const int shift = tile_at(number, p).column & 7;
            [[maybe_unused]] int busy = -1;  // the stage of weights that the last matrix product may still read
#if LAST && EARLY
            Added added[PARTS * PIXELS_EACH];
            const Tile place = tile_at(number, p);
#pragma unroll
            for (int i = 0; i < PARTS * PIXELS_EACH; i++)
                added[i] = added_to(own_pixel(i % PIXELS_EACH,
                    place.y + group * ROWS_EACH + i / PIXELS_EACH * PARTIAL_ROWS, place.x, p), p);
#endif
#if ADDED_EARLY
            AddedVectors<WIDTH> added[ROWS_EACH];
            const Tile place = tile_at(number, p);
#pragma unroll
            for (int row = 0; row < ROWS_EACH; row++)
                added[row] = added_vectors<WIDTH>(deep * WIDTH, place.y + group * ROWS_EACH + row,
                                                  place.x + warp % 4 * 16 + lane / 4, lane % 4, p);
#endif
            pin_accumulators(sums);
            for (int k_block = 0; k_block < K_BLOCKS; k_block++, a_use++) {
                const int a_stage = a_use % A_STAGES;
                barrier_wait(a_full + 8 * a_stage, a_use / A_STAGES & 1);
                const uint32_t a_tile = shared_address(a_tiles + a_stage * A_BYTES) +
                    (group * ROWS_EACH * PITCH + shift) * PIXEL_BYTES;
#if RESIDENT
                if (number == first)
                    for (int tap = 0; tap < TAPS; tap++) barrier_wait(b_full + 8 * (k_block * TAPS + tap), 0);
                const uint32_t b_tile = shared_address(b_tiles + k_block * TAPS * B_BYTES);
#if SCALED
                const Tile source = tile_at(number, p);
                multiply_scaled(sums, a_tile, b_tile, k_block, shift, source.y + group * ROWS_EACH, source.x, p);
#else
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int tap = 0; tap < TAPS; tap++)
                    multiply(sums, a_tile + tap_offset(tap), b_tile + tap * B_BYTES, k_block | tap);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
                if (k_block > 0 && threadIdx.x % READING == 0) barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));
                if (follow && threadIdx.x % 128 == 0) barrier_arrive(lead);
                follow = false;
#else
#pragma unroll 1
                for (int tap = 0; tap < TAPS; tap++, b_use++) {
                    const int b_stage = b_use % B_STAGES;
                    barrier_wait(b_full + 8 * b_stage, b_use / B_STAGES & 1);
#if SCALED
                    const Tile source = tile_at(number, p);
                    multiply_scaled(sums, a_tile, shared_address(b_tiles + b_stage * B_BYTES), k_block, shift,
                                    source.y + group * ROWS_EACH, source.x, p);
#else
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                    multiply(sums, a_tile + tap_offset(tap), shared_address(b_tiles + b_stage * B_BYTES),
                             k_block | tap);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
                    // The first matrix product of a K-block ends the reads of the one before.
                    if (tap == 0 && k_block > 0 && threadIdx.x % READING == 0)
                        barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));
                    if (threadIdx.x % 128 == 0) {
                        if (busy >= 0) barrier_arrive(b_empty + 8 * busy);
                        if (follow && tap == LEAD - 1) barrier_arrive(lead);
                    }
                    if (tap == LEAD - 1) follow = false;
                    busy = b_stage;
                }
#endif
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            pin_accumulators(sums);
            if (!RESIDENT && threadIdx.x % 128 == 0) barrier_arrive(b_empty + 8 * busy);
            if (threadIdx.x % READING == 0) barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));

            const Tile tile = tile_at(number, p);
            const int y = tile.y + group * ROWS_EACH, x = tile.x;
            const int q = lane % 4, column = warp % 4 * 16 + lane / 4;
#if LAST
            // [row of the part][input column][part * SUMS + sum]
            float* const partial = reinterpret_cast<float*>(barriers + BARRIERS) +
                group * PARTIAL_ROWS * TILE_COLUMNS * (WIDTH + 1);
#pragma unroll
            for (int first_row = 0; first_row < ROWS_EACH; first_row += PARTIAL_ROWS) {
                asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
                for (int row = 0; row < PARTIAL_ROWS; row++)
#pragma unroll
                    for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            partial[(row * TILE_COLUMNS + column + i / 2 * 8) * (WIDTH + 1) + j * 8 + q * 2 + i % 2] =
                                sums[first_row + row][j * 4 + i];
                asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll UNROLLED
                for (int i = 0; i < PIXELS_EACH; i++) {
                    const MadePixel made = own_pixel(i, y + first_row, x, p);
#if EARLY
                    store_pixel(partial, made, added[first_row / PARTIAL_ROWS * PIXELS_EACH + i], biases, slopes, p);
#else
                    store_pixel(partial, made, added_to(made, p), biases, slopes, p);
#endif
                }
            }
#else
            bool infinite = false;
#pragma unroll
            for (int row = 0; row < ROWS_EACH; row++) {
#if !ADDED_EARLY
                const AddedVectors<WIDTH> added = added_vectors<WIDTH>(deep * WIDTH, y + row, x + column, q, p);
                store_row<WIDTH>(sums[row], biases, slopes, deep * WIDTH, y + row, x + column, q, added, p, infinite);
#else
                store_row<WIDTH>(sums[row], biases, slopes, deep * WIDTH, y + row, x + column, q, added[row], p, infinite);
#endif
            }
            flag_single(infinite, p);
#endif
        }
    }
}
