// A convolution of 3x3, 2x2 or one tap and its epilogue, on the matrix units of any chip from sm_75 on.
//
//     out(y, x, o) = epilogue(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//
// The convolutions of tensor_wgmma.cu, on the same maps and weights, by `mma` on registers: a consumer group of
// warps makes tiles of ROWS x 64 pixels (TAP_COLUMNS: 62) times WIDTH output planes, one after the other.
// A warp accumulates WARP_COLUMNS pixels of a row and WARP_WIDTH planes in registers: each value that it
// loads from shared memory serves that many matrix products, since loads bound this kernel where the unit is
// fast. One copy of the pixels of a K-block serves all its taps.
//
// Pixels lie in a ring of rows. PREFETCHED of the rows of the next K-block, or tile, are copied while this
// one is multiplied, into the places of rows that are done with; those of the same K-block that are left,
// when it begins. With PREFETCHED = 0, a block waits for them while others of its multiprocessor multiply.
//
// Weights are one of these:
//   B_STAGES = STEPS: they are copied once and stay. CONSUMERS groups of warps share them, and nothing else.
//   DECOUPLED = 1: copied by rows of taps. Warps wait for what they need of each other, no longer: each may
//     be a row of taps ahead of the others, or store its sums meanwhile.
//   else: copied tap by tap, B_STAGES - 1 ahead of their use, and all warps keep step.
//
// Arguments: `Conv` in tensor.cuh. Layouts of in, weights, epilogue, out and residual as in
// tensor_wgmma.cu; the weights of each 32 output planes in the order of `pack_quads`.
// Macros
//   those of tensor_wgmma.cu without WARPGROUPS, A_STAGES and REGISTERS, and CONSUMERS, PREFETCHED,
//   DECOUPLED, WARP_COLUMNS, WARP_WIDTH: see above
//   SM75   1: nothing that sm_75 lacks: matrix products of depth 8, and copies through registers
// Bound: the matrix unit, and under load the chip's power. Best: NVIDIA H200, 2026-11-21, 1920x1080 out, fp16,
//   under load: 128 > 128 planes 454 TFLOP/s, the unit busy 79 % of the time; 64 > 128 434; 64 > 64 424;
//   32 > 32 355.
#include "barriers.cuh"
#include "mma.cuh"
#include "tensor.cuh"

// The last tile ends behind the last row and column that are wanted, and reads as far.
static_assert(ROWS - 1 <= ROWS_BEYOND && TILE_COLUMNS - 1 <= COLUMNS_BEYOND, "memory behind a map");
#define COLUMN_WARPS (TILE_COLUMNS / WARP_COLUMNS)
#define WIDTH_WARPS (WIDTH / WARP_WIDTH)
// Threads of a consumer group.
#define CONSUMER_THREADS (THREADS / CONSUMERS)
static_assert(CONSUMER_THREADS == 32 * ROWS * COLUMN_WARPS * WIDTH_WARPS, "warps make a tile");
// The parts of 16 pixels that a warp makes.
#define PARTS (WARP_COLUMNS / 16)
#define ROW_BYTES (TILE_READS * PIXEL_BYTES)
// Rows are copied as the places of others become free, or all of a K-block at once.
#define BY_ROWS (PREFETCHED > 0 && PREFETCHED < A_ROWS)
#define PREFETCHED_EACH (BY_ROWS ? PREFETCHED / (SIDE - 1) : PREFETCHED)
static_assert(!BY_ROWS || PREFETCHED == ROWS, "the first row of taps needs as many");
static_assert(!BY_ROWS || PREFETCHED_EACH * (SIDE - 1) == PREFETCHED, "the other rows of taps copy as many each");
// Rows of pixels that a consumer group stores. Where warps do not keep step, places are free a row of taps later.
#define RING (BY_ROWS && !DECOUPLED ? ROWS + PREFETCHED : A_ROWS + PREFETCHED)
// At the end of a tile, its sums take the place of the pixels that were read first.
#define PARTIAL_BYTES (LAST ? ROWS * TILE_COLUMNS * (WIDTH + 1) * 4 : 0)
static_assert(!LAST || PREFETCHED == 0, "pixels on their way have no place but that of sums");
#define A_BYTES (RING * ROW_BYTES > PARTIAL_BYTES ? RING * ROW_BYTES : PARTIAL_BYTES)
#define TAPS_ACROSS (TAP_COLUMNS ? 1 : SIDE)
#define RESIDENT (!DECOUPLED && B_STAGES == STEPS)
static_assert(RESIDENT || CONSUMERS == 1, "consumer groups share weights that stay");
static_assert(!DECOUPLED || (BY_ROWS && B_STAGES == 3), "a row of taps that is copied, and two that are read");
// Taps whose weights are copied together.
#define STAGE_TAPS (DECOUPLED ? TAPS_ACROSS : 1)
#define STAGE_BYTES (STAGE_TAPS * B_BYTES)
#define BARRIERS (DECOUPLED ? 3 : 0)
static_assert(SHARED == CONSUMERS * A_BYTES + B_STAGES * STAGE_BYTES + BARRIERS * 8,
              "tensor/shape.py assumes other shared memory");
#define DEPTHS (GROUP / 16)
static_assert(DEPTHS % 2 == 0, "operands alternate");
// The first operands of a tap are read while the tap before is multiplied...
#define EARLY (RESIDENT || DECOUPLED || B_STAGES > 2)
// ...of the next row of taps too, where nothing is waited for between.
#define EARLY_ROWS (EARLY && !DECOUPLED && !(RESIDENT && BY_ROWS))
// Pixels are complete when the weights are that were asked for with them.
static_assert(RESIDENT || DECOUPLED || B_STAGES - 1 <= (BY_ROWS ? SIDE : TAPS), "copies on their way");

#if DECOUPLED
// Arrives as soon as this thread's copies so far are complete.
__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
#endif

__device__ __forceinline__ int wrapped(int row) {
    return row < RING ? row : row - RING;
}

// Waits for the other warps of a consumer group.
__device__ __forceinline__ void synchronize(int consumer) {
#if CONSUMERS == 1
    __syncthreads();
#else
    asm volatile("bar.sync %0, %1;" ::"r"(consumer + 1), "n"(CONSUMER_THREADS) : "memory");
#endif
}

// The pixels to copy next, and the row of the ring that they go to. Copies of a consumer group are unrolled, from
// and to addresses that differ by constants: they take the time of warps that could multiply.
struct Copier {
    const uint8_t* from;
    int to;

    template <int COUNT>
    __device__ __forceinline__ void copy(uint8_t* ring, int thread, const Conv& p) {
        // None that goes on with the ring's first row.
        constexpr bool straight = PREFETCHED == 0 || PREFETCHED == A_ROWS || COUNT == 1 || (COUNT == 2 && SIDE == 3);
        constexpr int vectors = ROW_BYTES / 16, together = vectors / CONSUMER_THREADS * CONSUMER_THREADS;
        constexpr int remaining = vectors - together;
        const size_t pitch = static_cast<size_t>(p.from.pitch) * PIXEL_BYTES;
#pragma unroll
        for (int row = 0; row < COUNT; row++)
#pragma unroll
            for (int i = 0; i < together; i += CONSUMER_THREADS)
                copy16(ring + (straight ? to + row : wrapped(to + row)) * ROW_BYTES + (i + thread) * 16,
                       from + row * pitch + (i + thread) * 16);
#pragma unroll
        for (int i = 0; i < COUNT * remaining; i += CONSUMER_THREADS) {
            const int at = i + thread, row = at / (remaining + !remaining);
            const int vector = together + at % (remaining + !remaining);
            if (row < COUNT)
                copy16(ring + (straight ? to + row : wrapped(to + row)) * ROW_BYTES + vector * 16,
                       from + row * pitch + vector * 16);
        }
        from += COUNT * pitch;
        to = wrapped(to + COUNT);
    }
};

__device__ __forceinline__ void copy_weights(uint8_t* to, const uint8_t* from) {
#pragma unroll
    for (int i = 0; i < STAGE_BYTES; i += THREADS * 16) {
        const int at = i + threadIdx.x * 16;
        if (i + THREADS * 16 <= STAGE_BYTES || at < STAGE_BYTES) copy16(to + at, from + at);
    }
}

// Whether a K-block reads the pixels of the one before: high terms of a single group, for both of the weights'.
__device__ __forceinline__ bool repeats(int k_block) {
    return TERMS == 2 && GROUPS == 1 && k_block == 2;
}

// The operands of a warp for matrix products of depth 16 of all its pixels and planes.
struct Operands {
    uint32_t a[PARTS][4], b[WARP_WIDTH / 16][4];

    // Starts: where this thread reads the first part and the first planes. Depth 16 is a pair of vectors:
    // the k-th pair stands 32 * k bytes off, in the swizzled order.
    __device__ __forceinline__ void load(uint32_t a_start, uint32_t b_start, int k) {
#pragma unroll
        for (int m = 0; m < PARTS; m++) load_matrices(a[m], (a_start ^ k * 32) + m * 16 * PIXEL_BYTES);
#pragma unroll
        for (int n = 0; n < WARP_WIDTH / 16; n++) load_matrices(b[n], (b_start ^ k * 32) + n * 16 * PIXEL_BYTES);
    }

    __device__ __forceinline__ void multiply(float (&sums)[PARTS][WARP_WIDTH / 8][4]) const {
        // To and fro: one operand is that of the matrix product before, and is not read once more.
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int j = 0; j < WARP_WIDTH / 8; j++) {
                const int n = m % 2 ? WARP_WIDTH / 8 - 1 - j : j;
                mma(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
            }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_mma(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const b_tiles = shared + CONSUMERS * A_BYTES;

    const int consumer = CONSUMERS > 1 ? threadIdx.x / CONSUMER_THREADS : 0;
    const int thread = threadIdx.x - consumer * CONSUMER_THREADS;
    const int warp = thread / 32, lane = thread % 32, q = lane % 4;
    const int row = warp / (COLUMN_WARPS * WIDTH_WARPS);
    const int column = warp / WIDTH_WARPS % COLUMN_WARPS * WARP_COLUMNS;
    const int plane = warp % WIDTH_WARPS * WARP_WIDTH;
    // One tile of output planes to a block, so that its weights can stay.
    const int deep = blockIdx.x % DEPTH;
    const int first = blockIdx.x / DEPTH * CONSUMERS + consumer, stride = gridDim.x / DEPTH * CONSUMERS;
    const uint8_t* const weights = p.weights + static_cast<size_t>(deep) * STEPS * B_BYTES;
    // Where this thread reads weights, of 16 planes of the warp's.
    const int b_plane = lane / 16 * 8 + lane % 8;
    const uint32_t b_own = shared_address(b_tiles) + (plane + b_plane) * PIXEL_BYTES +
                           (lane / 8 % 2 ^ swizzle_phase<GROUP>(b_plane)) * 16;

    // And where pixels, but for the row, and the vector, which hangs on the tile's column.
    uint8_t* const ring = shared + consumer * A_BYTES;
    const int a_column = column + lane % 16;
    const uint32_t a_own = shared_address(ring) + a_column * PIXEL_BYTES;

    Copier pixels = {nullptr, 0};  // to copy next
    if (PREFETCHED && first < p.extent.tiles) {
        pixels.from = k_block_at(0, tile_at(first, p), p);
        pixels.copy<PREFETCHED>(ring, thread, p);
    }
    for (int step = 0; step < (RESIDENT ? STEPS : DECOUPLED ? 1 : B_STAGES - 1); step++) {
        copy_weights(b_tiles + step * STAGE_BYTES, weights + step * STAGE_BYTES);
        if (!RESIDENT && !DECOUPLED) commit();
    }
#if DECOUPLED
    // Copies of a row of taps are complete; all warps are done with one, by two barriers in turn.
    const uint32_t full = shared_address(b_tiles + B_STAGES * STAGE_BYTES), empty = full + 8;
    if (threadIdx.x == 0) {
        barrier_init(full, THREADS);
        barrier_init(empty, THREADS / 32);
        barrier_init(empty + 8, THREADS / 32);
    }
    __syncthreads();
    barrier_arrive_copied(full);
    int tap_row = 0;  // rows of taps so far
#endif
    if (RESIDENT) {
        commit();
        wait<0>();
        __syncthreads();
    }
    int slot = 0;                                       // of the first row of the K-block's pixels
    int b_stage = 0;                                    // of what is multiplied
    int next_weights = RESIDENT ? 0 : DECOUPLED ? 1 : (B_STAGES - 1) % STEPS;  // the step whose weights are copied next
#pragma unroll 1
    for (int number = first; number < p.extent.tiles; number += stride) {
        const Tile tile = tile_at(number, p);
        // Where this thread reads pixels for each tap of a row, from the warp's first one on.
        uint32_t shifted[TAPS_ACROSS];
#pragma unroll
        for (int kx = 0; kx < TAPS_ACROSS; kx++)
            shifted[kx] = kx * PIXEL_BYTES + (lane / 16 ^ swizzle_phase<GROUP>(tile.column + a_column + kx)) * 16;
        Operands operands[2];
        float sums[PARTS][WARP_WIDTH / 8][4] = {};
#pragma unroll 1
        for (int k_block = 0; k_block < K_BLOCKS; k_block++) {
            if (PREFETCHED == 0 && !repeats(k_block)) {
                synchronize(consumer);
                Copier all = {k_block_at(k_block, tile, p), 0};
                all.copy<A_ROWS>(ring, thread, p);
                commit();
                wait<0>();
            }
            int own = wrapped(slot + row);  // of the row that is multiplied
#pragma unroll 1
            for (int ky = 0; ky < SIDE; ky++) {
                const uint32_t a_start = a_own + own * ROW_BYTES;
                own = wrapped(own + 1);
                const uint32_t a_next = a_own + own * ROW_BYTES;
#pragma unroll
                for (int kx = 0; kx < TAPS_ACROSS; kx++) {
                    if (DECOUPLED ? kx == 0 : !RESIDENT || (kx == 0 && (BY_ROWS || ky == 0))) {
#if DECOUPLED
                        barrier_wait(full, tap_row & 1);
                        barrier_wait(empty + tap_row % 2 * 8, (tap_row / 2 + 1) & 1);
#else
                        wait<RESIDENT ? 0 : B_STAGES - 2 - EARLY>();
                        synchronize(consumer);
#endif
                        if (BY_ROWS && kx == 0 && ky == 0 && !repeats(k_block))
                            pixels.copy<A_ROWS - PREFETCHED>(ring, thread, p);
                        if (PREFETCHED && kx == 0 && ky >= BY_ROWS && !repeats(k_block + 1)) {
                            if (ky == BY_ROWS) {
                                const int next = k_block == K_BLOCKS - 1 ? number + stride : number;
                                pixels.from = nullptr;
                                if (next < p.extent.tiles)
                                    pixels.from = k_block_at(next == number ? k_block + 1 : 0, tile_at(next, p), p);
                            }
                            if (pixels.from != nullptr && (BY_ROWS || ky == 0))
                                pixels.copy<PREFETCHED_EACH>(ring, thread, p);
                        }
                        if (!RESIDENT) {
                            const int target = DECOUPLED ? (b_stage == B_STAGES - 1 ? 0 : b_stage + 1)
                                                     : (b_stage == 0 ? B_STAGES - 1 : b_stage - 1);
                            copy_weights(b_tiles + target * STAGE_BYTES, weights + next_weights * STAGE_BYTES);
                            next_weights = next_weights == STEPS / STAGE_TAPS - 1 ? 0 : next_weights + 1;
                        }
#if DECOUPLED
                        barrier_arrive_copied(full);
#else
                        commit();
#endif
                    }
                    const uint32_t b_start = b_own + b_stage * STAGE_BYTES + kx % STAGE_TAPS * B_BYTES;
                    if ((kx + 1) % STAGE_TAPS == 0) b_stage = b_stage == B_STAGES - 1 ? 0 : b_stage + 1;
                    const bool begins = kx == 0 && (ky == 0 || !EARLY_ROWS);
                    const bool ends = kx == TAPS_ACROSS - 1 && (ky == SIDE - 1 || !EARLY_ROWS);
                    if (!EARLY || begins) operands[0].load(a_start + shifted[kx], b_start, 0);
#pragma unroll
                    for (int k = 0; k < DEPTHS; k++) {
                        if (k + 1 < DEPTHS)
                            operands[(k + 1) % 2].load(a_start + shifted[kx], b_start, k + 1);
                        else if (EARLY && !ends)
                            operands[0].load(
                                (kx == TAPS_ACROSS - 1 ? a_next : a_start) + shifted[(kx + 1) % TAPS_ACROSS],
                                b_own + b_stage * STAGE_BYTES + (kx + 1) % STAGE_TAPS * B_BYTES, 0);
                        operands[k % 2].multiply(sums);
                    }
                }
#if DECOUPLED
                __syncwarp();
                if (lane == 0) barrier_arrive(empty + tap_row % 2 * 8);
                tap_row++;
#endif
            }
            if (PREFETCHED && !repeats(k_block + 1)) slot = wrapped(slot + A_ROWS);
        }

#if LAST
        // [row of the tile][input column][tap * SUMS + sum]
        float* const partial = reinterpret_cast<float*>(ring);
        synchronize(consumer);
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int j = 0; j < WARP_WIDTH / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int pixel = row * TILE_COLUMNS + column + m * 16 + lane / 4 + i / 2 * 8;
                    partial[pixel * (WIDTH + 1) + plane + j * 8 + q * 2 + i % 2] = sums[m][j][i];
                }
        synchronize(consumer);
        for (int i = thread; i < ROWS * ROW_PIXELS; i += CONSUMER_THREADS) {
            const MadePixel made = made_pixel(i, tile.y, tile.x, p);
            store_pixel(partial, made, added_to(made, p), p.epilogue, p.epilogue + WIDTH, p);
        }
#else
        const int out = deep * WIDTH + plane;
        bool infinite = false;
#pragma unroll
        for (int m = 0; m < PARTS; m++) {
            const int y = tile.y + row, x = tile.x + column + m * 16 + lane / 4;
            const AddedVectors<WARP_WIDTH> added = added_vectors<WARP_WIDTH>(out, y, x, q, p);
            store_row<WARP_WIDTH, true>(&sums[m][0][0], p.epilogue + out, p.epilogue + DEPTH * WIDTH + out, out,
                                        y, x, q, added, p, infinite);
        }
        flag_single(infinite, p);
#endif
    }
    wait<0>();
}
