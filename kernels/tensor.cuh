// What the kernels of tensor units share: the layout of feature maps, rounding, pixels.
//
// A feature map of 16-bit values is stored in groups of GROUP planes (64, or 32 for maps of few
// planes), [term][group][row][column][plane], where TERMS = 2 keeps each value as two 16-bit terms,
// high and low, whose sum has 22 bits. A pixel of a group is thus 128 or 64 contiguous bytes. Its
// 16-byte pieces stand in the order that shared memory wants, so that a row of a tile is one
// contiguous copy and no access meets a bank conflict: piece p of column x stands at p ^ phase(x).
// It is the order in which the matrix descriptors of sm_90 read ("swizzle"), 128 or 64 bytes wide.
#include <cuda_fp16.h>
#include <stdint.h>

template <int PLANES_EACH>
__device__ __forceinline__ int phase(int column) {
    return PLANES_EACH == 64 ? column & 7 : column >> 1 & 3;
}

// Two values rounded to 16 bits, the first one in the low half.
__device__ __forceinline__ uint32_t pack(float a, float b) {
    const __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

// What rounding to 16 bits lost.
__device__ __forceinline__ float rest(float value) {
    return value - __half2float(__float2half_rn(value));
}

__device__ __forceinline__ float leaky_relu(float value, float slope) {
    return fmaxf(value, slope * value);
}

struct Map {
    int pitch;        // pixels from row to row
    int group;        // from group to group, in pieces of 16 bytes
};

// STACK = 1: small pictures are computed side by side, as if they were one. Each has a cell, with its
// margins, and the cells of what a layer makes are smaller by the two rows and columns that it loses.
struct Cells {
    int rows, columns;  // of a cell of what the layer reads
    int across, count;
};

// Where a pixel of what a layer computes belongs.
struct Place {
    int pixel;   // from the start of a group
    int column;
    bool kept;
};

__device__ __forceinline__ Place place(int row, int column, Map to, Cells cells) {
    bool kept = true;
#if STACK
    const int down = row / cells.rows, along = column / cells.columns;
    kept = row - down * cells.rows < cells.rows - 2 && column - along * cells.columns < cells.columns - 2 &&
           along < cells.across;
    row -= 2 * down;
    column -= 2 * along;
#endif
    return {row * to.pitch + column, column, kept};
}

// A quad of threads holds 4 pieces of 4 words, word q of each in thread q; afterwards thread q holds
// piece q.
__device__ __forceinline__ void transpose(uint32_t (&w)[4], int q) {
    const uint32_t all = 0xffffffffu;
    uint32_t a = __shfl_xor_sync(all, q & 2 ? w[0] : w[2], 2);
    uint32_t b = __shfl_xor_sync(all, q & 2 ? w[1] : w[3], 2);
    if (q & 2) { w[0] = a; w[1] = b; } else { w[2] = a; w[3] = b; }
    a = __shfl_xor_sync(all, q & 1 ? w[0] : w[1], 1);
    b = __shfl_xor_sync(all, q & 1 ? w[2] : w[3], 1);
    if (q & 1) { w[0] = a; w[2] = b; } else { w[1] = a; w[3] = b; }
}

// Bias, leaky ReLU and the store of 32 planes of two pixels, 8 columns apart, from the sums as the
// matrix units leave them in a quad of threads: sums[4 * i + 2 * half + k] of thread q is plane
// 8 * i + 2 * q + k of the pixel at places[half], and biases[2 * i + k] belongs to it.
template <int OUT_PLANES_EACH, int OUT_TERMS>
__device__ __forceinline__ void store_planes(const float* sums, const float (&biases)[8], float slope, uint8_t* out,
                                             Map to, int planes, int plane, const Place (&places)[2], int q) {
    out += static_cast<size_t>(plane / OUT_PLANES_EACH) * to.group * 16;
    const size_t low_terms = static_cast<size_t>(planes / OUT_PLANES_EACH) * to.group * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float v0 = leaky_relu(sums[i * 4 + half * 2] + biases[i * 2], slope);
            const float v1 = leaky_relu(sums[i * 4 + half * 2 + 1] + biases[i * 2 + 1], slope);
            high[i] = pack(v0, v1);
            if (OUT_TERMS == 2) low[i] = pack(rest(v0), rest(v1));
        }
        const bool kept = places[half].kept;
        const int piece = (plane % OUT_PLANES_EACH / 8 + q) ^ phase<OUT_PLANES_EACH>(places[half].column);
        uint8_t* const target = out + static_cast<size_t>(places[half].pixel) * (OUT_PLANES_EACH * 2) + piece * 16;
        transpose(high, q);
        if (kept) *reinterpret_cast<uint4*>(target) = make_uint4(high[0], high[1], high[2], high[3]);
        if (OUT_TERMS == 2) {
            transpose(low, q);
            if (kept) *reinterpret_cast<uint4*>(target + low_terms) = make_uint4(low[0], low[1], low[2], low[3]);
        }
    }
}

// Pixels of a picture: PIXEL 8 and 16 are integers that span their range, 32 is float in [0, 1].
#if defined(PIXEL)
#if PIXEL == 8
typedef uint8_t pixel_t;
#elif PIXEL == 16
typedef uint16_t pixel_t;
#else
typedef float pixel_t;
#endif

// Half to even, as rint is.
__device__ __forceinline__ pixel_t to_pixel(float value) {
    value = fminf(fmaxf(value, 0.0f), 1.0f);
#if PIXEL == 32
    return value;
#else
    return static_cast<pixel_t>(rintf(value * static_cast<float>((1 << PIXEL) - 1)));
#endif
}

#if defined(LAST) && LAST
// One value of a tile of 62 columns, from the products of its 64 input columns with the three taps of
// a row: partial is [row][input column][tap * PLANES + plane], padded by one to spare the banks.
__device__ __forceinline__ void store_pixel(const float* partial, int i, const float* bias, float slope,
                                            pixel_t* pictures, int pitch, int y, int x, int rows, int columns,
                                            Cells cells) {
    const int row = i / (62 * PLANES), at = i % (62 * PLANES), pixel = at / PLANES, plane = at % PLANES;
    int picture = 0;
    y += row;
    x += pixel;
#if STACK
    const int down = y / cells.rows, along = x / cells.columns;
    picture = down * cells.across + along;
    y -= down * cells.rows;
    x -= along * cells.columns;
    if (along >= cells.across || picture >= cells.count) return;
#endif
    if (y >= rows || x >= columns) return;
    const float* const terms = partial + (row * 64 + pixel) * (WIDTH + 1) + plane;
    const float sum = terms[0] + terms[WIDTH + 1 + PLANES] + terms[2 * (WIDTH + 1) + 2 * PLANES];
    pictures[((static_cast<size_t>(picture) * rows + y) * pitch + x) * PLANES + plane] =
        to_pixel(leaky_relu(sum + bias[plane], slope));
}
#endif
#endif
