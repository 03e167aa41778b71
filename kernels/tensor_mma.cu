// A product of one or nine taps and its epilogue, on the matrix units of any chip from sm_75 on.
//
// What tensor_wgmma.cu computes, on the same maps and weights, by `mma` on registers: a block makes tiles
// of ROWS x 64 pixels (SPREAD: 62) times WIDTH output planes, one after the other. A warp keeps the sums of
// WARP_ROWS x WARP_COLUMNS pixels and WARP_WIDTH planes in registers: whatever it reads of shared memory
// serves so many products, and reading is what bounds this kernel where the unit is fast. One copy of the
// pixels of a visit serves all its taps. Pixels of the next visit, or tile, are copied meanwhile
// (A_STAGES = 2), or else by a block while the others of a multiprocessor multiply. Weights are copied
// tap by tap, B_STAGES - 1 taps ahead of their use, or once and stay (B_STAGES = STEPS).
//
// Arguments and macros: as there, without WARPGROUPS and REGISTERS; WARP_ROWS, WARP_COLUMNS, WARP_WIDTH.
// OLD = 1 uses nothing that sm_75 lacks: products of depth 8, and copies through registers.
// Bound: the matrix unit, and under load the chip's power. Best on an H200, 1920x1080 out, fp16:
//   128 > 128 475 TFLOP/s, 73 % of what tensor_peak.cu reaches; 64 > 64 425; 32 > 32 329.
#include "mma.cuh"
#include "tensor.cuh"

#define COLUMN_WARPS (TILE_COLUMNS / WARP_COLUMNS)
#define WIDTH_WARPS (WIDTH / WARP_WIDTH)
static_assert(THREADS == 32 * (ROWS / WARP_ROWS) * COLUMN_WARPS * WIDTH_WARPS, "warps make a tile");
// Of 16 pixels: of a row, and in all.
#define ROW_PARTS (WARP_COLUMNS / 16)
#define PARTS (WARP_ROWS * ROW_PARTS)
// At the end of a tile, its sums take the place of the pixels that were read last.
#define PIXELS_BYTES (A_ROWS * TILE_READS * PIXEL_BYTES)
#define PARTIAL_BYTES (LAST ? ROWS * TILE_COLUMNS * (WIDTH + 1) * 4 : 0)
#define A_BYTES (PIXELS_BYTES > PARTIAL_BYTES ? PIXELS_BYTES : PARTIAL_BYTES)
static_assert(SHARED == A_STAGES * A_BYTES + B_STAGES * B_BYTES, "tensor_shape.py reckons with other shared memory");
#define RESIDENT (B_STAGES == STEPS)
#define TAPS_ACROSS (SPREAD ? 1 : SIDE)
#define DEPTHS (GROUP / 16)
static_assert(DEPTHS % 2 == 0, "operands take turns");
// The first operands of a tap are read while the tap before is multiplied.
#define EARLY (RESIDENT || B_STAGES > 2)
// Pixels are complete when the weights are that were asked for with them.
static_assert(RESIDENT || B_STAGES - 1 <= TAPS, "weights of a visit at most are on their way");

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void copy16(uint8_t* to, const uint8_t* from) {
#if OLD
    *reinterpret_cast<uint4*>(to) = __ldg(reinterpret_cast<const uint4*>(from));
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#endif
}

__device__ __forceinline__ void commit() {
#if !OLD
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until at most `ahead` of the groups committed last are under way.
template <int ahead>
__device__ __forceinline__ void wait() {
#if !OLD
    asm volatile("cp.async.wait_group %0;" ::"n"(ahead) : "memory");
#endif
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// Copies of a block are unrolled, from and to addresses that differ by constants: they take the time of
// warps that could multiply.
__device__ __forceinline__ void copy_pixels(uint8_t* to, const uint8_t* from, const Product& p) {
    constexpr int pieces = TILE_READS * GROUP / 8, together = pieces / THREADS * THREADS, rest = pieces - together;
    const size_t pitch = static_cast<size_t>(p.from.pitch) * PIXEL_BYTES;
#pragma unroll
    for (int row = 0; row < A_ROWS; row++)
#pragma unroll
        for (int i = 0; i < together; i += THREADS)
            copy16(to + (row * pieces + i + threadIdx.x) * 16, from + row * pitch + (i + threadIdx.x) * 16);
#pragma unroll
    for (int i = 0; i < A_ROWS * rest; i += THREADS) {
        const int at = i + threadIdx.x, row = at / (rest + !rest), piece = together + at % (rest + !rest);
        if (row < A_ROWS) copy16(to + (row * pieces + piece) * 16, from + row * pitch + piece * 16);
    }
}

__device__ __forceinline__ void copy_weights(uint8_t* to, const uint8_t* from) {
#pragma unroll
    for (int i = 0; i < B_BYTES; i += THREADS * 16) {
        const int at = i + threadIdx.x * 16;
        if (i + THREADS * 16 <= B_BYTES || at < B_BYTES) copy16(to + at, from + at);
    }
}

// Whether a visit reads the pixels of the one before: high terms of a single group, for both of the weights'.
__device__ __forceinline__ bool repeats(int visit) {
    return TERMS == 2 && GROUPS == 1 && visit == 2;
}

// What a warp reads for one product of depth 16 of all its pixels and planes.
struct Operands {
    uint32_t a[PARTS][4], b[WARP_WIDTH / 16][4];

    // From where this thread reads the first part's row and the first planes. Pieces are pairs of
    // 8 values: the k-th pair stands 32 * k bytes off, in the swizzled order.
    __device__ __forceinline__ void load(uint32_t a_start, uint32_t b_start, int k) {
#pragma unroll
        for (int m = 0; m < PARTS; m++)
            load_matrices(a[m], (a_start ^ k * 32) + (m / ROW_PARTS * TILE_READS + m % ROW_PARTS * 16) * PIXEL_BYTES);
#pragma unroll
        for (int n = 0; n < WARP_WIDTH / 16; n++) load_matrices(b[n], (b_start ^ k * 32) + n * 16 * PIXEL_BYTES);
    }

    __device__ __forceinline__ void multiply(float (&sums)[PARTS][WARP_WIDTH / 8][4]) const {
#pragma unroll
        for (int n = 0; n < WARP_WIDTH / 8; n++)
#pragma unroll
            for (int m = 0; m < PARTS; m++) mma(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_mma(const __grid_constant__ Product p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const a_tiles = shared;
    uint8_t* const b_tiles = a_tiles + A_STAGES * A_BYTES;

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
    const int row = warp / (COLUMN_WARPS * WIDTH_WARPS) * WARP_ROWS;
    const int column = warp / WIDTH_WARPS % COLUMN_WARPS * WARP_COLUMNS;
    const int plane = warp % WIDTH_WARPS * WARP_WIDTH;
    // One tile of output planes to a block, so that its weights can stay.
    const int deep = blockIdx.x % DEPTH, first = blockIdx.x / DEPTH, stride = gridDim.x / DEPTH;
    const uint8_t* const weights = p.weights + static_cast<size_t>(deep) * STEPS * B_BYTES;
    // Where this thread reads weights, of 16 planes of the warp's.
    const int b_plane = lane / 16 * 8 + lane % 8;
    const uint32_t b_own = shared_address(b_tiles) + (plane + b_plane) * PIXEL_BYTES +
                           (lane / 8 % 2 ^ phase<GROUP>(b_plane)) * 16;

    // And where pixels, but for the piece, which hangs on the tile's column.
    const int a_column = column + lane % 16;
    const uint32_t a_own = shared_address(a_tiles) + (row * TILE_READS + a_column) * PIXEL_BYTES;

    if (A_STAGES == 2) copy_pixels(a_tiles, visited(0, tile_at(first, p), p), p);
    for (int step = 0; step < (RESIDENT ? STEPS : B_STAGES - 1); step++) {
        copy_weights(b_tiles + step * B_BYTES, weights + step * B_BYTES);
        if (!RESIDENT || step == STEPS - 1) commit();
    }
    int a_stage = 0, b_stage = 0;                       // of what is multiplied
    int ahead = RESIDENT ? 0 : (B_STAGES - 1) % STEPS;  // the step whose weights are copied next
#pragma unroll 1
    for (int number = first; number < p.extent.tiles; number += stride) {
        const Tile tile = tile_at(number, p);
        // Where this thread reads pixels for each tap of a row, from the warp's first one on.
        uint32_t shifted[TAPS_ACROSS];
#pragma unroll
        for (int kx = 0; kx < TAPS_ACROSS; kx++)
            shifted[kx] = kx * PIXEL_BYTES + (lane / 16 ^ phase<GROUP>(tile.column + a_column + kx)) * 16;
        Operands operands[2];
        float sums[PARTS][WARP_WIDTH / 8][4] = {};
#pragma unroll 1
        for (int visit = 0; visit < VISITS; visit++) {
            if (A_STAGES == 1 && !repeats(visit)) {
                __syncthreads();
                copy_pixels(a_tiles, visited(visit, tile, p), p);
                commit();
                wait<0>();
            }
            uint32_t a_start = a_own + a_stage * A_BYTES;
#pragma unroll 1
            for (int ky = 0; ky < SIDE; ky++, a_start += TILE_READS * PIXEL_BYTES)
#pragma unroll
                for (int kx = 0; kx < TAPS_ACROSS; kx++) {
                    const bool begins = ky == 0 && kx == 0, ends = ky == SIDE - 1 && kx == TAPS_ACROSS - 1;
                    if (!RESIDENT || begins) {
                        wait<RESIDENT ? 0 : B_STAGES - 2 - EARLY>();
                        __syncthreads();
                        if (A_STAGES == 2 && begins) {
                            const int next = visit == VISITS - 1 ? number + stride : number;
                            if (next < p.extent.tiles && !repeats(visit + 1))
                                copy_pixels(a_tiles + (a_stage ^ 1) * A_BYTES,
                                            visited(next == number ? visit + 1 : 0, tile_at(next, p), p), p);
                        }
                        if (!RESIDENT) {
                            const int target = b_stage == 0 ? B_STAGES - 1 : b_stage - 1;
                            copy_weights(b_tiles + target * B_BYTES, weights + ahead * B_BYTES);
                            ahead = ahead == STEPS - 1 ? 0 : ahead + 1;
                        }
                        commit();
                    }
                    const uint32_t b_start = b_own + b_stage * B_BYTES;
                    b_stage = b_stage == B_STAGES - 1 ? 0 : b_stage + 1;
                    if (!EARLY || begins) operands[0].load(a_start + shifted[kx], b_start, 0);
#pragma unroll
                    for (int k = 0; k < DEPTHS; k++) {
                        if (k + 1 < DEPTHS)
                            operands[(k + 1) % 2].load(a_start + shifted[kx], b_start, k + 1);
                        else if (EARLY && !ends)
                            operands[0].load(a_start + (kx + 1) / TAPS_ACROSS * TILE_READS * PIXEL_BYTES +
                                             shifted[(kx + 1) % TAPS_ACROSS], b_own + b_stage * B_BYTES, 0);
                        operands[k % 2].multiply(sums);
                    }
                }
            if (A_STAGES == 2 && !repeats(visit + 1)) a_stage ^= 1;
        }

#if LAST
        // [row of the tile][input column][part * SUMS + sum]
        float* const partial = reinterpret_cast<float*>(a_tiles + (A_STAGES == 2 ? a_stage ^ 1 : 0) * A_BYTES);
        __syncthreads();
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int j = 0; j < WARP_WIDTH / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int pixel = (row + m / ROW_PARTS) * TILE_COLUMNS + column + m % ROW_PARTS * 16 + lane / 4 + i / 2 * 8;
                    partial[pixel * (WIDTH + 1) + plane + j * 8 + q * 2 + i % 2] = sums[m][j][i];
                }
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * ROW_VALUES; i += THREADS)
            store_pixel(partial, i, p.follows, p.follows + WIDTH, tile.y, tile.x, p);
#else
        const int out = deep * WIDTH + plane;
#pragma unroll
        for (int m = 0; m < PARTS; m++)
            store_row<WARP_WIDTH, true>(&sums[m][0][0], p.follows + out, p.follows + DEPTH * WIDTH + out, out,
                                  tile.y + row + m / ROW_PARTS, tile.x + column + m % ROW_PARTS * 16 + lane / 4, q, p);
#endif
    }
    wait<0>();
}
