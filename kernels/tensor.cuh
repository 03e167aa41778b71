// The common part of the kernels of tensor units: the layout of maps, rounding, where results belong, and
// the epilogue of all convolutions.
//
// Layout of a map
//   [term][group][row][column][plane], 16-bit floats, in groups of GROUP planes (64, or 32 for maps of
//   few planes). TERMS = 2 stores each value as two 16-bit terms, high and low, whose sum has 22 bits.
//   A pixel of a group is thus 128 or 64 contiguous bytes. Its vectors of 16 bytes stand in the order
//   that shared memory wants, so that a row of a tile is one contiguous copy and no access meets a bank
//   conflict: vector v of column x stands at v ^ swizzle_phase(x). It is the order in which the matrix
//   descriptors of sm_90 read ("swizzle"), 128 or 64 bytes wide. Planes are padded with zeros to
//   multiples of 32; after space-to-depth by S2D, those of each of the S2D x S2D pixels that became
//   planes are.
//
// Macros: TERMS, STACK, and of the including file
//   OUT_GROUP, OUT_STORED, EACH, PART, D2S, S2D, ZERO, RESIDUAL with RESIDUAL_GROUP, RESIDUAL_STORED,
//   RESIDUAL_PART: of the store into a map, see `target_at` and `residual_at`
//   ACTIVATE(x, slope), PLANE_SLOPES (0 or 1: the epilogue has a slope for each plane), JOIN(x, residual) if the
//   residual is not added, SCALED_RESIDUAL (0 or 1: planes of the residual are scaled, and rounded to 16 bits)
//   IN_PIXEL, BORDER (see `inside`): of pixels that are read; PIXEL: of those that are written; RESIDUAL_PIXEL
//   with RESIDUAL_ENLARGE: of the picture's that are added, `top` and `left` in what is enlarged, and
//   RESIDUAL_BLEND: what of them comes from the next pixel in each direction (float; RESIDUAL_ENLARGE 2)
//   BOUNDED (0 or 1): of convolutions, see `is_infinite`
//   MARGIN (0 or 1): of convolutions in tiles, see `clear_margin`
//   STORED_GROUPS and what stands behind it: of a convolution in tiles
//   STACK = 1: pictures of one size are computed side by side, as if they were one. Each has a cell in
//   every map, as large as its part of that map, and results that would mix two cells are not stored.
#include "integers.cuh"

template <int PLANES_EACH>
__device__ __forceinline__ int swizzle_phase(int column) {
    return PLANES_EACH == 64 ? column & 7 : column >> 1 & 3;
}

// Conversions as single instructions, without cuda_fp16.h: NVRTC comes without headers.
__device__ __forceinline__ uint16_t round_to_half(float value) {
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ __forceinline__ float widen(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// Two values rounded to 16 bits, the first one in the low half.
__device__ __forceinline__ uint32_t pack(float a, float b) {
    uint32_t pair;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
#else
    asm("mov.b32 %0, {%1, %2};" : "=r"(pair) : "h"(round_to_half(a)), "h"(round_to_half(b)));
#endif
    return pair;
}

__device__ __forceinline__ float2 unpack(uint32_t pair) {
    uint16_t low, high;
    asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(pair));
    return make_float2(widen(low), widen(high));
}

// Values that 16 bits cannot hold become infinite, and are seen where they are read: of a pixel that reads one,
// every sum is infinite or no number for any weights, so a convolution looks at one sum of each pixel that
// it stores (`is_infinite`), and sets the word of its picture. Steps that multiply no matrices look at what they
// store instead, a mean at what it reads, by the largest that a thread has seen (`add_sizes`, of pairs, and at the
// end `flag_picture`). So do convolutions besides with BOUNDED, where smaller values are too large. Values that
// are not stored must not be looked at: they may be anything. `beyond` is 0x7fff less the bits of the largest value that is
// allowed, twice.
__device__ __forceinline__ bool is_infinite(float sum) { return !(fabsf(sum) <= 3.4028235e38f); }

__device__ __forceinline__ void add_sizes(uint32_t& sizes, uint32_t pair, int beyond) {
#if __CUDA_ARCH__ >= 800
    asm("{ .reg .b32 size; abs.f16x2 size, %1; max.NaN.f16x2 %0, %0, size; }" : "+r"(sizes) : "r"(pair));
#else
    sizes |= (pair & 0x7fff7fff) + beyond;
#endif
}

__device__ __forceinline__ void flag_picture(uint32_t* flags, int picture, uint32_t sizes, int beyond) {
#if __CUDA_ARCH__ >= 800
    sizes = (sizes & 0x7fff7fff) + beyond;
#endif
    if (sizes & 0x80008000) flags[picture] = 1;
}

// The error of rounding to 16 bits.
__device__ __forceinline__ float low_term(float value) {
    return value - widen(round_to_half(value));
}

// A map, or pixels: then `group` is of no meaning, and a cell is a picture, one after the other.
struct Map {
    int pitch;          // pixels from row to row
    int group;          // from group to group, in vectors of 16 bytes
    int top, left;      // where the first result reads or writes, in single pixels of its cell
    int rows, columns;  // of a cell, in pixels as they are stored
};

// Rows and columns from the first to before the last.
struct Range {
    int top, left, bottom, right;
};

// The results of a kernel.
struct LayerExtent {
    int rows, columns;        // results of each picture
    int tiles_across, tiles;  // of all pictures, all of them or (rows.cuh) those below one another
    int across, pictures;     // side by side, and all of them
};

// Arguments of convolutions, of a first layer too.
struct Conv {
    const void* in;
    const uint8_t* weights;
    const float* epilogue;   // biases of all planes; with PLANE_SLOPES slopes, too
    void* out;
    const void* residual;
    uint32_t* flags;         // a word for each picture, see `flag_picture`
    Map from, to, added;
    LayerExtent extent;
    Range valid;            // ZERO: pixels of the target that are not zero, from the first result's
    Range stored;           // LAST: pixels of the target that are written, of each picture
    float factor;           // with a residual
    float slope;            // of all planes, without PLANE_SLOPES
    int beyond;             // see `add_sizes`
    const float* factors;   // SCALED: of the planes of a pixel that is read; of each picture
    const float* added_factors;  // SCALED_RESIDUAL: of one that is added
    int factors_each;       // from picture to picture
    Range margin;           // MARGIN: see `clear_margin`
};

// A result's cell, and its place in it.
struct OutputCoordinate {
    int row, column;
    int down, along;
    bool is_stored;
};

// The result of a convolution that reads the pixels from (y, x) of its source on.
__device__ __forceinline__ OutputCoordinate output_coordinate(int y, int x, const Map& from,
                                                              const LayerExtent& extent) {
    OutputCoordinate result = {y, x, 0, 0, true};
#if STACK
    result.down = y / from.rows;
    result.along = x / from.columns;
    result.row -= result.down * from.rows + from.top;
    result.column -= result.along * from.columns + from.left;
    result.is_stored = result.row >= 0 && result.column >= 0 && result.along < extent.across &&
                  result.down * extent.across + result.along < extent.pictures;
#endif
    result.is_stored = result.is_stored && result.row < extent.rows && result.column < extent.columns;
    return result;
}

__device__ __forceinline__ int picture_of(const OutputCoordinate& at, const LayerExtent& extent) {
    return STACK ? at.down * extent.across + at.along : 0;
}

#ifdef ACTIVATE
// The activation of a sum with its bias.
__device__ __forceinline__ float activate(float x, float slope) { return ACTIVATE(x, slope); }
#endif

// Two values times factors, rounded to 16 bits.
__device__ __forceinline__ uint32_t scaled(uint32_t pair, const float* factors) {
    const float2 two = unpack(pair), by = __ldg(reinterpret_cast<const float2*>(factors));
    return pack(two.x * by.x, two.y * by.y);
}

// The factors of a result's picture, among those of all.
__device__ __forceinline__ const float* factors_of(const float* factors, const OutputCoordinate& at, const Conv& p) {
#if STACK
    return factors + min(picture_of(at, p.extent), p.extent.pictures - 1) * p.factors_each;
#else
    return factors;
#endif
}

// A result with its residual.
__device__ __forceinline__ float with_residual(float made, float more, float factor) {
#ifdef JOIN
    return JOIN(made, more);
#else
    return fmaf(made, factor, more);
#endif
}

// A quad of threads holds 4 vectors of 4 words, word q of each in thread q; afterwards thread q holds
// vector q. It is its own inverse.
__device__ __forceinline__ void transpose(uint32_t (&w)[4], int q) {
    const uint32_t all = 0xffffffffu;
    uint32_t a = __shfl_xor_sync(all, q & 2 ? w[0] : w[2], 2);
    uint32_t b = __shfl_xor_sync(all, q & 2 ? w[1] : w[3], 2);
    if (q & 2) { w[0] = a; w[1] = b; } else { w[2] = a; w[3] = b; }
    a = __shfl_xor_sync(all, q & 1 ? w[0] : w[1], 1);
    b = __shfl_xor_sync(all, q & 1 ? w[2] : w[3], 1);
    if (q & 1) { w[0] = a; w[2] = b; } else { w[1] = a; w[3] = b; }
}

// Bytes from the start of a map to a vector of 8 planes of a pixel.
template <int GROUP_PLANES>
__device__ __forceinline__ size_t vector_at(const Map& map, int row, int column, int plane) {
    const int vector = (plane % GROUP_PLANES / 8) ^ swizzle_phase<GROUP_PLANES>(column);
    return static_cast<size_t>(plane / GROUP_PLANES) * map.group * 16 +
           static_cast<size_t>(row * map.pitch + column) * (GROUP_PLANES * 2) + vector * 16;
}

#if defined(OUT_GROUP)
// Where 8 planes of a result are stored: D2S, S2D and PART (the first plane of the target's part)
// as in waifu2x/lowering/program.py; EACH is the planes of a single pixel of the part, padded.
__device__ __forceinline__ size_t target_at(const OutputCoordinate& at, int plane, const Map& to) {
    int row = at.row, column = at.column;
#if D2S > 1
    row = row * D2S + plane / EACH / D2S;
    column = column * D2S + plane / EACH % D2S;
    plane %= EACH;
#endif
    row += to.top;
    column += to.left;
#if S2D > 1
    plane += (static_cast<unsigned>(row) % S2D * S2D + static_cast<unsigned>(column) % S2D) * EACH;
    row = static_cast<unsigned>(row) / S2D;
    column = static_cast<unsigned>(column) / S2D;
#endif
#if STACK
    row += at.down * to.rows;
    column += at.along * to.columns;
#endif
    return vector_at<OUT_GROUP>(to, row, column, PART + plane);
}

#if defined(MARGIN) && MARGIN
static_assert(!STACK, "around each picture of a stack are others");

// Zeros around the results, in all that is in `margin`, counted from the first result: by all threads of all
// blocks that make the same COUNT planes, from `plane` on. So no tile begins or ends beyond the picture.
template <int COUNT>
__device__ __forceinline__ void clear_margin(const Conv& p, int plane, int block, int blocks) {
    const Range& all = p.margin;
    const int columns = all.right - all.left, rows = p.extent.rows, across = p.extent.columns;
    const int lines = all.bottom - all.top - rows, sides = columns - across;
    const int count = (lines * columns + sides * rows) * (COUNT / 8);
    for (int i = block * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const int pixel = i / (COUNT / 8), beside = pixel - lines * columns;
        OutputCoordinate at = {};
        if (beside < 0) {
            at.row = all.top + pixel / columns;
            if (at.row >= 0) at.row += rows;
            at.column = all.left + pixel % columns;
        } else {
            at.row = beside / sides;
            at.column = all.left + beside % sides;
            if (at.column >= 0) at.column += across;
        }
        uint8_t* const target = static_cast<uint8_t*>(p.out) + target_at(at, plane + i % (COUNT / 8) * 8, p.to);
#pragma unroll
        for (int term = 0; term < TERMS; term++)
            *reinterpret_cast<uint4*>(target + term * (static_cast<size_t>(OUT_STORED / OUT_GROUP) * p.to.group * 16)) =
                make_uint4(0, 0, 0, 0);
    }
}
#endif

#if RESIDUAL
// Where the addend of 8 planes of a result is stored: like the result before depth-to-space.
__device__ __forceinline__ size_t residual_at(const OutputCoordinate& at, int plane, const Map& added) {
    int row = at.row + added.top, column = at.column + added.left;
#if STACK
    row += at.down * added.rows;
    column += at.along * added.columns;
#endif
    return vector_at<RESIDUAL_GROUP>(added, row, column, RESIDUAL_PART + plane);
}
#endif

// Whether 8 planes of a result lie outside the value, where it is zero.
__device__ __forceinline__ bool is_zero(const OutputCoordinate& at, int plane, const Range& valid) {
#if ZERO
    const int row = at.row * D2S + plane / EACH / D2S;
    const int column = at.column * D2S + plane / EACH % D2S;
    return row < valid.top || row >= valid.bottom || column < valid.left || column >= valid.right;
#else
    return false;
#endif
}

// Biases, or slopes, of planes 8 * eight + 2 * q and the next: from memory of any kind, or registers.
struct OwnEpilogue {
    float2 two[4];
};

__device__ __forceinline__ float2 epilogue_at(const OwnEpilogue& epilogue, int eight, int q) {
    return epilogue.two[q];
}

__device__ __forceinline__ float2 epilogue_at(const float* epilogue, int eight, int q) {
    return *reinterpret_cast<const float2*>(epilogue + eight * 8 + q * 2);
}

// Those of results of thread q's sums [block][i]: see OWN below.
template <bool OWN, class Epilogue>
__device__ __forceinline__ float2 epilogue_of(const Epilogue& epilogue, int block, int i, int q) {
    return OWN ? epilogue_at(epilogue, block * 4 + q, i) : epilogue_at(epilogue, block * 4 + i, q);
}

// The addends of two results, 8 columns apart: the vectors that thread q of a quad loads.
template <int COUNT>
struct AddedVectors {
    uint4 terms[COUNT / 32][2][TERMS];
};

// That of COUNT planes from `plane` on, for the results from (y, x) of the source on. It takes long.
template <int COUNT>
__device__ __forceinline__ AddedVectors<COUNT> added_vectors(int plane, int y, int x, int q, const Conv& p) {
    AddedVectors<COUNT> added = {};
#if RESIDUAL
    const uint8_t* const residual = static_cast<const uint8_t*>(p.residual);
    const size_t low_added = static_cast<size_t>(RESIDUAL_STORED / RESIDUAL_GROUP) * p.added.group * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const OutputCoordinate output = output_coordinate(y, x + half * 8, p.from, p.extent);
#pragma unroll
        for (int block = 0; block < COUNT / 32; block++)
            if (output.is_stored) {
                const uint8_t* const vector = residual + residual_at(output, plane + block * 32 + q * 8, p.added);
                added.terms[block][half][0] = __ldg(reinterpret_cast<const uint4*>(vector));
                if (TERMS == 2)
                    added.terms[block][half][TERMS - 1] = __ldg(reinterpret_cast<const uint4*>(vector + low_added));
            }
    }
#endif
    return added;
}

__device__ __forceinline__ void flag_single(bool infinite, const Conv& p) {
    if (!STACK && infinite) p.flags[0] = 1;
}

// The epilogue of two results, 8 columns apart, from (y, x) of the source on: bias, activation,
// residual, store. The sums of COUNT planes from `plane` on stand as the matrix units leave them in a
// quad of threads: sums[4 * i + 2 * half + k] of thread q is plane 8 * i + 2 * q + k of result `half`;
// with OWN, where weights were packed so, 8 * q + 2 * i + k of each 32: the vector that q stores.
// `biases` are those of these planes, and so are `slopes`, with PLANE_SLOPES.
// `infinite` becomes true where a sum of a single picture is, to be told by `flag_single` behind all rows: the
// branch costs more than the rest. With STACK, a picture is flagged here.
template <int COUNT, bool OWN = false, class Epilogue>
__device__ __forceinline__ void store_row(const float* sums, const Epilogue& biases, const Epilogue& slopes, int plane,
                                          int y, int x, int q, const AddedVectors<COUNT>& added, const Conv& p,
                                          bool& infinite) {
    const OutputCoordinate outputs[2] = {output_coordinate(y, x, p.from, p.extent),
                                         output_coordinate(y, x + 8, p.from, p.extent)};
    uint8_t* const out = static_cast<uint8_t*>(p.out);
    const size_t low_terms = static_cast<size_t>(OUT_STORED / OUT_GROUP) * p.to.group * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bool is_kept = false;
#pragma unroll
        for (int block = 0; block < COUNT / 32; block++)
            is_kept = is_kept || !is_zero(outputs[half], plane + block * 32, p.valid);
        is_kept = is_kept && outputs[half].is_stored && is_infinite(sums[half * 2]);
        if (!STACK) infinite = infinite || is_kept;
        else if (is_kept) p.flags[picture_of(outputs[half], p.extent)] = 1;
    }
    uint32_t sizes[STACK + 1] = {};
#pragma unroll
    for (int block = 0; block < COUNT / 32; block++) {
        float2 bias[4];
#pragma unroll
        for (int i = 0; i < 4; i++) bias[i] = epilogue_of<OWN>(biases, block, i, q);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool outside = is_zero(outputs[half], plane + block * 32, p.valid);
            uint32_t high[4], low[4];
#if RESIDUAL
            uint32_t terms[TERMS][4];
#pragma unroll
            for (int term = 0; term < TERMS; term++) {
                const uint4 vector = added.terms[block][half][term];
                terms[term][0] = vector.x;
                terms[term][1] = vector.y;
                terms[term][2] = vector.z;
                terms[term][3] = vector.w;
                if (!OWN) transpose(terms[term], q);
            }
#if SCALED_RESIDUAL
            const float* const by = factors_of(p.added_factors, outputs[half], p);
#pragma unroll
            for (int i = 0; i < 4; i++)
                terms[0][i] = scaled(terms[0][i], by + (plane + block * 32 + (OWN ? q * 8 + i * 2 : i * 8 + q * 2)) % EACH);
#endif
#endif
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* const two = sums + block * 16 + i * 4 + half * 2;
                const float2 slope =
                    PLANE_SLOPES ? epilogue_of<OWN>(slopes, block, i, q) : make_float2(p.slope, p.slope);
                float v0 = activate(two[0] + bias[i].x, slope.x);
                float v1 = activate(two[1] + bias[i].y, slope.y);
#if RESIDUAL
                float2 more = unpack(terms[0][i]);
                if (TERMS == 2) {
                    const float2 small = unpack(terms[TERMS - 1][i]);
                    more.x += small.x;
                    more.y += small.y;
                }
                v0 = with_residual(v0, more.x, p.factor);
                v1 = with_residual(v1, more.y, p.factor);
#endif
                if (ZERO && outside) v0 = v1 = 0.0f;
                high[i] = pack(v0, v1);
                if (TERMS == 2) low[i] = pack(low_term(v0), low_term(v1));
            }
            uint8_t* const target = out + target_at(outputs[half], plane + block * 32 + q * 8, p.to);
            if (!OWN) transpose(high, q);
            if (outputs[half].is_stored) {
                *reinterpret_cast<uint4*>(target) = make_uint4(high[0], high[1], high[2], high[3]);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (BOUNDED) add_sizes(sizes[half * STACK], high[i], p.beyond);
            }
            if (TERMS == 2) {
                if (!OWN) transpose(low, q);
                if (outputs[half].is_stored)
                    *reinterpret_cast<uint4*>(target + low_terms) = make_uint4(low[0], low[1], low[2], low[3]);
            }
        }
    }
#pragma unroll
    for (int half = 0; half <= STACK; half++)
        if (BOUNDED) flag_picture(p.flags, picture_of(outputs[half], p.extent), sizes[half], p.beyond);
}
#endif

#if defined(STORED_GROUPS)
// A tile has TILE_COLUMNS columns, TILE_RESULTS of them with results.
//
// With SPARSE_TAPS > 1 the result is stored depth-to-space, and the planes of each pixel [dy][dx] that it
// becomes read 2 x 2 taps of 3 x 3, from [dy * 2 / D2S][dx * 2 / D2S] on: those behind an enlargement.
//
// A convolution has SIDE x SIDE taps, and a step takes one; with TAP_COLUMNS those of a row are
// columns of one matrix product. A K-block is a group of input planes, with two terms in three rounds:
// low input times high weights, high times low, high times high, since the unit cuts each sum off at 24
// bits: small products come first.
#define TAPS (TAP_COLUMNS ? SIDE : SIDE * SIDE)
#ifndef OVERLAP
#define OVERLAP (TAP_COLUMNS ? SIDE - 1 : 0)
#endif
static_assert(TILE_RESULTS == TILE_COLUMNS - OVERLAP, "results of a tile");
#define TILE_READS (TAP_COLUMNS ? TILE_COLUMNS : TILE_COLUMNS + SIDE - 1)
#define GROUPS (IN_PLANES / GROUP)
#define PIXEL_BYTES (GROUP * 2)
#define A_ROWS (ROWS + SIDE - 1)
#define B_BYTES (WIDTH * PIXEL_BYTES)
#define K_BLOCKS (GROUPS * (TERMS == 2 ? 3 : 1))
#define STEPS (K_BLOCKS * TAPS)

// The rows and columns of results and of the source from which a tile counts.
struct Tile {
    int y, x;          // as `output_coordinate` takes them
    int row, column;   // of the source
};

__device__ __forceinline__ Tile tile_at(int number, const Conv& p) {
    const int y = number / p.extent.tiles_across * ROWS, x = number % p.extent.tiles_across * TILE_RESULTS;
    Tile tile = {y, x, y, x};
#if !STACK
    tile.row += p.from.top;
    tile.column += p.from.left;
#endif
#if SPARSE_TAPS > 1
    // A block makes planes of one pixel of those that a result becomes.
    const int pixel = blockIdx.x % DEPTH * WIDTH / EACH;
    tile.row += pixel / D2S * 2 / D2S;
    tile.column += pixel % D2S * 2 / D2S;
#endif
    return tile;
}

// Where the pixels of a K-block begin in a tile's source.
__device__ __forceinline__ const uint8_t* k_block_at(int k_block, const Tile& tile, const Conv& p) {
    const int group = FIRST_GROUP + k_block % GROUPS + (TERMS == 2 && k_block < GROUPS ? STORED_GROUPS : 0);
    return static_cast<const uint8_t*>(p.in) + static_cast<size_t>(group) * p.from.group * 16 +
           (static_cast<size_t>(tile.row) * p.from.pitch + tile.column) * PIXEL_BYTES;
}
#endif

// Pixels of a picture: by 8 and 16 bits integers that span their range, by 32 floats in [0, 1]. 0 is a
// map of few planes: float, with any values.
template <int BITS>
struct Pixel {
    typedef float type;
};
template <>
struct Pixel<8> {
    typedef uint8_t type;
};
template <>
struct Pixel<16> {
    typedef uint16_t type;
};

// The value of a picture's pixel.
template <int BITS>
__device__ __forceinline__ float level(typename Pixel<BITS>::type pixel) {
    return BITS == 8 || BITS == 16 ? pixel * (1.0f / ((1 << (BITS & 31)) - 1)) : pixel;
}

#if defined(IN_PIXEL)
typedef Pixel<IN_PIXEL>::type source_t;

// Pixels that are read.
struct Source {
    int rows, columns;  // of each picture
    int top, left;      // of the first pixel that is read, in the enlarged picture with its padding
    int padding;        // pixels before the picture's first
};
#endif

#if defined(BORDER)
// Rounded down, of places from -65536 on.
__device__ __forceinline__ int floor_divide(int at, int by) {
    return (at + (by << 16)) / by - (1 << 16);
}

// The row, or column, of a picture that stands at a place: BORDER 0 is the nearest one, 1 mirrored, 2
// none, which is -1.
__device__ __forceinline__ int inside(int at, int count) {
#if BORDER == 0
    return min(max(at, 0), count - 1);
#elif BORDER == 1
    const int period = max(2 * (count - 1), 1);
    at = abs(at) % period;
    return at < count ? at : period - at;
#else
    return at >= 0 && at < count ? at : -1;
#endif
}
#endif

#if defined(PIXEL)
typedef Pixel<PIXEL>::type pixel_t;

// Half to even, as rint is.
__device__ __forceinline__ pixel_t to_pixel(float value) {
#if PIXEL == 0
    return value;
#else
    value = fminf(fmaxf(value, 0.0f), 1.0f);
#if PIXEL == 32
    return value;
#else
    return static_cast<pixel_t>(rintf(value * static_cast<float>((1 << PIXEL) - 1)));
#endif
#endif
}
#endif

#if defined(LAST) && LAST
// Pixels that a row of a tile becomes: lines of the target, each with D2S pixels of a result.
#define LINE_PIXELS (TILE_RESULTS * D2S)
#define ROW_PIXELS (LINE_PIXELS * D2S)
#define SUMS (PLANES * D2S * D2S)
#if TAP_COLUMNS
#define SUM_PARTS SIDE
#else
#define SUM_PARTS 1
#endif

// A pixel that a tile makes.
struct MadePixel {
    bool is_stored;
    int terms, sum;   // its first sum: among the tile's, and among those of a result
    int row, column;  // from the first result's pixel on
    int picture;
};

// Pixel i of a tile whose first result reads the source from (y, x) on.
__device__ __forceinline__ MadePixel made_pixel(int i, int y, int x, const Conv& p) {
    const int row = i / ROW_PIXELS, line = i % ROW_PIXELS / LINE_PIXELS, at = i % LINE_PIXELS;
    const int column = at / D2S, dx = at % D2S;
    const OutputCoordinate output = output_coordinate(y + row, x + column, p.from, p.extent);
    MadePixel made;
    made.sum = (line * D2S + dx) * PLANES;
    made.terms = (row * TILE_COLUMNS + column) * (WIDTH + 1) + made.sum;
    made.row = output.row * D2S + line;
    made.column = output.column * D2S + dx;
    made.picture = picture_of(output, p.extent);
    const int to_row = made.row + p.to.top, to_column = made.column + p.to.left;
    made.is_stored = output.is_stored && to_row >= p.stored.top && to_row < p.stored.bottom &&
                     to_column >= p.stored.left && to_column < p.stored.right;
    return made;
}

// The addend of a pixel: zero without a residual.
struct Added {
    float planes[PLANES];
};

__device__ __forceinline__ Added added_to(const MadePixel& made, const Conv& p) {
    Added added = {};
#if defined(RESIDUAL_PIXEL)
    const int made_row = made.row + p.added.top, made_column = made.column + p.added.left;
    int row = floor_divide(made_row, RESIDUAL_ENLARGE), column = floor_divide(made_column, RESIDUAL_ENLARGE);
#if !defined(RESIDUAL_BLEND)
    row = inside(row, p.added.rows);
    column = inside(column, p.added.columns);
#endif
    if (!made.is_stored || row < 0 || column < 0) return added;
    const Pixel<RESIDUAL_PIXEL>::type* const pictures = static_cast<const Pixel<RESIDUAL_PIXEL>::type*>(p.residual);
    const size_t line = (static_cast<size_t>(made.picture) * p.added.rows + row) * p.added.columns;
    const Pixel<RESIDUAL_PIXEL>::type* const pixel = pictures + (line + column) * PLANES;
#if defined(RESIDUAL_BLEND)
    // The pixels beside it on the result's side; those at the edges go on.
    const int next_row = min(max(row + made_row % 2 * 2 - 1, 0), p.added.rows - 1) - row;
    const int along = (min(max(column + made_column % 2 * 2 - 1, 0), p.added.columns - 1) - column) * PLANES;
    const long long down = static_cast<long long>(next_row) * p.added.columns * PLANES;
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) {
        const float near = level<RESIDUAL_PIXEL>(__ldg(pixel + plane));
        const float beside = level<RESIDUAL_PIXEL>(__ldg(pixel + along + plane));
        const float below = level<RESIDUAL_PIXEL>(__ldg(pixel + down + plane));
        const float across = level<RESIDUAL_PIXEL>(__ldg(pixel + down + along + plane));
        const float row_near = fmaf(beside - near, RESIDUAL_BLEND, near);
        const float row_below = fmaf(across - below, RESIDUAL_BLEND, below);
        added.planes[plane] = fmaf(row_below - row_near, RESIDUAL_BLEND, row_near);
    }
#else
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) added.planes[plane] = level<RESIDUAL_PIXEL>(__ldg(pixel + plane));
#endif
#elif RESIDUAL
    if (!made.is_stored) return added;
    const size_t line = static_cast<size_t>(made.picture) * p.added.rows + made.row + p.added.top;
    const size_t pixel = line * p.added.pitch + made.column + p.added.left;
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++)
        added.planes[plane] = __ldg(static_cast<const float*>(p.residual) + pixel * PLANES + plane);
#endif
    return added;
}

// Stores a pixel of the sums of its planes.
__device__ __forceinline__ void store_complete(const float (&sums)[PLANES], const MadePixel& made, const Added& added,
                                               const float* biases, const float* slopes, const Conv& p) {
    if (!made.is_stored) return;
    const size_t line = static_cast<size_t>(made.picture) * p.to.rows + made.row + p.to.top;
    const size_t pixel = line * p.to.pitch + made.column + p.to.left;
    bool infinite = false;
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) {
        const int sum = made.sum + plane;
        bool own_infinite = is_infinite(sums[plane]);
        float value = activate(sums[plane] + biases[sum], PLANE_SLOPES ? slopes[sum] : p.slope);
#if RESIDUAL
        value = with_residual(value, added.planes[plane], p.factor);
#endif
#if ZERO
        if (made.row < p.valid.top || made.row >= p.valid.bottom || made.column < p.valid.left ||
            made.column >= p.valid.right) {
            value = 0.0f;
            own_infinite = false;
        }
#endif
        infinite = infinite || own_infinite;
        static_cast<pixel_t*>(p.out)[pixel * PLANES + plane] = to_pixel(value);
    }
    if (infinite) p.flags[made.picture] = 1;
}

// The same, of partial sums [row][input column][part * SUMS + sum], padded by one to spare the banks. With
// TAP_COLUMNS a sum has a part for each tap of a row, which stands at the column that it reads.
__device__ __forceinline__ void store_pixel(const float* partial, const MadePixel& made, const Added& added,
                                            const float* biases, const float* slopes, const Conv& p) {
    if (!made.is_stored) return;
    const float* const terms = partial + made.terms;
    float sums[PLANES];
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++) {
        sums[plane] = terms[plane];
#pragma unroll
        for (int part = 1; part < SUM_PARTS; part++) sums[plane] += terms[plane + part * (WIDTH + 1 + SUMS)];
    }
    store_complete(sums, made, added, biases, slopes, p);
}
#endif
