// A convolution of 3x3 or 2x2 taps and its epilogue, on the matrix units of sm_90a: maps to maps of 64
// planes and more, where the weights of 64 output planes fit the registers of a warpgroup.
//
//     out(y, x, o) = epilogue(bias(o) + sum over ky, kx, i of weight(o, i, ky, kx) * in(y + ky, x + kx, i))
//
// An implicit matrix product of weights times pixels: a step is one row of TILE_COLUMNS output pixels times
// 64 output planes. Weights are the operand in registers and stay there; pixels are the operand in shared
// memory, which so is read at half of what it gives. A block goes down a strip of TILE_COLUMNS columns, and
// on at the top of the next one: one warp copies rows of input into a ring, each row once, and warpgroups take
// a row of output in turn. A turn is that at the matrix unit: while one multiplies, the others store. All
// blocks get the same number of rows, one more or less.
//
// Sums stand with output planes along a warp's rows. They are transposed on the way through shared memory
// (`stmatrix`), from where each thread stores vectors of 8 planes.
//
// With OWN_GATE, what is staged, rounded to 16 bits, is the operand of another product before that:
//     out(y, x, o) = (made(o) + residual(o)) * gate(gate_bias(o) + sum over i of gate_weight(o, i) * made(i))
//
// Arguments: `Conv` in tensor.cuh; tiles of `extent` are rows of a strip. Layouts
//   in       map as tensor.cuh has it, in groups of GROUP planes; of its STORED_GROUPS groups IN_PLANES
//            planes are read, from FIRST_GROUP on
//   weights  [64 output planes][group][tap][16 input planes][thread of 128][4][2], 16-bit floats: word 2 * h + v
//            of thread 32 * w + l is planes 16 * w + 8 * v + l / 4 out, 8 * h + l % 4 * 2 and the next in
//            with OWN_GATE, behind them [64 planes out][64 planes in], vectors as in a map of 64 columns
//   epilogue float [2][DEPTH * WIDTH]: biases, then slopes of all output planes; with OWN_GATE, then biases of the gate
//   out      map in groups of OUT_GROUP planes, OUT_STORED in all
//   residual with RESIDUAL = 1, as `residual_at` says
// Macros
//   IN_PLANES, GROUP, USED (planes of a group before its padding, which is not multiplied), STORED_GROUPS, FIRST_GROUP, SIDE (taps in each direction), WIDTH = 64, DEPTH (tiles of
//   output planes), TERMS = 1, RING (rows of input in shared memory), WARPGROUPS, REGISTERS (of a thread that
//   multiplies), SPARE_REGISTERS (of one that copies), SPARSE_TAPS, MARGIN, LAST = 0;
//   OWN_GATE (0 or 1: with a residual, GROUP = 64 and DEPTH = 1), GATE_ACTIVATE(x);
//   THREADS, SHARED (bytes of a block), TILE_COLUMNS, TILE_RESULTS, ROWS = 1 (see tensor.cuh);
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, PLANE_SLOPES, ACTIVATE, RESIDUAL, RESIDUAL_GROUP,
//   RESIDUAL_STORED, RESIDUAL_PART, STACK, BOUNDED: of the store, see tensor.cuh
// Bound: the matrix unit for 64 planes in, device memory for 32.
#define COLUMNS_EACH 128
#include "barriers.cuh"
#include "rows.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

static_assert(WIDTH == 64 && TERMS == 1 && ROWS == 1 && TILE_COLUMNS == 128, "one instruction");
static_assert(THREADS == WARPGROUPS * 128 + 128, "one warpgroup more than multiply");
// A row that begins 7 pixels into the period of the swizzle ends a pixel behind its place, where the next
// one has none.
#define PITCH (TILE_COLUMNS + 8)
#define GROUP_BYTES (PITCH * PIXEL_BYTES)
#define ROW_BYTES (GROUPS * GROUP_BYTES)
#define RING_BYTES ((RING * ROW_BYTES + PIXEL_BYTES + 1023) / 1024 * 1024)
#define STAGED_BYTES (TILE_COLUMNS * WIDTH * 2)
// The addend of a gated row is staged beside the results; weights of the gate stand behind both.
#define ADDED_BYTES (OWN_GATE ? STAGED_BYTES : 0)
#define GATE_BYTES (OWN_GATE ? WIDTH * WIDTH * 2 : 0)
// Registers of all weights leave few for addresses of several vectors.
constexpr int STORED_AT_ONCE = STACK || ZERO || D2S * S2D > 1 ? 1 : 4;
// Products of a tap of a group, and all.
#define EACH_TAP ((USED + 15) / 16)
#define PRODUCTS (STEPS * EACH_TAP)
static_assert(PRODUCTS <= 36, "registers");
static_assert(!SCALED && !SCALED_RESIDUAL, "tensor_wgmma.cu scales");
// Products after which it is the next one's turn: what that waits for overlaps with the last of them.
#define ALONE (PRODUCTS - 4)
static_assert(RING >= SIDE * WARPGROUPS, "rows of a warpgroup between whose own others have as many");
static_assert(SHARED == RING_BYTES + WARPGROUPS * (STAGED_BYTES + ADDED_BYTES) + GATE_BYTES + (2 * RING + WARPGROUPS) * 8, "tensor/shape.py assumes other shared memory");
static_assert(!OWN_GATE || (RESIDUAL && GROUP == 64 && DEPTH == 1 && !BOUNDED), "one tile of planes, in one order");

// Returns the pixel of vector `i` of the 8 of a thread that stages or stores a row. A thread has the same 8
// planes of each.
__device__ __forceinline__ int staged_pixel(int thread, int i) { return i * 16 + thread % 128 / 8; }

__device__ __forceinline__ uint32_t staged_at(int pixel, int vector) {
    return pixel * (WIDTH * 2) + ((vector ^ pixel & 7) << 4);
}

// threadIdx.x, and a load, where they stand and not before, so that their results take no registers meanwhile.
__device__ __forceinline__ int thread_again() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ __forceinline__ float load_float(const float* from) {
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}

#if RESIDUAL
// Copies the addend of a row to where the row will be staged.
__device__ __forceinline__ void stage_residual(uint32_t staged, const Tile& tile, int deep, const Conv& p) {
    const int thread = thread_again(), eight = thread % 8, plane = deep * WIDTH + eight * 8;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        const int pixel = staged_pixel(thread, i);
        const OutputCoordinate output = output_coordinate(tile.y, tile.x + pixel, p.from, p.extent);
        const uint8_t* const vector = static_cast<const uint8_t*>(p.residual) + residual_at(output, plane, p.added);
        if (output.is_stored)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                ::"r"(staged + staged_at(pixel, eight)), "l"(vector) : "memory");
    }
}
#endif

// Four matrices of 8 x 8 as `stmatrix` left them.
__device__ __forceinline__ void load_staged(uint32_t (&words)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void stage(uint32_t to, const uint32_t (&words)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
        ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tensor_rows(const __grid_constant__ Conv p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t ring = shared_address(shared), stages = ring + RING_BYTES;
    const uint32_t gate = stages + WARPGROUPS * (STAGED_BYTES + ADDED_BYTES);
    const uint32_t full = gate + GATE_BYTES, empty = full + 8 * RING, turns = empty + 8 * RING;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, WARPGROUPS);
        }
        for (int i = 0; i < WARPGROUPS; i++) barrier_init(turns + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const int deep = blockIdx.x % DEPTH;
#if OWN_GATE
    for (int i = threadIdx.x; i < GATE_BYTES / 16; i += THREADS) {
        const uint4 vector = __ldg(reinterpret_cast<const uint4*>(p.weights) + STEPS * (GROUP / 16) * 128 + i);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
            ::"r"(gate + i * 16), "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
#if MARGIN
    clear_margin<WIDTH>(p, deep * WIDTH, blockIdx.x / DEPTH, gridDim.x / DEPTH);
#endif
    __syncthreads();

    if (warp >= WARPGROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(SPARE_REGISTERS));
        if (warp == WARPGROUPS * 4 && lane == 0) {
            Row at = first_row(blockIdx.x / DEPTH, p.extent);
            const Row end = first_row(blockIdx.x / DEPTH + 1, p.extent);
            int slot = 0, parity = 1;
            for (int left = rows_between(at, end, p.extent); left > 0;) {
                const Tile tile = tile_of_row(at, p);
                const int count = min(p.extent.tiles - at.row, left);
                left -= count;
                advance(at, count, p.extent);
                // Memory ends with the row; what would stand behind it belongs to results of no use.
                const uint32_t bytes = min(TILE_READS, p.from.pitch - tile.column) * PIXEL_BYTES;
                const uint8_t* source = k_block_at(0, tile, p);
#pragma unroll 1
                for (int i = 0; i < count + SIDE - 1; i++) {
                    barrier_wait(empty + 8 * slot, parity);
                    barrier_expect(full + 8 * slot, GROUPS * bytes);
                    const uint32_t target = ring + slot * ROW_BYTES + (tile.column & 7) * PIXEL_BYTES;
#pragma unroll
                    for (int group = 0; group < GROUPS; group++)
                        bulk_copy(target + group * GROUP_BYTES, source + static_cast<size_t>(group) * p.from.group * 16,
                                  bytes, full + 8 * slot);
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
        const uint4* const packed = reinterpret_cast<const uint4*>(p.weights) +
            static_cast<size_t>(deep) * STEPS * (GROUP / 16) * 128 + threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < PRODUCTS; i++) {
            const uint4 vector = __ldg(packed + (i / EACH_TAP * (GROUP / 16) + i % EACH_TAP) * 128);
            weights[i][0] = vector.x;
            weights[i][1] = vector.y;
            weights[i][2] = vector.z;
            weights[i][3] = vector.w;
        }
        const uint32_t staged = stages + turn * STAGED_BYTES;
        const uint32_t beside = OWN_GATE ? WARPGROUPS * STAGED_BYTES : 0;  // from there to what is added
        // Where a lane's row of four matrices of 8 x 8 is staged.
        const uint32_t transposed = staged + staged_at(lane / 16 * 8 + lane % 8, warp % 4 * 2 + lane / 8 % 2);
        uint8_t* const out = static_cast<uint8_t*>(p.out);
        float sums[TILE_COLUMNS / 2];
        Row at = first_row(blockIdx.x / DEPTH, p.extent);
        int left = rows_between(at, first_row(blockIdx.x / DEPTH + 1, p.extent), p.extent) - turn;
        advance(at, turn, p.extent);
        int phase = turn == 0;
        // Rows above its first one.
        if (threadIdx.x % 128 == 0)
            for (int row = 0; row < at.input; row++) barrier_arrive(empty + 8 * row);
        for (; left > 0; left -= WARPGROUPS, phase ^= 1) {
            const int input = at.input;
            // All have read the staged row.
            asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
#if RESIDUAL
            stage_residual(staged + beside, tile_of_row(at, p), deep, p);
#endif
            const int shift = tile_of_row(at, p).column & 7;
            uint32_t rows[SIDE];
#pragma unroll
            for (int ky = 0; ky < SIDE; ky++) {
                const int slot = (input + ky) % RING;
                barrier_wait(full + 8 * slot, (input + ky) / RING & 1);
                rows[ky] = ring + slot * ROW_BYTES + shift * PIXEL_BYTES;
            }
            barrier_wait(turns + 8 * turn, phase);
            pin_accumulators(sums);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < PRODUCTS; i++) {
                const int k = i % EACH_TAP, tap = i / EACH_TAP % TAPS, group = i / EACH_TAP / TAPS;
                const uint32_t pixels = rows[tap / SIDE] + tap % SIDE * PIXEL_BYTES + group * GROUP_BYTES + k * 32;
                wgmma_of_registers(sums, weights[i], descriptor(pixels), i > 0);
                if (i == ALONE - 1) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (threadIdx.x % 128 == 0) barrier_arrive(turns + 8 * (turn == WARPGROUPS - 1 ? 0 : turn + 1));
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            pin_accumulators(sums);
            // Registers are short while the matrix units work: what follows is not computed before.
            asm volatile("" : "+r"(at.row), "+r"(at.strip));
            const Tile tile = tile_of_row(at, p);
            const int thread = thread_again();
            const float* const biases = p.epilogue + deep * WIDTH + thread % 128 / 32 * 16 + thread % 32 / 4;
            float bias[2], slope[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                bias[half] = load_float(biases + half * 8);
                slope[half] = PLANE_SLOPES ? load_float(biases + DEPTH * WIDTH + half * 8) : p.slope;
            }
#if RESIDUAL && !OWN_GATE
            asm volatile("cp.async.wait_all;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
#endif
#pragma unroll
            for (int j = 0; j < TILE_COLUMNS / 8; j += 2) {
                uint32_t words[4];
#if RESIDUAL && !OWN_GATE
                uint32_t added[4];
                load_staged(added, transposed + j * 8 * WIDTH * 2);
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float* const two = sums + (j + i / 2) * 4 + i % 2 * 2;
                    float v0 = activate(two[0] + bias[i % 2], slope[i % 2]);
                    float v1 = activate(two[1] + bias[i % 2], slope[i % 2]);
#if RESIDUAL && !OWN_GATE
                    const float2 more = unpack(added[i]);
                    v0 = with_residual(v0, more.x, p.factor);
                    v1 = with_residual(v1, more.y, p.factor);
#endif
                    words[i] = pack(v0, v1);
                }
                stage(transposed + j * 8 * WIDTH * 2, words);
            }
#if OWN_GATE
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
            pin_accumulators(sums);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < WIDTH / 16; k++)
                wgmma(sums, descriptor(gate + k * 32), descriptor(staged + k * 32), k > 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
            for (int half = 0; half < 2; half++) bias[half] = load_float(biases + 2 * WIDTH + half * 8);
            asm volatile("cp.async.wait_all;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            pin_accumulators(sums);
            // All have multiplied the staged row.
            asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
#pragma unroll
            for (int j = 0; j < TILE_COLUMNS / 8; j += 2) {
                uint32_t words[4], added[4];
                load_staged(words, transposed + j * 8 * WIDTH * 2);
                load_staged(added, transposed + beside + j * 8 * WIDTH * 2);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float* const two = sums + (j + i / 2) * 4 + i % 2 * 2;
                    const float2 made = unpack(words[i]), more = unpack(added[i]);
                    words[i] = pack((made.x + more.x) * GATE_ACTIVATE(two[0] + bias[i % 2]),
                                    (made.y + more.y) * GATE_ACTIVATE(two[1] + bias[i % 2]));
                }
                stage(transposed + j * 8 * WIDTH * 2, words);
            }
#endif
            asm volatile("bar.sync %0, 128;" ::"r"(turn + 1) : "memory");
            const int eight = thread % 8, plane = deep * WIDTH + eight * 8;
            uint32_t sizes = 0;
#pragma unroll STORED_AT_ONCE
            for (int i = 0; i < 8; i++) {
                const int pixel = staged_pixel(thread, i);
                const OutputCoordinate output = output_coordinate(tile.y, tile.x + pixel, p.from, p.extent);
                uint4 vector;
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
                    : "r"(staged + staged_at(pixel, eight)) : "memory");
                if (ZERO && is_zero(output, plane, p.valid)) vector = make_uint4(0, 0, 0, 0);
                if (output.is_stored) {
                    *reinterpret_cast<uint4*>(out + target_at(output, plane, p.to)) = vector;
                    // All values of a pixel that reads an infinite one are infinite or NaN, so two suffice.
                    const uint32_t pairs[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
                    for (int pair = 0; pair < (BOUNDED ? 4 : 1); pair++) add_sizes(sizes, pairs[pair], p.beyond);
                }
                if (STACK || i == 7) {
                    flag_picture(p.flags, picture_of(output, p.extent), sizes, p.beyond);
                    sizes = 0;
                }
            }
            advance(at, WARPGROUPS, p.extent);
            if (threadIdx.x % 128 == 0 && left > WARPGROUPS)
                // Rows up to the next that this warpgroup reads; some below a strip's last it never does.
                for (int row = input; row < at.input; row++) {
                    if (row >= input + SIDE) barrier_wait(full + 8 * (row % RING), row / RING & 1);
                    barrier_arrive(empty + 8 * (row % RING));
                }
        }
    }
}
