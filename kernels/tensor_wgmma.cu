// A 3x3 convolution, then leaky ReLU, on the matrix units of sm_90a: maps to maps, or to a picture.
//
// out[y][x][o] = act(bias[o] + sum over ky, kx, i of weight[o][i][ky][kx] * in[y + ky][x + kx][i])
//
// An implicit matrix product: a tile is ROWS x 64 output pixels times WIDTH output planes; each of
// two warpgroups keeps the sums of half the rows in registers. One copy of (ROWS + 2) x 66 pixels of
// 64 (32) input planes in shared memory serves all nine taps, which differ only in the address where
// the matrix descriptor begins. One warp copies input, one weights, through rings of buffers; blocks
// stay and take tile after tile. The second warpgroup is held a few products behind the first, so
// that one finishes its tile while the other keeps the matrix unit busy.
//
// To a picture (LAST): few output planes would leave the unit idle, so the three taps of a row are
// columns of the product, WIDTH >= 3 * PLANES, and are summed with a shift of one pixel each at the
// end. A tile then is ROWS x 62 pixels.
//
// Pointers
//   in       feature map as tensor.cuh has it, IN_PLANES planes in groups of GROUP; columns and rows
//            up to the end of the last tile are there to be read, whatever they hold
//   weights  [tile of output planes][visit][tap][WIDTH][GROUP]: a visit is a group of input planes.
//            With two terms there are three rounds of visits: low input times high weights, high
//            times low, high times high. The unit cuts each sum off at 24 bits, so the small
//            products come first. 16-byte pieces as in a map whose columns are output planes.
//   bias     float[tiles of output planes * WIDTH]
//   out      feature map in groups of OUT_GROUP planes, or pixels [row][column][PLANES], of which
//            to.group come before the tile's first; `rows` and `columns` of them in each cell
// Macros
//   IN_PLANES, GROUP, WIDTH, OUT_GROUP, TERMS, WARPGROUPS, ROWS (of all of them), A_STAGES, B_STAGES,
//   BLOCKS (on one multiprocessor at a time), REGISTERS (of a thread that multiplies), LAST (0 or 1), with it PLANES and PIXEL;
//   STACK (see tensor.cuh)
// Bound: the matrix unit for 64 planes and more out; below, shared memory, which it reads operands
//   from at 128 bytes a clock; for LAST, device memory. Best on an H200, 1920x1080 out, fp16: 128 > 128
//   703 TFLOP/s, 79 % of what tensor_peak.cu reaches; 64 > 64 623; 32 > 32 355; 128 > 3 0.148 ms.
#include "tensor.cuh"
#include "wgmma.cuh"
#define ROWS_EACH (ROWS / WARPGROUPS)
#define TAPS (LAST ? 3 : 9)
#define TILE_COLUMNS (LAST ? 62 : 64)
#define GROUPS (IN_PLANES / GROUP)
#define PIXEL_BYTES (GROUP * 2)
// Rows of a tile begin at multiples of the swizzle's period of 8 pixels.
#define PITCH 72
#define A_ROWS (ROWS + 2)
#define A_BYTES (A_ROWS * PITCH * PIXEL_BYTES)
#define B_BYTES (WIDTH * PIXEL_BYTES)
#define VISITS (GROUPS * (TERMS == 2 ? 3 : 1))
#define STEPS (VISITS * TAPS)
// All weights fit: they are copied once and stay.
#define RESIDENT (B_STAGES == STEPS)
#define LEAD 3
#define THREADS (WARPGROUPS * 128 + 128)
// The warps that copy need few.
#define SPARE_REGISTERS (REGISTERS > 200 ? 40 : REGISTERS > 112 ? 24 : 32)

__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over: }" ::"r"(barrier), "r"(parity) : "memory");
}

// A contiguous copy from device to shared memory; multiples of 16 bytes.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// The compiler sees results in registers as soon as a product is issued: this keeps what reads or
// writes them on its side of a wait.
__device__ __forceinline__ void hold(float (&sums)[ROWS_EACH][WIDTH / 2]) {
#pragma unroll
    for (int row = 0; row < ROWS_EACH; row++)
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) asm volatile("" : "+f"(sums[row][i])::"memory");
}

// Where a tap's pixels begin in a tile.
__device__ __forceinline__ uint32_t tap_offset(int tap) {
    return (LAST ? tap * PITCH : tap / 3 * PITCH + tap % 3) * PIXEL_BYTES;
}

// One tap of one group of planes, for the rows of a warpgroup.
__device__ __forceinline__ void multiply(float (&sums)[ROWS_EACH][WIDTH / 2], uint32_t a, uint32_t b, int add) {
#pragma unroll
    for (int k = 0; k < GROUP / 16; k++)
#pragma unroll
        for (int row = 0; row < ROWS_EACH; row++)
            wgmma(sums[row], descriptor(a + row * PITCH * PIXEL_BYTES + k * 32), descriptor(b + k * 32), add | k);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_wgmma(const uint8_t* __restrict__ in, const uint8_t* __restrict__ weights,
             const float* __restrict__ bias, void* __restrict__ out, Map from, Map to,
             int tiles_across, int tiles, int tiles_deep, float slope, int rows, int columns, Cells cells) {
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const a_tiles = shared;
    uint8_t* const b_tiles = a_tiles + A_STAGES * A_BYTES;
    float* const biases = reinterpret_cast<float*>(b_tiles + B_STAGES * B_BYTES);
    uint64_t* const barriers = reinterpret_cast<uint64_t*>(biases + WIDTH);
    const uint32_t a_full = shared_address(barriers), a_empty = a_full + 8 * A_STAGES;
    const uint32_t b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES;
    const uint32_t lead = b_empty + 8 * B_STAGES;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) {
            barrier_init(a_full + 8 * i, 1);
            barrier_init(a_empty + 8 * i, WARPGROUPS);
        }
        for (int i = 0; i < B_STAGES; i++) {
            barrier_init(b_full + 8 * i, 1);
            barrier_init(b_empty + 8 * i, WARPGROUPS);
        }
        barrier_init(lead, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // One tile of output planes to a block, so that its weights and biases can stay.
    const int deep = blockIdx.x % tiles_deep, first = blockIdx.x / tiles_deep;
    const int stride = gridDim.x / tiles_deep;
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) biases[i] = bias[deep * WIDTH + i];
    weights += static_cast<size_t>(deep) * STEPS * B_BYTES;
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            int use = 0;
            for (int tile = first; tile < tiles; tile += stride) {
                const int y = tile / tiles_across * ROWS, x = tile % tiles_across * TILE_COLUMNS;
                // Swizzled pieces keep their place modulo 8 columns.
                const int shift = x & 7;
                for (int visit = 0; visit < VISITS; visit++, use++) {
                    const int stage = use % A_STAGES, round = use / A_STAGES;
                    if (round > 0) barrier_wait(a_empty + 8 * stage, round - 1 & 1);
                    const uint32_t bytes = (LAST ? 64 : 66) * PIXEL_BYTES, full = a_full + 8 * stage;
                    barrier_expect(full, A_ROWS * bytes);
                    const int group = TERMS == 2 && visit < GROUPS ? GROUPS + visit : visit % GROUPS;
                    const uint8_t* source = in + static_cast<size_t>(group) * from.group * 16 +
                        (static_cast<size_t>(y) * from.pitch + x) * PIXEL_BYTES;
                    uint32_t target = shared_address(a_tiles + stage * A_BYTES) + shift * PIXEL_BYTES;
                    #pragma unroll 1
                    for (int row = 0; row < A_ROWS; row++) {
                        bulk_copy(target, source, bytes, full);
                        source += from.pitch * PIXEL_BYTES;
                        target += PITCH * PIXEL_BYTES;
                    }
                }
            }
        }
        if (warp == WARPGROUPS * 4 + 1 && lane == 0) {
            int use = 0;
            for (int tile = first; tile < tiles; tile += stride) {
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
        for (int tile = first; tile < tiles; tile += stride) {
            [[maybe_unused]] int busy = -1;  // the stage of weights that the last product may still read
            hold(sums);
            for (int visit = 0; visit < VISITS; visit++, a_use++) {
                const int a_stage = a_use % A_STAGES;
                barrier_wait(a_full + 8 * a_stage, a_use / A_STAGES & 1);
                const uint32_t a_tile = shared_address(a_tiles + a_stage * A_BYTES) +
                    (group * ROWS_EACH * PITCH + (LAST ? tile % tiles_across * TILE_COLUMNS & 7 : 0)) * PIXEL_BYTES;
#if RESIDENT
                if (tile == first)
                    for (int tap = 0; tap < TAPS; tap++) barrier_wait(b_full + 8 * (visit * TAPS + tap), 0);
                const uint32_t b_tile = shared_address(b_tiles + visit * TAPS * B_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int tap = 0; tap < TAPS; tap++)
                    multiply(sums, a_tile + tap_offset(tap), b_tile + tap * B_BYTES, visit | tap);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (threadIdx.x % 128 == 0) {
                    if (visit > 0) barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));
                    if (follow) barrier_arrive(lead);
                }
                follow = false;
#else
#pragma unroll 1
                for (int tap = 0; tap < TAPS; tap++, b_use++) {
                    const int b_stage = b_use % B_STAGES;
                    barrier_wait(b_full + 8 * b_stage, b_use / B_STAGES & 1);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                    multiply(sums, a_tile + tap_offset(tap), shared_address(b_tiles + b_stage * B_BYTES), visit | tap);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (threadIdx.x % 128 == 0) {
                        if (busy >= 0) barrier_arrive(b_empty + 8 * busy);
                        // The first product of a visit ends the reads of the one before.
                        if (tap == 0 && visit > 0) barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));
                        if (follow && tap == LEAD - 1) barrier_arrive(lead);
                    }
                    if (tap == LEAD - 1) follow = false;
                    busy = b_stage;
                }
#endif
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            hold(sums);
            if (threadIdx.x % 128 == 0) {
                if (!RESIDENT) barrier_arrive(b_empty + 8 * busy);
                barrier_arrive(a_empty + 8 * ((a_use - 1) % A_STAGES));
            }

            const int y = tile / tiles_across * ROWS + group * ROWS_EACH;
            const int x = tile % tiles_across * TILE_COLUMNS;
            const int q = lane % 4, column = warp % 4 * 16 + lane / 4;
#if LAST
            // [row of the tile][input column][tap * PLANES + plane]
            float* const partial = reinterpret_cast<float*>(barriers + 2 * A_STAGES + 2 * B_STAGES + 2) +
                group * ROWS_EACH * 64 * (WIDTH + 1);
            pixel_t* const picture = static_cast<pixel_t*>(out) + static_cast<size_t>(to.group) * PLANES;
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
            for (int row = 0; row < ROWS_EACH; row++)
#pragma unroll
                for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        partial[(row * 64 + column + i / 2 * 8) * (WIDTH + 1) + j * 8 + q * 2 + i % 2] =
                            sums[row][j * 4 + i];
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
            for (int i = threadIdx.x % 128; i < ROWS_EACH * TILE_COLUMNS * PLANES; i += 128)
                store_pixel(partial, i, biases, slope, picture, to.pitch, y, x, rows, columns, cells);
#else
#pragma unroll
            for (int row = 0; row < ROWS_EACH; row++) {
                const Place places[2] = {place(y + row, x + column, to, cells), place(y + row, x + column + 8, to, cells)};
#pragma unroll
                for (int j = 0; j < WIDTH / 8; j += 4) {
                    float own[8];
#pragma unroll
                    for (int i = 0; i < 8; i++) own[i] = biases[(j + i / 2) * 8 + q * 2 + i % 2];
                    store_planes<OUT_GROUP, TERMS>(&sums[row][j * 4], own, slope, static_cast<uint8_t*>(out), to,
                        tiles_deep * WIDTH, deep * WIDTH + j * 8, places, q);
                }
            }
#endif
        }
    }
}
