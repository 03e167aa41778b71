// A product of one or nine taps and its epilogue, on the matrix units of any chip from sm_75 on.
//
// What tensor_wgmma.cu computes, on the same maps, weights and tiles, by `mma` on registers: a block
// makes ROWS x 64 pixels (LAST: 62) times WIDTH output planes, a warp 32 of the pixels. Pixels of a
// visit are copied to shared memory at once, weights tap by tap, two taps ahead of their use.
//
// Arguments and macros: as there, without A_STAGES, B_STAGES, WARPGROUPS and REGISTERS.
// OLD = 1 uses nothing that sm_75 lacks: products of depth 8, and copies through registers.
// Bound: the matrix unit. Best on an H200, 1920x1080 out, fp16: 128 > 128 345 TFLOP/s.
#include "mma.cuh"
#include "tensor.cuh"

#define PIECES (GROUP / 8)
#define A_BYTES (A_ROWS * TILE_READS * PIXEL_BYTES)
#define B_STAGES 3
static_assert(THREADS == ROWS * 2 * 32 && TILE_COLUMNS == 64, "two warps make a row, 32 columns each");
#define LOADED_BYTES (A_BYTES + B_STAGES * B_BYTES)
#define PARTIAL_BYTES (LAST ? ROWS * TILE_COLUMNS * (WIDTH + 1) * 4 : 0)
static_assert(SHARED == (LOADED_BYTES > PARTIAL_BYTES ? LOADED_BYTES : PARTIAL_BYTES),
              "tensor_shape.py reckons with other shared memory");

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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_mma(const __grid_constant__ Product p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const a_tile = shared;
    uint8_t* const b_tiles = a_tile + A_BYTES;

    const int deep = blockIdx.x % DEPTH;
    const Tile tile = tile_at(blockIdx.x / DEPTH, p);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % 4;
    const int row = warp / 2, part = warp % 2 * 32;
    const uint8_t* const weights = p.weights + static_cast<size_t>(deep) * STEPS * B_BYTES;

    auto copy_weights = [&](int step) {
        if (step < STEPS)
            for (int i = threadIdx.x; i < B_BYTES / 16; i += THREADS)
                copy16(b_tiles + step % B_STAGES * B_BYTES + i * 16, weights + step * B_BYTES + i * 16);
        commit();
    };
    copy_weights(0);
    copy_weights(1);
    float sums[2][WIDTH / 8][4] = {};
#pragma unroll 1
    for (int visit = 0; visit < VISITS; visit++) {
        const uint8_t* const source = visited(visit, tile, p);
        __syncthreads();
        for (int i = threadIdx.x; i < A_ROWS * TILE_READS * PIECES; i += THREADS) {
            const int at = i / (TILE_READS * PIECES), piece = i % (TILE_READS * PIECES);
            copy16(a_tile + i * 16, source + static_cast<size_t>(at) * p.from.pitch * PIXEL_BYTES + piece * 16);
        }
        commit();
        wait<0>();
#pragma unroll 1
        for (int tap = 0; tap < TAPS; tap++) {
            const int step = visit * TAPS + tap;
            wait<1>();
            __syncthreads();
            copy_weights(step + 2);
            const int ky = LAST ? tap : tap / SIDE, kx = LAST ? 0 : tap % SIDE;
            const uint32_t b_start = shared_address(b_tiles + step % B_STAGES * B_BYTES);
#pragma unroll 2
            for (int k = 0; k < GROUP / 16; k++) {
                uint32_t a[2][4];
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const int column = part + m * 16 + lane % 16 + kx;
                    const int piece = (k * 2 + lane / 16) ^ phase<GROUP>(tile.column + column);
                    load_matrices(a[m], shared_address(a_tile) +
                        ((row + ky) * TILE_READS + column) * PIXEL_BYTES + piece * 16);
                }
#pragma unroll
                for (int n = 0; n < WIDTH / 16; n++) {
                    const int plane = n * 16 + lane / 16 * 8 + lane % 8;
                    const int piece = (k * 2 + lane / 8 % 2) ^ phase<GROUP>(plane);
                    uint32_t b[4];
                    load_matrices(b, b_start + plane * PIXEL_BYTES + piece * 16);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        mma(sums[m][n * 2], a[m], b[0], b[1]);
                        mma(sums[m][n * 2 + 1], a[m], b[2], b[3]);
                    }
                }
            }
        }
    }

#if LAST
    // [row of the tile][input column][tap * SUMS + sum]
    float* const partial = reinterpret_cast<float*>(shared);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                partial[(row * TILE_COLUMNS + part + m * 16 + lane / 4 + i / 2 * 8) * (WIDTH + 1) + j * 8 + q * 2 +
                        i % 2] = sums[m][j][i];
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * ROW_VALUES; i += THREADS)
        store_pixel(partial, i, p.follows, p.follows + WIDTH, tile.y, tile.x, p);
#else
#pragma unroll
    for (int m = 0; m < 2; m++)
        store_row<WIDTH>(&sums[m][0][0], p.follows + deep * WIDTH, p.follows + (DEPTH + deep) * WIDTH, deep * WIDTH,
                         tile.y + row, tile.x + part + m * 16 + lane / 4, q, p);
#endif
}
