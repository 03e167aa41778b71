// Two convolutions of 3x3 taps on the matrix units of sm_90a; the second makes a picture or a map of few
// planes: the map of 64 planes between them is never in memory.
//
//     mid(y, x, o) = activation(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//     out(y, x, c) = epilogue of the same sum over mid
//
// The first one is that of tensor_rows.cu: weights are the operand in registers, 128 pixels of a row the other.
// Each of two warpgroups goes down strips of its own, TILE_RESULTS columns wide, with a ring of rows of input of
// its own; they take turns at the matrix unit. A row of the map between, rounded to 16 bits, is transposed
// into shared memory, where it is the operand of a product with all 27 taps of the second convolution as columns.
// Its parts are added up row by row: a row of results is complete two rows further down. Nothing depends on
// where a strip or a block begins.
//
// Arguments: `Conv` in tensor.cuh, as of a convolution of 5x5 taps; tiles of `extent` are rows of results of a
// strip; `Second` below. Layouts
//   in       map as tensor.cuh has it, of 64 planes in one group; STORED_GROUPS, from FIRST_GROUP on
//   weights  as tensor_rows.cu has them
//   epilogue float [2][WIDTH]: biases, then slopes of the map between
//   out      pixels [row][column][PLANES]
//   residual as of tensor_wgmma.cu with LAST
// Macros
//   IN_PLANES = GROUP = WIDTH = 64, USED, STORED_GROUPS, FIRST_GROUP, SIDE = 5, TERMS = 1, RING (rows of input
//   of a warpgroup in shared memory), REGISTERS, SPARE_REGISTERS, THREADS, SHARED, TILE_COLUMNS = 128,
//   TILE_RESULTS = 126, ROWS = 1, TAP_COLUMNS = 0, DEPTH = 1, SPARSE_TAPS = 1;
//   MID_ZERO (0 or 1: the map between is zero beyond its size), MID_PLANE_SLOPES, MID_ACTIVATE(x, slope);
//   LAST = 1, PLANES <= 3, PIXEL, D2S = 1, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, STACK: of the second one
// Bound: the matrix unit.
#define COLUMNS_EACH 128
#define WARPGROUPS 2
// Taps in each direction of both, and the columns that neighbouring strips both compute of the map between.
#define EACH_SIDE 3
#define OVERLAP (EACH_SIDE - 1)
#include "barriers.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

static_assert(WIDTH == 64 && IN_PLANES == 64 && GROUP == 64 && TERMS == 1 && ROWS == 1 && SIDE == 5, "one group");
static_assert(TILE_COLUMNS == 128 && D2S == 1 && DEPTH == 1 && THREADS == 384, "one instruction");
// Rows begin anywhere in the period of the swizzle, those of one strip elsewhere than those of the next.
#define PITCH (TILE_COLUMNS + 16)
#define ROW_BYTES (PITCH * PIXEL_BYTES)
#define RING_BYTES (WARPGROUPS * RING * ROW_BYTES)
#define STAGED_BYTES (TILE_COLUMNS * WIDTH * 2)
// Columns of the second product: all taps of all planes.
#define PARTS (EACH_SIDE * EACH_SIDE * PLANES)
#define PART_COLUMNS 32
static_assert(PARTS <= PART_COLUMNS - 3, "and sums of a pixel have an odd pitch");
#define PART_PITCH (PART_COLUMNS - 3)
static_assert(TILE_COLUMNS * PART_PITCH * 4 <= STAGED_BYTES, "sums take the place of the pixels that they are made of");
#define TAP_BYTES (PART_COLUMNS * PIXEL_BYTES)
#define EACH_TAP ((USED + 15) / 16)
#define PRODUCTS (EACH_SIDE * EACH_SIDE * EACH_TAP)
static_assert(PRODUCTS <= 36, "registers");
// Products after which it is the next one's turn.
#define ALONE (PRODUCTS - 4)
static_assert(RING > EACH_SIDE, "a row on its way");
#define BARRIERS (WARPGROUPS * (2 * RING + 1))
// The partial sums of a thread's results: those of the row before the last, and of the last.
#define KEPT_BYTES (WARPGROUPS * 128 * 2 * PLANES * 4)
static_assert(SHARED == RING_BYTES + WARPGROUPS * STAGED_BYTES + TAP_BYTES + BARRIERS * 8 + KEPT_BYTES, "tensor/shape.py assumes other shared memory");

struct Second {
    const uint8_t* weights;  // 16-bit floats [27 taps and planes, to 32][64], vectors as in a map of 32 columns
    const float* epilogue;   // [2][PLANES]: biases, then slopes
    Range valid;             // MID_ZERO: pixels of the map between that are not zero, from the first one's
    float slope;             // of all planes between, without MID_PLANE_SLOPES
};

// Rows of results of a warpgroup: counted through all strips, one after the other.
struct Share {
    int strip, row, left;
};

__device__ __forceinline__ Share share_of(int number, const LayerExtent& extent) {
    const long long rows = static_cast<long long>(extent.tiles) * extent.tiles_across;
    const int shares = gridDim.x * WARPGROUPS;
    const int first = static_cast<int>(rows * number / shares), end = static_cast<int>(rows * (number + 1) / shares);
    return {first / extent.tiles, first % extent.tiles, end - first};
}

// Rows of the map between that a share takes: two more for each strip.
__device__ __forceinline__ int turns_of(const Share& share, const LayerExtent& extent) {
    if (share.left == 0) return 0;
    const int strips = (share.row + share.left - 1) / extent.tiles + 1;
    return share.left + strips * (EACH_SIDE - 1);
}

__device__ __forceinline__ float load_float(const float* from) {
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}

__device__ __forceinline__ int thread_again() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ __forceinline__ uint32_t staged_at(int pixel, int vector) {
    return pixel * (WIDTH * 2) + ((vector ^ pixel & 7) << 4);
}

// d (64 x 32) = a (64 x 16) * b (16 x 32), plus d if `add`.
__device__ __forceinline__ void multiply_parts(float (&d)[PART_COLUMNS / 2], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},\n"
        "%16, %17, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8)
        : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ float mid_activate(float x, float slope) { return MID_ACTIVATE(x, slope); }

#if MID_ZERO
// Writes zeros into the staged row from (y, x) on outside the map between, in all pictures of a stack.
__device__ __forceinline__ void clear_outside(uint32_t staged, int y, int x, int turn, const Conv& p, const Second& second) {
    const Range& valid = second.valid;
    if (!STACK && y >= valid.top && y < valid.bottom && x >= valid.left && x + TILE_COLUMNS <= valid.right) return;
    const int pixel = thread_again() % 128;
    x += pixel;
#if STACK
    y = static_cast<unsigned>(y) % static_cast<unsigned>(p.from.rows) - p.from.top;
    x = static_cast<unsigned>(x) % static_cast<unsigned>(p.from.columns) - p.from.left;
#endif
    const bool outside = y < valid.top || y >= valid.bottom || x < valid.left || x >= valid.right;
    // All of the row is staged.
    asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
#pragma unroll 1
    for (int i = 0; outside && i < WIDTH / 8; i++)
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(staged + staged_at(pixel, i)), "r"(0) : "memory");
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tensor_pair(const __grid_constant__ Conv p, const __grid_constant__ Second second) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t rings = shared_address(shared), stages = rings + RING_BYTES;
    const uint32_t taps = stages + WARPGROUPS * STAGED_BYTES;
    const uint32_t full = taps + TAP_BYTES, empty = full + 8 * WARPGROUPS * RING;
    const uint32_t turns = empty + 8 * WARPGROUPS * RING;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < WARPGROUPS * RING; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 1);
        }
        for (int i = 0; i < WARPGROUPS; i++) barrier_init(turns + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    for (int i = threadIdx.x; i < TAP_BYTES / 16; i += THREADS) {
        const uint4 vector = __ldg(reinterpret_cast<const uint4*>(second.weights) + i);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
            ::"r"(taps + i * 16), "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        const int turn = warp - WARPGROUPS * 4;
        if (turn < WARPGROUPS && lane == 0) {
            Share at = share_of(blockIdx.x * WARPGROUPS + turn, p.extent);
            const uint32_t ring = rings + turn * RING * ROW_BYTES;
            const uint32_t own_full = full + 8 * turn * RING, own_empty = empty + 8 * turn * RING;
            int slot = 0, parity = 1;
            while (at.left > 0) {
                const Tile tile = tile_at(at.row * p.extent.tiles_across + at.strip, p);
                const int count = min(p.extent.tiles - at.row, at.left);
                at = {at.strip + 1, 0, at.left - count};
                // Memory ends with the row; what would stand behind it belongs to results of no use.
                const uint32_t bytes = min(TILE_COLUMNS + EACH_SIDE - 1, p.from.pitch - tile.column) * PIXEL_BYTES;
                const uint8_t* source = k_block_at(0, tile, p);
#pragma unroll 1
                for (int row = 0; row < count + SIDE - 1; row++) {
                    barrier_wait(own_empty + 8 * slot, parity);
                    barrier_expect(own_full + 8 * slot, bytes);
                    bulk_copy(ring + slot * ROW_BYTES + (tile.column & 7) * PIXEL_BYTES, source, bytes, own_full + 8 * slot);
                    source += static_cast<size_t>(p.from.pitch) * PIXEL_BYTES;
                    if (++slot == RING) {
                        slot = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
        const int turn = warp / 4;
        uint32_t weights[PRODUCTS][4];
        const uint4* const packed = reinterpret_cast<const uint4*>(p.weights) + threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) {
            const uint4 vector = __ldg(packed + (i / EACH_TAP * (GROUP / 16) + i % EACH_TAP) * 128);
            weights[i][0] = vector.x;
            weights[i][1] = vector.y;
            weights[i][2] = vector.z;
            weights[i][3] = vector.w;
        }
        const uint32_t staged = stages + turn * STAGED_BYTES;
        // Where a lane's row of four matrices of 8 x 8 is staged.
        const uint32_t transposed = staged + staged_at(lane / 16 * 8 + lane % 8, warp % 4 * 2 + lane / 8 % 2);
        const uint32_t ring = rings + turn * RING * ROW_BYTES;
        const uint32_t own_full = full + 8 * turn * RING, own_empty = empty + 8 * turn * RING;
        Share at = share_of(blockIdx.x * WARPGROUPS + turn, p.extent);
        // Turns of the other warpgroup: it need not be waited for after its last one.
        int others = turns_of(share_of(blockIdx.x * WARPGROUPS + (turn ^ 1), p.extent), p.extent) + (turn == 0);
        int phase = turn == 0;
        int slot = 0, parity = 0;  // of the first row of input of the next product
        float sums[TILE_COLUMNS / 2];
        while (at.left > 0) {
            const int count = min(p.extent.tiles - at.row, at.left);
            const int number = at.row * p.extent.tiles_across + at.strip;
            at = {at.strip + 1, 0, at.left - count};
#pragma unroll 1
            for (int row = 0; row < count + EACH_SIDE - 1; row++) {
                const int shift = tile_at(number, p).column & 7;
                uint32_t pixels[EACH_SIDE];
#pragma unroll
                for (int ky = 0; ky < EACH_SIDE; ky++) {
                    const bool wraps = slot + ky >= RING;
                    const int own = wraps ? slot + ky - RING : slot + ky;
                    barrier_wait(own_full + 8 * own, wraps ? parity ^ 1 : parity);
                    pixels[ky] = ring + own * ROW_BYTES + shift * PIXEL_BYTES;
                }
                // All have read the staged row.
                asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
                if (others > 0) {
                    barrier_wait(turns + 8 * turn, phase);
                    phase ^= 1;
                    others--;
                }
                pin_accumulators(sums);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < PRODUCTS; i++) {
                    const int k = i % EACH_TAP, tap = i / EACH_TAP;
                    wgmma_of_registers(sums, weights[i], descriptor(pixels[tap / EACH_SIDE] + tap % EACH_SIDE * PIXEL_BYTES + k * 32), i > 0);
                    if (i == ALONE - 1) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (threadIdx.x % 128 == 0) barrier_arrive(turns + 8 * (turn ^ 1));
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                pin_accumulators(sums);
                const int thread = thread_again();
                if (thread % 128 == 0) {
                    barrier_arrive(own_empty + 8 * slot);
                    // Behind a strip's last row, the others too.
                    if (row == count + EACH_SIDE - 2)
                        for (int ky = 1; ky < EACH_SIDE; ky++)
                            barrier_arrive(own_empty + 8 * (slot + ky >= RING ? slot + ky - RING : slot + ky));
                }
                const int steps = row == count + EACH_SIDE - 2 ? EACH_SIDE : 1;
                slot += steps;
                if (slot >= RING) {
                    slot -= RING;
                    parity ^= 1;
                }

                const Tile tile = tile_at(number, p);
                const float* const biases = p.epilogue + thread % 128 / 32 * 16 + thread % 32 / 4;
                float bias[2], slope[2];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    bias[half] = load_float(biases + half * 8);
                    slope[half] = MID_PLANE_SLOPES ? load_float(biases + WIDTH + half * 8) : second.slope;
                }
#pragma unroll
                for (int j = 0; j < TILE_COLUMNS / 8; j += 2) {
                    uint32_t words[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float* const two = sums + (j + i / 2) * 4 + i % 2 * 2;
                        float v0 = mid_activate(two[0] + bias[i % 2], slope[i % 2]);
                        float v1 = mid_activate(two[1] + bias[i % 2], slope[i % 2]);
                        words[i] = pack(v0, v1);
                    }
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                        ::"r"(transposed + j * 8 * WIDTH * 2), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                        : "memory");
                }
#if MID_ZERO
                clear_outside(staged, tile.y + row, tile.x, turn, p, second);
#endif
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
                float parts[TILE_COLUMNS / 64][PART_COLUMNS / 2];
                pin_accumulators(parts);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < WIDTH / 16; k++)
#pragma unroll
                    for (int half = 0; half < TILE_COLUMNS / 64; half++)
                        multiply_parts(parts[half], descriptor(staged + half * 64 * PIXEL_BYTES + k * 32), descriptor(taps + k * 32), k > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // Meanwhile: the pixel that this thread will store.
                const int column = thread % 128;
                const OutputCoordinate output =
                    output_coordinate(tile.y + row - (EACH_SIDE - 1), tile.x + column, p.from, p.extent);
                MadePixel made;
                made.sum = 0;
                made.terms = 0;
                made.row = output.row;
                made.column = output.column;
                made.picture = picture_of(output, p.extent);
                made.is_stored = row >= EACH_SIDE - 1 && column < TILE_RESULTS && output.is_stored &&
                    output.row + p.to.top >= p.stored.top && output.row + p.to.top < p.stored.bottom &&
                    output.column + p.to.left >= p.stored.left && output.column + p.to.left < p.stored.right;
                const Added added = added_to(made, p);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                pin_accumulators(parts);
                // All have multiplied the staged row.
                asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
                float* const partial = reinterpret_cast<float*>(shared + (staged - rings));
#pragma unroll
                for (int half = 0; half < TILE_COLUMNS / 64; half++)
#pragma unroll
                    for (int i = 0; i < PART_COLUMNS / 2; i++) {
                        const int pixel = half * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
                        const int part = i / 4 * 8 + thread % 4 * 2 + i % 2;
                        if (i / 4 * 8 + 7 < PARTS || part < PARTS) partial[pixel * PART_PITCH + part] = parts[half][i];
                    }
                asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
                // No result of the last two columns is complete.
                const float* const own = partial + min(column, TILE_RESULTS - 1) * PART_PITCH;
                float* const rows_above = reinterpret_cast<float*>(shared + (turns - rings) + 8 * WARPGROUPS) + thread;
                float complete[PLANES];
#pragma unroll
                for (int plane = 0; plane < PLANES; plane++) {
                    float rows[EACH_SIDE];
#pragma unroll
                    for (int ky = 0; ky < EACH_SIDE; ky++) {
                        const float* const row_parts = own + ky * EACH_SIDE * PLANES + plane;
                        rows[ky] = row_parts[0] + row_parts[PART_PITCH + PLANES] + row_parts[2 * (PART_PITCH + PLANES)];
                    }
                    complete[plane] = rows_above[plane * 512] + rows[2];
                    rows_above[plane * 512] = rows_above[plane * 512 + 256] + rows[1];
                    rows_above[plane * 512 + 256] = rows[0];
                }
                store_complete(complete, made, added, second.epilogue, second.epilogue + PLANES, p);
            }
        }
    }
}
