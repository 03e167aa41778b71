// Pixels of a window of queries, keys and values, copied to shared memory in vectors of 8 planes: for
// tensor_attention.cu, which says what the macros are.
#define QUERIES (WINDOW_ROWS * WINDOW_COLUMNS)
#define PARTS ((QUERIES + TILES * 16 - 1) / (TILES * 16))
// Vectors of all keys of a term.
#define KEY_VECTORS (CHUNK * KEY_PITCH)
#define VALUE_VECTORS (CHUNK * VALUE_PITCH)
#define QUERY_VECTORS (TILES * 16 * QUERY_PITCH)
#define VECTORS (QUERY_VECTORS + KEY_VECTORS + VALUE_VECTORS)
// Vectors from a pixel to the next: an odd number, so that eight pixels are in different banks.
#define QUERY_PITCH (QUERY_FILLED | 1)
#define KEY_PITCH (KEY_FILLED | 1)
#define VALUE_PITCH (VALUE_FILLED | 1)
// Threads that copy a pixel, and pixels that are copied at once.
#define FILL(vectors) (QUERY_FILLED > vectors || KEY_FILLED > vectors || VALUE_FILLED > vectors)
#define LANES (FILL(4) ? 8 : FILL(2) ? 4 : 2)
#define AT_ONCE (THREADS / LANES)
#define TAKEN (HEADS_EACH * DEPTH)

struct Cell {
    int down, along;
};

// Where a pixel of a map is.
template <int GROUP_PLANES>
struct MapPixel {
    size_t at;
    uint32_t phase;

    __device__ __forceinline__ MapPixel(const Map& map, int row, int column, const Cell& cell) {
        row += map.top + cell.down * map.rows;
        column += map.left + cell.along * map.columns;
        at = static_cast<size_t>(static_cast<uint32_t>(row * map.pitch + column)) * (GROUP_PLANES * 2);
        phase = swizzle_phase<GROUP_PLANES>(column);
    }

    // Bytes to a vector of 8 planes.
    __device__ __forceinline__ size_t vector(const Map& map, uint32_t number) const {
        return at + static_cast<size_t>(number / (GROUP_PLANES / 8)) * static_cast<uint32_t>(map.group) * 16 +
               (number % (GROUP_PLANES / 8) ^ phase) * 16;
    }
};

// The vectors of a map's pixels that a thread copies: FILLED from the one of plane `first` on, every LANES-th of them.
template <int GROUP_PLANES, int STORED_PLANES, int FILLED>
struct Columns {
    enum { COUNT = (FILLED + LANES - 1) / LANES };
    const uint8_t* from[COUNT];
    uint32_t places[COUNT];
    bool is_any[COUNT];

    __device__ __forceinline__ Columns(const uint8_t* map, const Map& at, int first) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const uint32_t number = first / 8 + threadIdx.x % LANES + i * LANES;
            from[i] = map + static_cast<size_t>(number / (GROUP_PLANES / 8)) * static_cast<uint32_t>(at.group) * 16;
            places[i] = number % (GROUP_PLANES / 8);
            is_any[i] = static_cast<int>(number * 8) < first + TAKEN;
        }
    }

    // Zeros where there is no pixel, or no plane of the block's heads.
    __device__ __forceinline__ void copy(uint4* to, const Map& at, const MapPixel<GROUP_PLANES>& pixel,
                                         bool is_there) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int vector = threadIdx.x % LANES + i * LANES;
            if (vector >= FILLED) continue;
            const uint8_t* const own = from[i] + pixel.at + (places[i] ^ pixel.phase) * 16;
#pragma unroll
            for (int term = 0; term < TERMS; term++)
                copy16_or_zeros(reinterpret_cast<uint8_t*>(to + term * VECTORS + vector),
                                own + term * low_terms_of<STORED_PLANES, GROUP_PLANES>(at), is_there && is_any[i]);
        }
    }
};

// The largest of what this thread has copied of a pixel.
template <int FILLED>
__device__ __forceinline__ void look_at(const uint4* pixel, uint32_t& sizes, int beyond) {
#pragma unroll
    for (int vector = threadIdx.x % LANES; vector < FILLED; vector += LANES) {
        const uint4 words = pixel[vector];
        add_sizes(sizes, words.x, beyond);
        add_sizes(sizes, words.y, beyond);
        add_sizes(sizes, words.z, beyond);
        add_sizes(sizes, words.w, beyond);
    }
}
