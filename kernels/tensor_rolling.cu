// A convolution of 3x3 taps and its epilogue, on the matrix units of sm_90a: maps to maps, 32 output planes
// at a time, where all their weights fit shared memory.
//
//     out(y, x, o) = epilogue(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//
// An implicit matrix product whose columns are 32 output planes of three rows of output: a row of input adds
// to those by its taps ky = 0, 1 and 2. So the matrix unit reads pixels once for 96 columns; with 32 it
// would wait for shared memory. A block goes down a strip of TILE_COLUMNS columns, each warpgroup 64 of them,
// and on at the top of the next one. Sums of row y of output stand in part y % 3 of the columns; with each
// row of input one part is complete, and begins again at zero. Since weights stand in shared memory as taps
// ky = 2, 1, 0, 2, 1, the three parts of any row of input are contiguous there.
//
// One warp copies rows of input, group of planes by group, into a ring; each is used once.
//
// Arguments: `Conv` in tensor.cuh; tiles of `extent` are rows of a strip. Layouts
//   in       map as tensor.cuh has it, in groups of GROUP planes; of its STORED_GROUPS groups IN_PLANES
//            planes are read, from FIRST_GROUP on
//   weights  [32 output planes][group][kx][ky = 2, 1, 0, 2, 1][WIDTH][GROUP], 16-bit floats, vectors as in a
//            map whose columns are output planes
//   epilogue float [2][DEPTH * WIDTH]: biases, then slopes of all output planes
//   out      map in groups of OUT_GROUP planes, OUT_STORED in all
//   residual with RESIDUAL = 1, as `residual_at` says
// Macros
//   IN_PLANES, GROUP, USED (planes of a group before its padding, which is not multiplied), STORED_GROUPS, FIRST_GROUP, SIDE = 3, WIDTH = 32, DEPTH (tiles of output planes),
//   TERMS = 1, RING (groups of a row in shared memory), WARPGROUPS, REGISTERS (of a thread that
//   multiplies), SPARE_REGISTERS (of one that copies), SPARSE_TAPS, MARGIN, LAST = 0;
//   THREADS, SHARED (bytes of a block), TILE_COLUMNS, TILE_RESULTS, ROWS = 1 (see tensor.cuh);
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, RESIDUAL_GROUP,
//   RESIDUAL_STORED, RESIDUAL_PART, STACK: of the store, see tensor.cuh
// Bound: the matrix unit, which reads shared memory at 107 of 128 bytes a clock; device memory for few planes.
#define COLUMNS_EACH 96
#include "barriers.cuh"
#include "rows.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

static_assert(WIDTH == 32 && SIDE == 3 && TERMS == 1 && ROWS == 1, "three parts of a matrix product");
static_assert(TILE_COLUMNS == WARPGROUPS * 64 && THREADS == WARPGROUPS * 128 + 128, "one warpgroup more");
// A row that begins 7 pixels into the period of the swizzle ends a pixel behind its place, where the next
// one has none.
#define PITCH (TILE_COLUMNS + 8)
#define SLOT_BYTES (PITCH * PIXEL_BYTES)
// Weights of a tap kx of a group.
#define TAP_BYTES (5 * WIDTH * PIXEL_BYTES)
#define WEIGHT_BYTES (GROUPS * SIDE * TAP_BYTES)
// Groups by which a warpgroup is ahead of the next, less one; the ring holds what they are apart.
#define LEAD (RING - 4 > WARPGROUPS * 2 && GROUPS > 3 ? 1 : 0)
#define BARRIERS (2 * RING + WARPGROUPS + 1)
static_assert(SHARED == WEIGHT_BYTES + (RING * SLOT_BYTES + PIXEL_BYTES) + WIDTH * 8 + BARRIERS * 8,
              "tensor/shape.py assumes other shared memory");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tensor_rolling(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t taps = shared_address(shared), ring = taps + WEIGHT_BYTES;
    float* const biases = reinterpret_cast<float*>(shared + WEIGHT_BYTES + RING * SLOT_BYTES + PIXEL_BYTES);
    float* const slopes = biases + WIDTH;
    const uint32_t full = shared_address(slopes + WIDTH), empty = full + 8 * RING;
    const uint32_t weighed = empty + 8 * RING, leads = weighed + 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, WARPGROUPS);
        }
        barrier_init(weighed, 1);
        for (int i = 0; i < WARPGROUPS; i++) barrier_init(leads + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const int deep = blockIdx.x % DEPTH;
#if MARGIN
    clear_margin<WIDTH>(p, deep * WIDTH, blockIdx.x / DEPTH, gridDim.x / DEPTH);
#endif
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        biases[i] = p.epilogue[deep * WIDTH + i];
        if (PLANE_SLOPES) slopes[i] = p.epilogue[(DEPTH + deep) * WIDTH + i];
    }
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            barrier_expect(weighed, WEIGHT_BYTES);
            for (int i = 0; i < GROUPS; i++)
                bulk_copy(taps + i * SIDE * TAP_BYTES, p.weights + (static_cast<size_t>(deep) * GROUPS + i) * SIDE * TAP_BYTES,
                          SIDE * TAP_BYTES, weighed);
            Row at = first_row(blockIdx.x / DEPTH, p.extent);
            int slot = 0, parity = 1;
            for (int left = rows_between(at, first_row(blockIdx.x / DEPTH + 1, p.extent), p.extent); left > 0;) {
                const Tile tile = tile_of_row(at, p);
                const int count = min(p.extent.tiles - at.row, left);
                left -= count;
                advance(at, count, p.extent);
                // Memory ends with the row; what would stand behind it belongs to results of no use.
                const uint32_t bytes = min(TILE_READS, p.from.pitch - tile.column) * PIXEL_BYTES;
                const uint8_t* source = k_block_at(0, tile, p);
#pragma unroll 1
                for (int row = 0; row < count + SIDE - 1; row++) {
#pragma unroll 1
                    for (int group = 0; group < GROUPS; group++) {
                        barrier_wait(empty + 8 * slot, parity);
                        barrier_expect(full + 8 * slot, bytes);
                        bulk_copy(ring + slot * SLOT_BYTES + (tile.column & 7) * PIXEL_BYTES,
                                  source + static_cast<size_t>(group) * p.from.group * 16, bytes, full + 8 * slot);
                        if (++slot == RING) {
                            slot = 0;
                            parity ^= 1;
                        }
                    }
                    source += static_cast<size_t>(p.from.pitch) * PIXEL_BYTES;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        const int group = warp / 4, q = lane % 4, column = group * 64 + warp % 4 * 16 + lane / 4;
        Row at = first_row(blockIdx.x / DEPTH, p.extent);
        int left = rows_between(at, first_row(blockIdx.x / DEPTH + 1, p.extent), p.extent);
        if (left > 0) barrier_wait(weighed, 0);
        // Warpgroups follow one another, so that not all of them end a row at once.
        if (group > 0 && left > 0) barrier_wait(leads + 8 * (group - 1), 0);
        bool leads_next = true;
        int slot = 0, parity = 0;
        float sums[COLUMNS_EACH / 2], complete[WIDTH / 2];
        AddedVectors<WIDTH> added;
        int y = -1, x = 0;  // of what is complete, and not yet stored
        bool infinite = false;
        while (left > 0) {
            const Tile top = tile_of_row(at, p);
            const int count = min(p.extent.tiles - at.row, left);
            left -= count;
            advance(at, count, p.extent);
            const uint32_t offset = (group * 64 + (top.column & 7)) * PIXEL_BYTES;
#pragma unroll
            for (int i = 0; i < COLUMNS_EACH / 2; i++) sums[i] = 0;
            int part = 0;  // row % 3
#pragma unroll 1
            for (int row = 0; row < count + SIDE - 1; row++) {
                int before = -1;
                pin_accumulators(sums);
#pragma unroll 1
                for (int k_block = 0; k_block < GROUPS; k_block++) {
                    barrier_wait(full + 8 * slot, parity);
                    const uint32_t a = ring + slot * SLOT_BYTES + offset;
                    const uint32_t b = taps + k_block * SIDE * TAP_BYTES + (2 - part) * WIDTH * PIXEL_BYTES;
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                    for (int kx = 0; kx < SIDE; kx++)
#pragma unroll
                        for (int k = 0; k < (USED + 15) / 16; k++)
                            wgmma(sums, descriptor(a + kx * PIXEL_BYTES + k * 32), descriptor(b + kx * TAP_BYTES + k * 32), 1);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    // The row before is stored while this one is multiplied.
                    if (k_block == 0 && y >= 0)
                        store_row<WIDTH>(complete, biases, slopes, deep * WIDTH, y, x + column, q, added, p, infinite);
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (threadIdx.x % 128 == 0) {
                        if (before >= 0) barrier_arrive(empty + 8 * before);
                        if (leads_next && k_block == LEAD) barrier_arrive(leads + 8 * group);
                    }
                    before = slot;
                    if (++slot == RING) {
                        slot = 0;
                        parity ^= 1;
                    }
                }
                leads_next = false;
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                pin_accumulators(sums);
                if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * before);
                // Row `row` - 2 of the results is complete, in the part behind this row's.
                const int done = part == 2 ? 0 : part + 1;
#pragma unroll
                for (int i = 0; i < WIDTH / 2; i++) {
                    complete[i] = done == 0 ? sums[i] : done == 1 ? sums[WIDTH / 2 + i] : sums[WIDTH + i];
                    if (done == 0) sums[i] = 0;
                    if (done == 1) sums[WIDTH / 2 + i] = 0;
                    if (done == 2) sums[WIDTH + i] = 0;
                }
                part = done;
                y = row >= SIDE - 1 ? top.y + row - (SIDE - 1) : -1;
                x = top.x;
                if (y >= 0) added = added_vectors<WIDTH>(deep * WIDTH, y, x + column, q, p);
            }
        }
        if (y >= 0) store_row<WIDTH>(complete, biases, slopes, deep * WIDTH, y, x + column, q, added, p, infinite);
        flag_single(infinite, p);
    }
}
