// Single pixels of maps of tensor.cuh, in vectors of 8 planes: for kernels that go through a map pixel by pixel.
// Pictures of a batch have a cell each, `down` and `along`; see STACK there.
#include "tensor.cuh"

// Bytes to 8 planes of a single pixel of a cell.
template <int GROUP_PLANES, int S2D_OF, int PLANES_EACH>
__device__ __forceinline__ size_t single_at(const Map& map, int row, int column, int plane, int down, int along) {
    if (S2D_OF > 1) {
        plane += (static_cast<unsigned>(row) % S2D_OF * S2D_OF + static_cast<unsigned>(column) % S2D_OF) * PLANES_EACH;
        row = static_cast<unsigned>(row) / S2D_OF;
        column = static_cast<unsigned>(column) / S2D_OF;
    }
    return vector_at<GROUP_PLANES>(map, row + down * map.rows, column + along * map.columns, plane);
}

// Bytes from a high term to its low one.
template <int STORED_PLANES, int GROUP_PLANES>
__device__ __forceinline__ size_t low_terms_of(const Map& map) {
    return static_cast<size_t>(STORED_PLANES / GROUP_PLANES) * map.group * 16;
}

// A term of a vector of a map.
template <int STORED_PLANES, int GROUP_PLANES>
__device__ __forceinline__ uint4 term_of(const uint8_t* from, const Map& map, int term) {
    return __ldg(reinterpret_cast<const uint4*>(from + term * low_terms_of<STORED_PLANES, GROUP_PLANES>(map)));
}

// Adds a vector of a map to 8 values, which are zero at first.
template <int STORED_PLANES, int GROUP_PLANES>
__device__ __forceinline__ void add(float (&values)[8], const uint8_t* from, const Map& map) {
#pragma unroll
    for (int term = TERMS - 1; term >= 0; term--) {
        const uint4 words = term_of<STORED_PLANES, GROUP_PLANES>(from, map, term);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = unpack((&words.x)[i]);
            values[i * 2] += two.x;
            values[i * 2 + 1] += two.y;
        }
    }
}

// Stores 8 values, `low` bytes apart their low terms, and looks at their sizes.
__device__ __forceinline__ void store_eight(uint8_t* target, size_t low, const float (&values)[8], uint32_t& sizes,
                                            int beyond) {
    uint32_t high[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high[i] = pack(values[i * 2], values[i * 2 + 1]);
        rest[i] = pack(low_term(values[i * 2]), low_term(values[i * 2 + 1]));
        add_sizes(sizes, high[i], beyond);
    }
    *reinterpret_cast<uint4*>(target) = make_uint4(high[0], high[1], high[2], high[3]);
    if (TERMS == 2) *reinterpret_cast<uint4*>(target + low) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
}
