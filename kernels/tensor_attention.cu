// Attention in windows, on matrix units from sm_75 on, between maps of tensor.cuh, without logits in memory.
//
//     out(q) = sum over keys k of softmax(queries(q) . keys(k) * scale + bias(k - q)) values(k)
//
// A block takes HEADS_EACH heads of a window: their keys and values are in shared memory, CHUNK keys at a time. A warp
// makes 16 queries of a head at a time: logits of STEP keys in registers, by mma m16n8k16; the highest so far, and the
// results made smaller whenever a higher one comes; powers go on as the next product's operand, as they lie. Behind
// the planes of a value stands a one: the sum of the powers, as they are rounded, is one more plane of the result. The
// order depends on the window's place in the picture alone.
//
// Arguments: `Attention` below. Layouts
//   queries, keys, values, out   maps in groups of QUERY_GROUP, KEY_GROUP, VALUE_GROUP, OUT_GROUP planes
//   biases    float [HEADS][BIAS_ROWS][BIAS_COLUMNS], by how a key lies to a query, times log2(e)
// Macros
//   THREADS, BLOCKS (that a multiprocessor has room for), HEADS, HEADS_EACH, DEPTH (planes of a head), CHUNK, STEP (keys, multiples of 16; STEP divides CHUNK),
//   MOST_KEYS (of a window), WINDOW_ROWS, WINDOW_COLUMNS, OVERLAP, CELL (see waifu2x/networks/windows.py), SCALE
//   (times log2(e)), with biases BIAS_ROWS, BIAS_COLUMNS; QUERY_GROUP, QUERY_STORED, QUERY_PLANE (the first one), and
//   the same of keys and values; EACH (planes of the target's part, padded), SHARED, TERMS, SM75 (see mma.cuh); and
//   those of the store, see tensor.cuh
// Bound: exponentials of short heads, else the matrix units.
#define STACK 1
#define D2S 1
#define ZERO 0
#include "mma.cuh"
#include "tensor_cells.cuh"

#define WARPS (THREADS / 32)
#define QUERIES (WINDOW_ROWS * WINDOW_COLUMNS)
#define QUERY_TILES ((QUERIES + 15) / 16)
#define ITEMS (HEADS_EACH * QUERY_TILES)
#define K16 ((DEPTH + 15) / 16)
// Blocks of 8 planes of a value and of its one, in pairs.
#define VALUE_PAIRS ((DEPTH + 1 + 15) / 16)
// Halves from a key to the next: rows of 8 planes begin in different banks.
#define KEY_PITCH (K16 * 16 + 8)
#define VALUE_PITCH (VALUE_PAIRS * 16 + 8)
#define KEY_HALVES (HEADS_EACH * CHUNK * KEY_PITCH)
#define VALUE_HALVES (HEADS_EACH * CHUNK * VALUE_PITCH)
#define TAKEN (HEADS_EACH * DEPTH)
#define LOWEST -3.0e38f
static_assert(CHUNK % STEP == 0 && STEP % 16 == 0, "chunks are of whole steps");
// Pairs of planes are in one word of a map and of shared memory.
#define PAIRED ((DEPTH | QUERY_PLANE | KEY_PLANE | VALUE_PLANE) % 2 == 0)
#if defined(BIAS_ROWS)
#define BIASES (BIAS_ROWS * BIAS_COLUMNS)
#else
#define BIASES 0
#endif

struct Attention {
    const uint8_t* queries;
    const uint8_t* keys;
    const uint8_t* values;
    uint8_t* out;
    const float* biases;
    uint32_t* flags;                        // a word for each picture, see `flag_picture`
    Map query_map, key_map, value_map, to;  // `top`, `left`: where the value's pixel (0, 0) is
    int first_top, first_left, down;        // of the first window, and how many there are below one another
    int rows, columns;                      // of the queries' value
    int key_rows, key_columns;
    int filled_rows, filled_columns;        // the queries' as it is when filled up
    int across;                             // pictures side by side
    int beyond;
};

struct Cell {
    int down, along;
};

__device__ __forceinline__ float power_of_two(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// Two planes of a pixel, from an even one on where they are PAIRED, of which `count` are wanted.
template <int GROUP_PLANES>
__device__ __forceinline__ uint32_t two_planes(const uint8_t* map, const Map& at, int row, int column, int plane,
                                               const Cell& cell, int count) {
    uint32_t pair = 0;
#pragma unroll
    for (int k = 0; k < (PAIRED ? 1 : 2); k++) {
        if (k >= count) continue;
        const uint8_t* const from = map + single_at<GROUP_PLANES, 1, 1>(at, row + at.top, column + at.left, plane + k,
                                                                        cell.down, cell.along) + (plane + k) % 8 * 2;
        if (PAIRED) pair = __ldg(reinterpret_cast<const uint32_t*>(from));
        else pair |= static_cast<uint32_t>(__ldg(reinterpret_cast<const uint16_t*>(from))) << 16 * k;
    }
    return pair;
}

// A pixel's 8 planes from `plane` on.
struct Eight {
    uint4 terms[TERMS];
};

// Zeros where there is no pixel, or none of the block's planes, which end at `end`.
template <int GROUP_PLANES, int STORED_PLANES>
__device__ __forceinline__ Eight load_eight(const uint8_t* map, const Map& at, bool inside, int row, int column,
                                            int plane, int end, const Cell& cell) {
    Eight eight = {};
    if (!inside || plane >= end) return eight;
    const uint8_t* const from =
        map + single_at<GROUP_PLANES, 1, 1>(at, row + at.top, column + at.left, plane, cell.down, cell.along);
#pragma unroll
    for (int term = 0; term < TERMS; term++) eight.terms[term] = term_of<STORED_PLANES, GROUP_PLANES>(from, at, term);
    return eight;
}

// Copies the block's planes, `first` and on, of a pixel's 8 planes from `plane` on, to rows of shared memory.
template <int PITCH>
__device__ __forceinline__ void place_eight(uint16_t* rows, const Eight& eight, int plane, int first, uint32_t& sizes,
                                            int beyond) {
#pragma unroll
    for (int term = 0; term < TERMS; term++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t word = (&eight.terms[term].x)[i];
            if (term == 0) add_sizes(sizes, word, beyond);
#pragma unroll
            for (int k = 0; k < (PAIRED ? 1 : 2); k++) {
                const int own = plane + i * 2 + k - first;
                if (own < 0 || own >= TAKEN) continue;
                uint16_t* const to = rows + (term * HEADS_EACH + own / DEPTH) * (CHUNK * PITCH) + own % DEPTH;
                if (PAIRED) *reinterpret_cast<uint32_t*>(to) = word;
                else *to = static_cast<uint16_t>(word >> 16 * k);
            }
        }
}

// Blocks: (windows of a row, parts of heads, windows below one another * pictures).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_attention(const __grid_constant__ Attention p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    // [term][head][key][plane], twice; [head][bias]; [key].
    uint16_t* const near_keys = reinterpret_cast<uint16_t*>(shared);
    uint16_t* const near_values = near_keys + TERMS * KEY_HALVES;
    float* const biases = reinterpret_cast<float*>(near_values + TERMS * VALUE_HALVES);
    int* const slots = reinterpret_cast<int*>(biases + (HEADS_EACH * BIASES + 3) / 4 * 4);
    const int picture = blockIdx.z / p.down, first_head = blockIdx.y * HEADS_EACH;
    const Cell cell = {picture / p.across, picture % p.across};
    const int top = p.first_top + static_cast<int>(blockIdx.z) % p.down * WINDOW_ROWS;
    const int left = p.first_left + static_cast<int>(blockIdx.x) * WINDOW_COLUMNS;
    const int first_row = (max(top, 0) - OVERLAP) / CELL, first_column = (max(left, 0) - OVERLAP) / CELL;
    const int height = (min(top + WINDOW_ROWS, p.filled_rows) + OVERLAP) / CELL - first_row;
    const int width = (min(left + WINDOW_COLUMNS, p.filled_columns) + OVERLAP) / CELL - first_column;
    const int count = height > 0 && width > 0 ? height * width : 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    uint32_t sizes = 0;

    // Padding is zero, but for the ones; no chunk writes it.
    for (int i = threadIdx.x; i < TERMS * (KEY_HALVES + VALUE_HALVES) / 8; i += THREADS)
        reinterpret_cast<uint4*>(shared)[i] = make_uint4(0, 0, 0, 0);
#if BIASES
    for (int i = threadIdx.x; i < HEADS_EACH * BIASES; i += THREADS)
        biases[i] = __ldg(p.biases + first_head * BIASES + i);
#endif
    __syncthreads();
    for (int i = threadIdx.x; i < HEADS_EACH * CHUNK; i += THREADS) near_values[i * VALUE_PITCH + DEPTH] = 0x3c00;

#pragma unroll 1
    for (int round = 0; round < (ITEMS + WARPS - 1) / WARPS; round++) {
        const int item = round * WARPS + warp, head = item / QUERY_TILES, tile = item % QUERY_TILES;
        const bool works = item < ITEMS;
        uint32_t queries[TERMS][K16][4];
        int own[2];
        bool inside[2];
        int rows[2], columns[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int number = tile * 16 + half * 8 + g, y = number / WINDOW_COLUMNS, x = number % WINDOW_COLUMNS;
            rows[half] = top + y;
            columns[half] = left + x;
            const bool is_query = works && number < QUERIES;
            inside[half] = is_query && rows[half] >= 0 && rows[half] < p.rows && columns[half] >= 0 &&
                           columns[half] < p.columns;
            own[half] = 0;
#if BIASES
            if (is_query)
                own[half] = (WINDOW_ROWS / CELL - 1 - y / CELL) * BIAS_COLUMNS + WINDOW_COLUMNS / CELL - 1 - x / CELL;
            if (works) own[half] += head * BIASES;
#endif
#pragma unroll
            for (int k16 = 0; k16 < K16; k16++)
#pragma unroll
                for (int eight = 0; eight < 2; eight++) {
                    const int plane = k16 * 16 + eight * 8 + q * 2;
                    const int first = QUERY_PLANE + (first_head + head) * DEPTH + plane;
#pragma unroll
                    for (int term = 0; term < TERMS; term++) {
                        uint32_t pair = 0;
                        if (inside[half] && plane < DEPTH)
                            pair = two_planes<QUERY_GROUP>(
                                p.queries + term * low_terms_of<QUERY_STORED, QUERY_GROUP>(p.query_map), p.query_map,
                                rows[half], columns[half], first, cell, DEPTH - plane);
                        if (term == 0) add_sizes(sizes, pair, p.beyond);
                        queries[term][k16][eight * 2 + half] = pair;
                    }
                }
        }
        float made[VALUE_PAIRS * 2][4] = {};
        float highest[2] = {LOWEST, LOWEST};

#pragma unroll 1
        for (int chunk = 0; chunk < MOST_KEYS; chunk += CHUNK) {
            // What is there once stays for all rounds.
            if (MOST_KEYS > CHUNK || round == 0) {
                __syncthreads();
                for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
                    const int key = chunk + i;
                    slots[i] = 0;
#if BIASES
                    if (key < count)
                        slots[i] = (first_row + key / width - (top - OVERLAP) / CELL) * BIAS_COLUMNS + first_column +
                                   key % width - (left - OVERLAP) / CELL;
#endif
                }
                constexpr int vectors = TAKEN / 8 + 2;
#if TERMS == 1
#pragma unroll 2
#else
#pragma unroll 1
#endif
                for (int i = threadIdx.x; i < CHUNK * vectors; i += THREADS) {
                    const int at = i / vectors, key = chunk + at;
                    int y = 0, x = 0;
                    if (key < count) {
                        y = first_row + key / width;
                        x = first_column + key % width;
                    }
                    const bool is_key = key < count && y >= 0 && y < p.key_rows && x >= 0 && x < p.key_columns;
                    const int first_key = KEY_PLANE + first_head * DEPTH, first_value = VALUE_PLANE + first_head * DEPTH;
                    const int key_plane = (first_key / 8 + i % vectors) * 8;
                    const int value_plane = (first_value / 8 + i % vectors) * 8;
                    // Both are on their way before either is waited for.
                    const Eight own_key = load_eight<KEY_GROUP, KEY_STORED>(
                        p.keys, p.key_map, is_key, y, x, key_plane, first_key + TAKEN, cell);
                    const Eight own_value = load_eight<VALUE_GROUP, VALUE_STORED>(
                        p.values, p.value_map, is_key, y, x, value_plane, first_value + TAKEN, cell);
                    place_eight<KEY_PITCH>(near_keys + at * KEY_PITCH, own_key, key_plane, first_key, sizes, p.beyond);
                    place_eight<VALUE_PITCH>(near_values + at * VALUE_PITCH, own_value, value_plane, first_value,
                                             sizes, p.beyond);
                }
                __syncthreads();
            }
            const int end = works ? min(count - chunk, CHUNK) : 0;
            const uint32_t keys_at = shared_address(near_keys + head * (CHUNK * KEY_PITCH));
            const uint32_t values_at = shared_address(near_values + head * (CHUNK * VALUE_PITCH));
#pragma unroll 1
            for (int begin = 0; begin < end; begin += STEP) {
                float logits[STEP / 8][4] = {};
                // Products of low terms come first: the unit cuts sums off at 24 bits.
#pragma unroll
                for (int product = TERMS == 2 ? 0 : 2; product < 3; product++)
#pragma unroll
                    for (int n = 0; n < STEP / 16; n++)
#pragma unroll
                        for (int k16 = 0; k16 < K16; k16++) {
                            uint32_t keys[4];
                            const int row = begin + n * 16 + lane / 16 * 8 + lane % 8;
                            const int at = (product == 1 ? KEY_HALVES : 0) + row * KEY_PITCH + k16 * 16 + lane / 8 % 2 * 8;
                            load_matrices(keys, keys_at + at * 2);
                            mma(logits[n * 2], queries[product == 0 ? TERMS - 1 : 0][k16], keys[0], keys[1]);
                            mma(logits[n * 2 + 1], queries[product == 0 ? TERMS - 1 : 0][k16], keys[2], keys[3]);
                        }
                const bool is_cut = begin + STEP > end;
                float above[2] = {highest[0], highest[1]};
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
#if BIASES
                    const int2 slot = *reinterpret_cast<const int2*>(slots + begin + n * 8 + q * 2);
#endif
#pragma unroll
                    for (int i = 0; i < 4; i++) {
#if BIASES
                        logits[n][i] = fmaf(logits[n][i], SCALE, biases[own[i / 2] + (i % 2 ? slot.y : slot.x)]);
#else
                        logits[n][i] *= SCALE;
#endif
                        if (is_cut && begin + n * 8 + q * 2 + i % 2 >= end) logits[n][i] = LOWEST;
                        above[i / 2] = fmaxf(above[i / 2], logits[n][i]);
                    }
                }
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    above[half] = fmaxf(above[half], __shfl_xor_sync(0xffffffffu, above[half], 1));
                    above[half] = fmaxf(above[half], __shfl_xor_sync(0xffffffffu, above[half], 2));
                    const float smaller = power_of_two(highest[half] - above[half]);
                    highest[half] = above[half];
#pragma unroll
                    for (int n = 0; n < VALUE_PAIRS * 2; n++) {
                        made[n][half * 2] *= smaller;
                        made[n][half * 2 + 1] *= smaller;
                    }
                }
#pragma unroll
                for (int n = 0; n < STEP / 16; n++) {
                    uint32_t powers[TERMS][4];
#pragma unroll
                    for (int word = 0; word < 4; word++) {
                        float* const two = logits[n * 2 + word / 2] + word % 2 * 2;
                        const float first = power_of_two(two[0] - highest[word % 2]);
                        const float second = power_of_two(two[1] - highest[word % 2]);
                        powers[0][word] = pack(first, second);
                        if (TERMS == 2) powers[TERMS - 1][word] = pack(low_term(first), low_term(second));
                    }
#pragma unroll
                    for (int product = TERMS == 2 ? 0 : 2; product < 3; product++)
#pragma unroll
                        for (int pair = 0; pair < VALUE_PAIRS; pair++) {
                            uint32_t values[4];
                            const int row = begin + n * 16 + lane % 16;
                            const int at = (product == 1 ? VALUE_HALVES : 0) + row * VALUE_PITCH + pair * 16 + lane / 16 * 8;
                            load_transposed(values, values_at + at * 2);
                            mma(made[pair * 2], powers[product == 0 ? TERMS - 1 : 0], values[0], values[1]);
                            mma(made[pair * 2 + 1], powers[product == 0 ? TERMS - 1 : 0], values[2], values[3]);
                        }
                }
            }
        }
        if (!works) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = __shfl_sync(0xffffffffu, made[DEPTH / 8][half * 2 + DEPTH % 2], lane / 4 * 4 + DEPTH % 8 / 2);
            const int row = rows[half] + p.to.top, column = columns[half] + p.to.left;
            // Whole windows may reach beyond what is in memory.
            const bool is_stored = tile * 16 + half * 8 + g < QUERIES && row >= 0 && row < p.to.rows && column >= 0 &&
                                   column < p.to.columns;
            const float share = 1.0f / sum;
            const bool is_last = first_head + head == HEADS - 1;
#pragma unroll
            for (int n = 0; n < (DEPTH + 7) / 8; n++) {
                const int plane = n * 8 + q * 2;
                const float first = inside[half] ? made[n][half * 2] * share : 0.0f;
                const float second = inside[half] ? made[n][half * 2 + 1] * share : 0.0f;
                if (!is_stored || plane >= DEPTH) continue;
                const uint32_t high = pack(first, plane + 1 < DEPTH ? second : 0.0f);
                const uint32_t low = pack(low_term(first), low_term(second));
                add_sizes(sizes, high, p.beyond);
#pragma unroll
                for (int k = 0; k < (DEPTH % 2 ? 2 : 1); k++) {
                    if (plane + k >= DEPTH) continue;
                    const int to = PART + (first_head + head) * DEPTH + plane + k;
                    uint8_t* const target = p.out +
                        single_at<OUT_GROUP, 1, 1>(p.to, row, column, to, cell.down, cell.along) + to % 8 * 2;
#pragma unroll
                    for (int term = 0; term < TERMS; term++) {
                        uint8_t* const there = target + term * low_terms_of<OUT_STORED, OUT_GROUP>(p.to);
                        const uint32_t pair = term ? low : high;
                        if (DEPTH % 2) *reinterpret_cast<uint16_t*>(there) = static_cast<uint16_t>(pair >> 16 * k);
                        else *reinterpret_cast<uint32_t*>(there) = pair;
                    }
                }
            }
            // Behind the last plane there are zeros.
            if (is_last && is_stored)
                for (int plane = HEADS * DEPTH + q; plane < EACH; plane += 4) {
                    uint8_t* const target = p.out +
                        single_at<OUT_GROUP, 1, 1>(p.to, row, column, PART + plane, cell.down, cell.along) +
                        (PART + plane) % 8 * 2;
#pragma unroll
                    for (int term = 0; term < TERMS; term++)
                        *reinterpret_cast<uint16_t*>(target + term * low_terms_of<OUT_STORED, OUT_GROUP>(p.to)) = 0;
                }
        }
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
