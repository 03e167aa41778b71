// A convolution of one tap and its epilogue, on the matrix units of sm_90a: maps to maps of several times 64
// planes, such as transposed ones of 2x2 taps.
//
//     out(y, x, o) = epilogue(bias(o) + sum over i of weight(o, i) * in(y, x, i))
//
// Each pixel is read once: the weights of all output planes stay in shared memory, and a warpgroup multiplies
// the 64 pixels of a tile, in registers, by those of 64 planes after the other. Tiles come by a ring of them,
// and warpgroups take them in turn.
//
// Arguments: `Conv` in tensor.cuh. Layouts
//   in, out, residual  as tensor_wgmma.cu has them
//   weights  [64 output planes][group][WIDTH][GROUP], 16-bit floats, likewise
//   epilogue float [2][DEPTH * WIDTH]: biases, then slopes of all output planes
// Macros
//   IN_PLANES, GROUP, USED (planes of a group before its padding, which is not multiplied), STORED_GROUPS,
//   FIRST_GROUP, SIDE = 1, WIDTH = 64, DEPTH (times 64 output planes), TERMS = 1, RING (tiles in shared memory),
//   WARPGROUPS, REGISTERS (of a thread that multiplies), SPARE_REGISTERS (of one that copies), MARGIN, LAST = 0,
//   TAP_COLUMNS = 0, SPARSE_TAPS = 1, SCALED with IN_EACH (see tensor_wgmma.cu);
//   THREADS, SHARED (bytes of a block), TILE_COLUMNS, TILE_RESULTS, ROWS = 1 (see tensor.cuh);
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, RESIDUAL_GROUP,
//   RESIDUAL_STORED, RESIDUAL_PART, STACK: of the store, see tensor.cuh
// Bound: device memory.
#include "barriers.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

static_assert(SIDE == 1 && TERMS == 1 && ROWS == 1 && WIDTH == 64 && TILE_COLUMNS == 64, "one product");
static_assert(THREADS == WARPGROUPS * 128 + 128, "one warpgroup more than multiply");
// As in tensor_wgmma.cu.
#define PITCH (TILE_COLUMNS + 8)
#define GROUP_BYTES (PITCH * PIXEL_BYTES)
#define TILE_BYTES (GROUPS * GROUP_BYTES)
#define WEIGHT_BYTES (DEPTH * GROUPS * B_BYTES)
#define EACH_GROUP ((USED + 15) / 16)
static_assert(SHARED == WEIGHT_BYTES + RING * TILE_BYTES + DEPTH * WIDTH * 8 + (2 * RING + 1) * 8,
              "tensor_shape.py reckons with other shared memory");

#if RESIDUAL && !STACK
// Asks for what will be added to a tile: to be near when it is.
__device__ __forceinline__ void prefetch_residual(const Tile& tile, const Conv& p) {
    const size_t pixel = static_cast<size_t>(tile.y + p.added.top) * p.added.pitch + tile.x + p.added.left;
    const uint8_t* const from = static_cast<const uint8_t*>(p.residual) + pixel * (RESIDUAL_GROUP * 2);
#pragma unroll 1
    for (int group = 0; group < DEPTH * WIDTH / RESIDUAL_GROUP; group++)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
            ::"l"(from + static_cast<size_t>(RESIDUAL_PART / RESIDUAL_GROUP + group) * p.added.group * 16),
              "r"(TILE_COLUMNS * RESIDUAL_GROUP * 2) : "memory");
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tensor_single(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t weights = shared_address(shared), ring = weights + WEIGHT_BYTES;
    float* const biases = reinterpret_cast<float*>(shared + WEIGHT_BYTES + RING * TILE_BYTES);
    float* const slopes = biases + DEPTH * WIDTH;
    const uint32_t full = shared_address(slopes + DEPTH * WIDTH), empty = full + 8 * RING, there = empty + 8 * RING;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4);
        }
        barrier_init(there, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#if MARGIN
    clear_margin<DEPTH * WIDTH>(p, 0, blockIdx.x, gridDim.x);
#endif
    for (int i = threadIdx.x; i < DEPTH * WIDTH; i += THREADS) {
        biases[i] = p.epilogue[i];
        if (PLANE_SLOPES) slopes[i] = p.epilogue[DEPTH * WIDTH + i];
    }
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            barrier_expect(there, WEIGHT_BYTES);
            for (int i = 0; i < DEPTH * GROUPS; i++)
                bulk_copy(weights + i * B_BYTES, p.weights + i * B_BYTES, B_BYTES, there);
            int use = 0;
            for (int number = blockIdx.x; number < p.extent.tiles; number += gridDim.x, use++) {
                const Tile tile = tile_at(number, p);
                const int slot = use % RING, round = use / RING;
#if RESIDUAL && !STACK
                prefetch_residual(tile, p);
#endif
                if (round > 0) barrier_wait(empty + 8 * slot, round - 1 & 1);
                barrier_expect(full + 8 * slot, GROUPS * TILE_COLUMNS * PIXEL_BYTES);
                // Swizzled vectors keep their place modulo 8 columns.
                const uint32_t target = ring + slot * TILE_BYTES + (tile.column & 7) * PIXEL_BYTES;
                for (int group = 0; group < GROUPS; group++)
                    bulk_copy(target + group * GROUP_BYTES, k_block_at(group, tile, p), TILE_COLUMNS * PIXEL_BYTES,
                              full + 8 * slot);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        const int q = lane % 4, first = warp % 4 * 16;
        barrier_wait(there, 0);
        for (int use = warp / 4;; use += WARPGROUPS) {
            const int number = blockIdx.x + use * gridDim.x;
            if (number >= p.extent.tiles) break;
            const Tile tile = tile_at(number, p);
            const int y = tile.y, x = tile.x + first + lane / 4, slot = use % RING;
            const int pixel = (tile.column & 7) + first + lane % 16;
            AddedVectors<WIDTH> added = added_vectors<WIDTH>(0, y, x, q, p);
            barrier_wait(full + 8 * slot, use / RING & 1);
            uint32_t pixels[GROUPS * EACH_GROUP][4];
#pragma unroll
            for (int i = 0; i < GROUPS * EACH_GROUP; i++) {
                const int group = i / EACH_GROUP, k = i % EACH_GROUP;
                const int vector = (k * 2 + lane / 16) ^ swizzle_phase<GROUP>(pixel);
                load_matrices(pixels[i], ring + slot * TILE_BYTES + group * GROUP_BYTES + pixel * PIXEL_BYTES + vector * 16);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * slot);
#if SCALED
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float* const factors = factors_of(p.factors, output_coordinate(y, x + half * 8, p.from, p.extent), p);
#pragma unroll
                for (int i = 0; i < GROUPS * EACH_GROUP; i++) {
                    const int plane = i / EACH_GROUP * GROUP + i % EACH_GROUP * 16 + q * 2;
#pragma unroll
                    for (int eight = 0; eight < 2; eight++)
                        pixels[i][eight * 2 + half] = scaled(pixels[i][eight * 2 + half], factors + (plane + eight * 8) % IN_EACH);
                }
            }
#endif
            bool infinite = false;
#pragma unroll 1
            for (int deep = 0; deep < DEPTH; deep++) {
                float sums[WIDTH / 2];
                pin_accumulators(sums);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < GROUPS * EACH_GROUP; i++)
                    wgmma_of_registers(sums, pixels[i], descriptor(weights + (deep * GROUPS + i / EACH_GROUP) * B_BYTES +
                        i % EACH_GROUP * 32), i);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                AddedVectors<WIDTH> next = {};
                if (deep < DEPTH - 1) next = added_vectors<WIDTH>((deep + 1) * WIDTH, y, x, q, p);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                pin_accumulators(sums);
                // Registers are read until here.
#pragma unroll
                for (int i = 0; i < GROUPS * EACH_GROUP * 4; i++) asm volatile("" ::"r"((&pixels[0][0])[i]) : "memory");
                store_row<WIDTH>(sums, biases + deep * WIDTH, slopes + deep * WIDTH, deep * WIDTH, y, x, q, added, p,
                                 infinite);
                added = next;
            }
            flag_single(infinite, p);
        }
    }
}
