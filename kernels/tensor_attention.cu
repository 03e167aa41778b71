// Attention in windows, on matrix units from sm_75 on, between maps of tensor.cuh, without logits in memory.
//
//     out(q) = sum over keys k of softmax(queries(q) . keys(k) * scale + bias(k - q)) values(k)
//
// A block takes HEADS_EACH heads of a window: their keys and values are in shared memory, CHUNK keys at a time, pixel
// by pixel in vectors of 8 planes as in the map. A head begins anywhere in a vector. So a product takes whole vectors
// around a head: planes of others meet queries of zero, and their results are not stored.
//
// Keys are numbered row by row of the window, in rows of KEY_ROW (a multiple of 8): 8 keys are side by side, and a
// lane's two biases are one pair of a table. The order depends on the window's place in the picture alone; keys that
// are not there have the lowest logit.
//
// A warp makes 16 queries of a head at a time: sums of STEP keys in registers, by mma m16n8k16, which begin at the
// biases (over the scale); the highest so far, and the results made smaller whenever a higher one comes; powers go on
// as the next product's operand, as they lie. One more product, with ones, is the sum of the powers, as they are
// rounded.
//
// Arguments: `Attention` below. Layouts
//   queries, keys, values, out   maps in groups of QUERY_GROUP, KEY_GROUP, VALUE_GROUP, OUT_GROUP planes
//   biases    float2 [HEADS][BIAS_PITCH], of [BIAS_ROWS][BIAS_COLUMNS] by how a key lies to a query, over the scale:
//             each with the next
// Macros
//   THREADS, BLOCKS (that a multiprocessor has room for), HEADS, HEADS_EACH, DEPTH (planes of a head), TILES (of a
//   block, of 16 queries), CHUNK, STEP (keys, multiples of 16; STEP divides CHUNK), KEY_ROWS, KEY_COLUMNS, KEY_ROW (of a window's keys), KEYS (numbers,
//   a multiple of STEP), WINDOW_ROWS, WINDOW_COLUMNS, OVERLAP, CELL (see waifu2x/networks/windows.py), SCALE (times
//   log2(e)); with biases BIAS_ROWS, BIAS_COLUMNS, BIAS_PITCH (pairs of a head, padded), BIAS_PAIRS (of a block's
//   table); QUERY_GROUP, QUERY_STORED, QUERY_PLANE (the first one), QUERY_FILLED (vectors of a pixel in shared memory),
//   and the same of keys and values; KEY_EIGHTS, VALUE_EIGHTS (vectors around a head, at most), EACH (planes of the
//   target's part, padded), SHARED, TERMS, SM75 (see mma.cuh); and those of the store, see tensor.cuh
// Bound: exponentials and issue; of short windows the memory.
#define STACK 1
#define D2S 1
#define ZERO 0
#include "mma.cuh"
#include "tensor_cells.cuh"
#include "window_copies.cuh"

#define WARPS (THREADS / 32)
#define ITEMS (HEADS_EACH * TILES)
#define K16 ((KEY_EIGHTS + 1) / 2)
#define VALUE_PAIRS ((VALUE_EIGHTS + 1) / 2)
// A power of two: its product with the scale is exact, and so is the difference of two of them.
#define LOWEST -0x1p100f
#define ONES 0x3c003c00u
static_assert(CHUNK % STEP == 0 && STEP % 16 == 0 && KEYS % STEP == 0, "chunks are of whole steps");
static_assert(KEY_ROW % 8 == 0, "8 keys are of one row");
// Pairs of planes are in one word of a map.
#define PAIRED ((DEPTH | QUERY_PLANE | KEY_PLANE | VALUE_PLANE) % 2 == 0)
#define WORDS (PAIRED && PART % 2 == 0)
#if defined(BIAS_ROWS)
#define BIASES 1
#else
#define BIASES 0
#define BIAS_PAIRS 0
#define BIAS_COLUMNS 0
#endif

// Numbers behind a row's keys are of the same lanes in every row: these begin at the lowest logit.
#define PADDED (KEY_ROW == 8 && KEY_COLUMNS < 8 && KEY_COLUMNS % 2 == 0 && KEY_ROWS * KEY_ROW == KEYS)
#define NONE_PAIRS (BIASES && PADDED ? (KEY_ROWS - 1) * BIAS_COLUMNS + 1 : 0)
#define NONE (BIAS_PAIRS - NONE_PAIRS)

struct Attention {
    const uint8_t* queries;
    const uint8_t* keys;
    const uint8_t* values;
    uint8_t* out;
    const float2* biases;
    uint32_t* flags;                        // a word for each picture, see `flag_picture`
    Map query_map, key_map, value_map, to;  // `top`, `left`: where the value's pixel (0, 0) is
    int first_top, first_left, down;        // of the first window, and how many there are below one another
    int rows, columns;                      // of the queries' value
    int key_rows, key_columns;
    int filled_rows, filled_columns;        // the queries' as it is when filled up
    int across;                             // pictures side by side
    int beyond;
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

// The 16 queries of a head of a block that a warp makes.
struct Item {
    int head, tile;
    bool is_any;

    __device__ __forceinline__ explicit Item(int number)
        : head(number / TILES), tile(number % TILES), is_any(number < ITEMS) {}
};

// A query of a window.
struct Query {
    int y, x, row, column;  // in the window, and of the picture
    bool is_inside;

    __device__ __forceinline__ Query(const Attention& p, int number, int top, int left) {
        y = number / WINDOW_COLUMNS;
        x = number % WINDOW_COLUMNS;
        row = top + y;
        column = left + x;
        is_inside = row >= 0 && row < p.rows && column >= 0 && column < p.columns;
    }
};

// Blocks: (windows of a row, parts of heads * parts of queries, windows below one another * pictures).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
tensor_attention(const __grid_constant__ Attention p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    // [term]: [query][vector], [key][vector], twice; [pair]; [8 keys]. Results take the place of their queries.
    uint4* const near_queries = reinterpret_cast<uint4*>(shared);
    uint4* const near_keys = near_queries + QUERY_VECTORS;
    uint4* const near_values = near_keys + KEY_VECTORS;
    float2* const biases = reinterpret_cast<float2*>(near_queries + TERMS * VECTORS);
    uint8_t* const present = reinterpret_cast<uint8_t*>(biases + BIAS_PAIRS);
    const int picture = blockIdx.z / p.down, first_head = blockIdx.y / PARTS * HEADS_EACH;
    const Cell cell = {picture / p.across, picture % p.across};
    const int top = p.first_top + static_cast<int>(blockIdx.z) % p.down * WINDOW_ROWS;
    const int left = p.first_left + static_cast<int>(blockIdx.x) * WINDOW_COLUMNS;
    const int first_row = (max(top, 0) - OVERLAP) / CELL, first_column = (max(left, 0) - OVERLAP) / CELL;
    const int height = (min(top + WINDOW_ROWS, p.filled_rows) + OVERLAP) / CELL - first_row;
    const int width = (min(left + WINDOW_COLUMNS, p.filled_columns) + OVERLAP) / CELL - first_column;
    // The place of the window's first key, also where it is beyond the map.
    const int above = (top - OVERLAP) / CELL, before = (left - OVERLAP) / CELL;
    const bool is_cut = height * width != (PADDED ? KEY_ROWS * KEY_COLUMNS : KEYS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int first_key = KEY_PLANE + first_head * DEPTH, first_value = VALUE_PLANE + first_head * DEPTH;
    uint32_t sizes = 0;

    const int first_query = QUERY_PLANE + first_head * DEPTH;
    // Queries of the block: numbers in the window, in shared memory from the first one on.
    const int first_number = static_cast<int>(blockIdx.y) % PARTS * TILES * 16;
    const int numbers = min(QUERIES - first_number, TILES * 16);
    const Columns<QUERY_GROUP, QUERY_STORED, QUERY_FILLED> query_columns(p.queries, p.query_map, first_query);
#pragma unroll 1
    for (int number = threadIdx.x / LANES; number < TILES * 16; number += AT_ONCE) {
        const Query query(p, first_number + number, top, left);
        query_columns.copy(near_queries + number * QUERY_PITCH, p.query_map,
                           MapPixel<QUERY_GROUP>(p.query_map, query.row, query.column, cell),
                           query.is_inside && number < numbers);
    }
#if BIASES
    const uint8_t* const table = reinterpret_cast<const uint8_t*>(p.biases + first_head * BIAS_PITCH);
#pragma unroll 1
    for (int i = threadIdx.x; i < HEADS_EACH * BIAS_PITCH / 2; i += THREADS)
        copy16(reinterpret_cast<uint8_t*>(biases) + i * 16, table + i * 16);
    for (int i = threadIdx.x; i < NONE_PAIRS; i += THREADS) biases[NONE + i] = make_float2(LOWEST, LOWEST);
#endif
    const bool is_none = PADDED && q * 2 >= KEY_COLUMNS;

#pragma unroll 1
    for (int round = 0; round < (ITEMS + WARPS - 1) / WARPS; round++) {
        const Item item(round * WARPS + warp);
        const int head = item.head;
        // Planes from the first vector on of keys, and of values, to the head's first.
        const int key_offset = (first_key + head * DEPTH) % 8, value_offset = (first_value + head * DEPTH) % 8;
        const int key_vector = (first_key % 8 + head * DEPTH) / 8, value_vector = (first_value % 8 + head * DEPTH) / 8;
        // The word of the first one's plane q * 2 of the first vector around the head.
        const int number = item.tile * 16 + g, plane = q * 2 - key_offset;
        uint16_t* const near = reinterpret_cast<uint16_t*>(near_queries + number * QUERY_PITCH) + first_query % 8 +
                               head * DEPTH;
        uint32_t queries[TERMS][K16][4] = {};
        int own[2] = {};
#if BIASES
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Query query(p, first_number + number + half * 8, top, left);
            if (item.is_any && number + half * 8 < numbers)
                own[half] = (WINDOW_ROWS / CELL - 1 - query.y / CELL) * BIAS_COLUMNS + WINDOW_COLUMNS / CELL - 1 -
                            query.x / CELL + head * BIAS_PITCH + q * 2;
            if (is_none) own[half] = NONE;
        }
#endif
        float made[VALUE_PAIRS * 2][4] = {}, total[4] = {};
        float highest[2] = {LOWEST, LOWEST};

#pragma unroll 1
        for (int chunk = 0; chunk < KEYS; chunk += CHUNK) {
            // Keys that are copied once stay for all rounds.
            if (KEYS > CHUNK || round == 0) {
                if (KEYS > CHUNK) __syncthreads();
                for (int i = threadIdx.x; is_cut && i < CHUNK / 8; i += THREADS) {
                    const int number = chunk + i * 8, y = above + number / KEY_ROW - first_row;
                    const int x = before + number % KEY_ROW - first_column;
                    // A row's keys that exist, [begin, end).
                    const int begin = max(-x, 0), end = min(min(width - x, KEY_COLUMNS - number % KEY_ROW), 8);
                    const bool is_row = y >= 0 && y < height && number < KEY_ROWS * KEY_ROW && begin < end;
                    present[i] = is_row ? 0xff << begin & 0xff >> (8 - end) : 0;
                }
                const Columns<KEY_GROUP, KEY_STORED, KEY_FILLED> key_columns(p.keys, p.key_map, first_key);
                const Columns<VALUE_GROUP, VALUE_STORED, VALUE_FILLED> value_columns(p.values, p.value_map,
                                                                                     first_value);
#pragma unroll 1
                for (int at = threadIdx.x / LANES; at < CHUNK; at += AT_ONCE) {
                    const int number = chunk + at;
                    const int y = above + number / KEY_ROW, x = before + number % KEY_ROW;
                    const bool is_key = number < KEY_ROWS * KEY_ROW && number % KEY_ROW < KEY_COLUMNS && y >= 0 &&
                                        y < p.key_rows && x >= 0 && x < p.key_columns;
                    key_columns.copy(near_keys + at * KEY_PITCH, p.key_map,
                                     MapPixel<KEY_GROUP>(p.key_map, y, x, cell), is_key);
                    value_columns.copy(near_values + at * VALUE_PITCH, p.value_map,
                                       MapPixel<VALUE_GROUP>(p.value_map, y, x, cell), is_key);
                }
                commit();
                wait<0>();
                if (round == 0 && chunk == 0)
#pragma unroll 1
                    for (int number = threadIdx.x / LANES; number < TILES * 16; number += AT_ONCE)
                        look_at<QUERY_FILLED>(near_queries + number * QUERY_PITCH, sizes, p.beyond);
#pragma unroll 1
                for (int at = threadIdx.x / LANES; at < CHUNK; at += AT_ONCE) {
                    look_at<KEY_FILLED>(near_keys + at * KEY_PITCH, sizes, p.beyond);
                    look_at<VALUE_FILLED>(near_values + at * VALUE_PITCH, sizes, p.beyond);
                }
                __syncthreads();
            }
            if (chunk == 0 && item.is_any) {
#pragma unroll
                for (int i = 0; i < KEY_EIGHTS * 2; i++)
#pragma unroll
                    for (int k = 0; k < (PAIRED ? 1 : 2); k++) {
                        if (plane + k + i / 2 * 8 < 0 || plane + k + i / 2 * 8 >= DEPTH) continue;
                        const uint16_t* const from = near + i % 2 * 8 * QUERY_PITCH * 8 + plane + k + i / 2 * 8;
#pragma unroll
                        for (int term = 0; term < TERMS; term++) {
                            uint32_t& word = queries[term][i / 4][i % 4];
                            if (PAIRED) word = *reinterpret_cast<const uint32_t*>(from + term * VECTORS * 8);
                            else word |= static_cast<uint32_t>(from[term * VECTORS * 8]) << 16 * k;
                        }
                    }
            }
            const int end = item.is_any ? CHUNK : 0;
            const uint32_t keys_at =
                shared_address(near_keys + (lane / 16 * 8 + lane % 8) * KEY_PITCH + key_vector + lane / 8 % 2);
            const uint32_t values_at = shared_address(near_values + lane % 16 * VALUE_PITCH + value_vector + lane / 16);
#pragma unroll 1
            for (int begin = 0; begin < end; begin += STEP) {
                float logits[STEP / 8][4];
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    const int number = chunk + begin + n * 8;
                    [[maybe_unused]] const int at = number / KEY_ROW * BIAS_COLUMNS + number % KEY_ROW;
#pragma unroll
                    for (int half = 0; half < 2; half++) {
#if BIASES
                        const float2 bias = biases[own[half] + at];
#else
                        const float2 bias = is_none ? make_float2(LOWEST, LOWEST) : make_float2(0.0f, 0.0f);
#endif
                        logits[n][half * 2] = bias.x;
                        logits[n][half * 2 + 1] = bias.y;
                    }
                }
                // Products of low terms come first: the unit cuts sums off at 24 bits.
#pragma unroll
                for (int product = TERMS == 2 ? 0 : 2; product < 3; product++)
#pragma unroll
                    for (int k16 = 0; k16 < K16; k16++) {
                        // The last planes are of some heads alone.
                        if (k16 * 16 >= DEPTH && key_offset + DEPTH <= k16 * 16) continue;
#pragma unroll
                        for (int n = 0; n < STEP / 16; n++) {
                            uint32_t keys[4];
                            const int at = (product == 1 ? VECTORS : 0) + (begin + n * 16) * KEY_PITCH + k16 * 2;
                            load_matrices(keys, keys_at + at * 16);
                            mma(logits[n * 2], queries[product == 0 ? TERMS - 1 : 0][k16], keys[0], keys[1]);
                            mma(logits[n * 2 + 1], queries[product == 0 ? TERMS - 1 : 0][k16], keys[2], keys[3]);
                        }
                    }
                if (is_cut) {
#pragma unroll
                    for (int n = 0; n < STEP / 8; n++) {
                        const uint32_t there = static_cast<uint32_t>(present[begin / 8 + n]) >> q * 2;
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            if (!(there >> i % 2 & 1)) logits[n][i] = LOWEST;
                    }
                }
                float scaled[2];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float most = highest[half];
#pragma unroll
                    for (int n = 0; n < STEP / 8; n++)
                        most = fmaxf(most, fmaxf(logits[n][half * 2], logits[n][half * 2 + 1]));
                    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                    scaled[half] = most * SCALE;
#if KEYS > STEP
                    const float smaller = power_of_two(fmaf(highest[half], SCALE, -scaled[half]));
#pragma unroll
                    for (int i = half * 2; i < half * 2 + 2; i++) {
                        total[i] *= smaller;
#pragma unroll
                        for (int n = 0; n < VALUE_EIGHTS; n++) made[n][i] *= smaller;
                    }
#endif
                    highest[half] = most;
                }
#pragma unroll
                for (int n = 0; n < STEP / 16; n++) {
                    uint32_t powers[TERMS][4];
#pragma unroll
                    for (int word = 0; word < 4; word++) {
                        float* const two = logits[n * 2 + word / 2] + word % 2 * 2;
                        const float first = power_of_two(fmaf(two[0], SCALE, -scaled[word % 2]));
                        const float second = power_of_two(fmaf(two[1], SCALE, -scaled[word % 2]));
                        powers[0][word] = pack(first, second);
                        if (TERMS == 2) powers[TERMS - 1][word] = pack(low_term(first), low_term(second));
                    }
#pragma unroll
                    for (int term = TERMS - 1; term >= 0; term--) mma(total, powers[term], ONES, ONES);
#pragma unroll
                    for (int product = TERMS == 2 ? 0 : 2; product < 3; product++)
#pragma unroll
                        for (int pair = 0; pair < VALUE_PAIRS; pair++) {
                            if (pair * 16 >= DEPTH && value_offset + DEPTH <= pair * 16) continue;
                            uint32_t values[4];
                            const int at = (product == 1 ? VECTORS : 0) + (begin + n * 16) * VALUE_PITCH + pair * 2;
                            load_transposed(values, values_at + at * 16);
                            mma(made[pair * 2], powers[product == 0 ? TERMS - 1 : 0], values[0], values[1]);
                            if (pair * 2 + 1 < VALUE_EIGHTS)
                                mma(made[pair * 2 + 1], powers[product == 0 ? TERMS - 1 : 0], values[2], values[3]);
                        }
                }
            }
        }
        if (!item.is_any) continue;
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (number + half * 8 >= numbers) continue;
            const float share = __fdividef(1.0f, total[half * 2]);
#pragma unroll
            for (int n = 0; n < VALUE_EIGHTS; n++) {
                const float first = made[n][half * 2] * share, second = made[n][half * 2 + 1] * share;
                const uint32_t high = pack(first, second), low = pack(low_term(first), low_term(second));
#pragma unroll
                for (int k = 0; k < (PAIRED ? 1 : 2); k++) {
                    const int own_plane = q * 2 - value_offset + k + n * 8;
                    if (own_plane < 0 || own_plane >= DEPTH) continue;
                    uint16_t* const to = near + half * 8 * QUERY_PITCH * 8 + own_plane;
#pragma unroll
                    for (int term = 0; term < TERMS; term++) {
                        const uint32_t pair = term ? low : high;
                        if (PAIRED) *reinterpret_cast<uint32_t*>(to + term * VECTORS * 8) = pair;
                        else to[term * VECTORS * 8] = static_cast<uint16_t>(pair >> 16 * k);
                    }
                }
            }
        }
    }
    __syncthreads();

    // Planes of the target: from the block's first one, which lie at `first_query % 8` of a pixel, to before `end`;
    // the last ones are zeros.
    const int begin = PART + first_head * DEPTH, is_last = first_head + HEADS_EACH == HEADS;
    const int own = begin + TAKEN, end = is_last ? PART + EACH : own;
#pragma unroll 1
    for (int number = threadIdx.x / LANES; number < numbers; number += AT_ONCE) {
        const Query query(p, first_number + number, top, left);
        const int row = query.row + p.to.top, column = query.column + p.to.left;
        // Whole windows may reach beyond the map in memory.
        if (row < 0 || row >= p.to.rows || column < 0 || column >= p.to.columns) continue;
        const MapPixel<OUT_GROUP> pixel(p.to, query.row, query.column, cell);
        const uint16_t* const near = reinterpret_cast<const uint16_t*>(near_queries + number * QUERY_PITCH) +
                                     first_query % 8 - begin;
        for (int vector = begin / 8 + threadIdx.x % LANES; vector * 8 < end; vector += LANES) {
            uint8_t* const target = p.out + pixel.vector(p.to, vector);
            const bool is_whole = vector * 8 >= begin && vector * 8 + 8 <= own && query.is_inside;
#pragma unroll
            for (int term = 0; term < TERMS; term++) {
                const uint16_t* const from = near + term * VECTORS * 8 + vector * 8;
                uint8_t* const there = target + term * low_terms_of<OUT_STORED, OUT_GROUP>(p.to);
                uint4 words;
                if (is_whole && (QUERY_PLANE - PART) % 8 == 0) words = *reinterpret_cast<const uint4*>(from);
                else
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int plane = vector * 8 + i * 2;
                        const bool is_own[2] = {query.is_inside && plane >= begin && plane < own,
                                                query.is_inside && plane + 1 >= begin && plane + 1 < own};
                        uint32_t& word = (&words.x)[i];
                        if (WORDS) word = is_own[0] ? *reinterpret_cast<const uint32_t*>(from + i * 2) : 0;
                        else word = (is_own[0] ? from[i * 2] : 0) | (is_own[1] ? from[i * 2 + 1] : 0) << 16;
                    }
                if (term == 0)
#pragma unroll
                    for (int i = 0; i < 4; i++) add_sizes(sizes, (&words.x)[i], p.beyond);
                if (vector * 8 >= begin && vector * 8 + 8 <= end) {
                    *reinterpret_cast<uint4*>(there) = words;
                    continue;
                }
#pragma unroll
                for (int i = 0; i < 8; i += WORDS ? 2 : 1) {
                    if (vector * 8 + i < begin || vector * 8 + i >= end) continue;
                    const uint32_t word = (&words.x)[i / 2] >> i % 2 * 16;
                    if (WORDS) reinterpret_cast<uint32_t*>(there)[i / 2] = word;
                    else reinterpret_cast<uint16_t*>(there)[i] = static_cast<uint16_t>(word);
                }
            }
        }
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
