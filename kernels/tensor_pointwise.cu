// A convolution of one tap into more planes than it reads, and its epilogue, on the matrix units of sm_90a: maps
// to maps.
//
//     out(y, x, o) = epilogue(bias(o) + sum over i of weight(o, i) * in(y, x, i))
//
// A tile is a row of 64 pixels. Its pixels are read once, into registers, for all output planes, WIDTH at a time;
// all weights stay in shared memory. Each of the warpgroups takes tiles of its own, so that some wait for
// memory while others store. One warp copies pixels, through a ring.
//
// Arguments: `Conv` in tensor.cuh. Layouts as in tensor_wgmma.cu.
// Macros
//   IN_PLANES, GROUP, STORED_GROUPS, FIRST_GROUP, SIDE = 1, WIDTH = 64, DEPTH (tiles of output planes), TERMS = 1,
//   WARPGROUPS (that multiply), RING (tiles of pixels in shared memory), REGISTERS and SPARE_REGISTERS (of a thread
//   that multiplies, and of others), SCALED with IN_EACH, LAST = 0, SPARSE_TAPS = 1, ROWS = 1;
//   THREADS, SHARED (bytes of a block), TILE_COLUMNS, TILE_RESULTS, ROWS_BEYOND, COLUMNS_BEYOND (see tensor.cuh);
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, RESIDUAL_GROUP,
//   RESIDUAL_STORED, RESIDUAL_PART, SCALED_RESIDUAL, GATED, BOUNDED, STACK: of the store, see tensor.cuh
// Bound: device memory, for what is added and what is written.
#define OF_REGISTERS 1
#include "barriers.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

static_assert(SIDE == 1 && TERMS == 1 && ROWS == 1 && WIDTH == 64 && TILE_COLUMNS == 64, "one instruction");
static_assert(THREADS == WARPGROUPS * 128 + 128, "one warpgroup more than multiply");
// Rows begin up to 7 pixels into the period of the swizzle.
#define PITCH (TILE_COLUMNS + 8)
#define GROUP_BYTES (PITCH * PIXEL_BYTES)
#define TILE_BYTES (GROUPS * GROUP_BYTES)
#define PIXELS_BYTES (RING * TILE_BYTES)
#define WEIGHTS_BYTES (DEPTH * GROUPS * B_BYTES)
#define EPILOGUE_BYTES (DEPTH * WIDTH * 8)
static_assert(SHARED == PIXELS_BYTES + WEIGHTS_BYTES + EPILOGUE_BYTES + (2 * RING + 1) * 8,
              "tensor_shape.py reckons with other shared memory");

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// The tile that a block takes as its `step`-th: neighbours are taken together.
__device__ __forceinline__ int tile_of(int step) {
    return (step / WARPGROUPS * gridDim.x + blockIdx.x) * WARPGROUPS + step % WARPGROUPS;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tensor_pointwise(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t ring = shared_address(shared), weights = ring + PIXELS_BYTES;
    float* const biases = reinterpret_cast<float*>(shared + PIXELS_BYTES + WEIGHTS_BYTES);
    float* const slopes = biases + DEPTH * WIDTH;
    const uint32_t full = shared_address(biases) + EPILOGUE_BYTES, empty = full + 8 * RING, ready = empty + 8 * RING;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4);
        }
        barrier_init(ready, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    for (int i = threadIdx.x; i < DEPTH * WIDTH; i += THREADS) {
        biases[i] = p.epilogue[i];
        if (PLANE_SLOPES) slopes[i] = p.epilogue[DEPTH * WIDTH + i];
    }
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            barrier_expect(ready, WEIGHTS_BYTES);
#pragma unroll 1
            for (int i = 0; i < DEPTH * GROUPS; i++)
                bulk_copy(weights + i * B_BYTES, p.weights + i * B_BYTES, B_BYTES, ready);
#pragma unroll 1
            for (int step = 0; tile_of(step) < p.extent.tiles; step++) {
                const int slot = step % RING;
                const Tile tile = tile_at(tile_of(step), p);
#if RESIDUAL && !STACK
                prefetch_residual(tile, 0, DEPTH * WIDTH, p);
#endif
                if (step >= RING) barrier_wait(empty + 8 * slot, step / RING - 1 & 1);
                const uint32_t bytes = TILE_COLUMNS * PIXEL_BYTES;
                barrier_expect(full + 8 * slot, GROUPS * bytes);
                const uint8_t* source = k_block_at(0, tile, p);
#pragma unroll
                for (int group = 0; group < GROUPS; group++)
                    bulk_copy(ring + slot * TILE_BYTES + group * GROUP_BYTES + (tile.column & 7) * PIXEL_BYTES,
                              source + static_cast<size_t>(group) * p.from.group * 16, bytes, full + 8 * slot);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        const int q = lane % 4, first = warp % 4 * 16;
        barrier_wait(ready, 0);
#pragma unroll 1
        for (int step = warp / 4; tile_of(step) < p.extent.tiles; step += WARPGROUPS) {
            const int slot = step % RING;
            const Tile tile = tile_at(tile_of(step), p);
            const int x = tile.x + first + lane / 4;
            AddedVectors<WIDTH> added = added_vectors<WIDTH>(0, tile.y, x, q, p);
            // Swizzled vectors keep their place modulo 8 columns.
            const int pixel = (tile.column & 7) + first + lane % 16;
            const uint32_t start = ring + slot * TILE_BYTES + pixel * PIXEL_BYTES;
            uint32_t pixels[GROUPS][GROUP / 16][4];
            barrier_wait(full + 8 * slot, step / RING & 1);
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
#pragma unroll
                for (int k = 0; k < GROUP / 16; k++)
                    load_matrices(pixels[group][k], start + group * GROUP_BYTES +
                                                    ((k * 2 + lane / 16) ^ swizzle_phase<GROUP>(pixel)) * 16);
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * slot);
#if SCALED
            const float* factors[2];
#pragma unroll
            for (int half = 0; half < 2; half++)
                factors[half] =
                    factors_of(p.factors, output_coordinate(tile.y, x + half * 8, p.from, p.extent), p) + q * 2;
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
#pragma unroll
                for (int k = 0; k < GROUP / 16; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        pixels[group][k][i] = scaled(
                            pixels[group][k][i], factors[i % 2] + (group * GROUP + k * 16 + i / 2 * 8) % IN_EACH);
#endif
#pragma unroll 1
            for (int deep = 0; deep < DEPTH; deep++) {
                float sums[WIDTH / 2];
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int group = 0; group < GROUPS; group++)
#pragma unroll
                    for (int k = 0; k < GROUP / 16; k++)
                        wgmma_of_registers(sums, pixels[group][k],
                                     descriptor(weights + (deep * GROUPS + group) * B_BYTES + k * 32), group | k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                AddedVectors<WIDTH> next = {};
                if (deep + 1 < DEPTH) next = added_vectors<WIDTH>((deep + 1) * WIDTH, tile.y, x, q, p);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                // Results and pixels in registers are the unit's until here.
#pragma unroll
                for (int i = 0; i < WIDTH / 2; i++) asm volatile("" : "+f"(sums[i])::"memory");
#pragma unroll
                for (int i = 0; i < GROUPS * GROUP / 4; i++) asm volatile("" : "+r"((&pixels[0][0][0])[i])::"memory");
                bool infinite = false;
                store_row<WIDTH>(sums, biases + deep * WIDTH, slopes + deep * WIDTH, deep * WIDTH, tile.y, x, q, added, p,
                                 infinite);
                flag_single(infinite, p);
                added = next;
            }
        }
    }
}
