// Planewise steps value by value: those that are not of whole vectors between two maps of tensor.cuh,
// which tensor_planewise.cu runs, but from or to pixels and maps of few planes, depth-to-space,
// space-to-depth, bicubic, or to any plane of a part.
//
//     out(y, x, c) = in(y, x, c) * factors(c) * factor + residual(y, x, c)
//     with JOIN      JOIN(made, residual) instead of the sum
//     with UP        the sum over 4x4 pixels of a bicubic interpolation, UP / DOWN times as large, which
//                    repeats the pixels at its edges
//     with BILINEAR  the sum over 2x2 pixels, enlarged to the target's size
//     with POOL      the maximum of POOL x POOL pixels, at every POOL_STEP
//     with SAMPLES   samples between 2x2 pixels, at places that the residual shifts: see GridSample in
//                    waifu2x/networks/nodes.py
//
// Arguments: `Gather` below. Layouts
//   in        pixels [picture][row][column][IN_PLANES] by IN_PIXEL, or with IN_GROUP a map
//   out       pixels [picture][row][column][OUT_PLANES] by PIXEL, or with OUT_GROUP a map
//   residual  float [picture][row][column][PLANES], or with RESIDUAL_GROUP a map
//   factors   float [picture][factors_each], beginning with one for each plane of the source
// Macros
//   THREADS, VALUES (planes of a thread: of a pixel all, of a map 8 or 1), PLANES (that are made),
//   WRITTEN (the same with the padding of the target's part, which is written too), IN_PIXEL with
//   IN_PLANES and BORDER, or IN_GROUP with IN_STORED, IN_EACH, IN_S2D, IN_PART; ENLARGE, STEP_D2S,
//   STEP_S2D; defined where the step is of that kind: UP with DOWN, BILINEAR, POOL with POOL_STEP,
//   SAMPLES (of a pixel in each direction) with SAMPLED (planes of each) and GROUPS (of planes that are
//   moved together); FACTORS (0 or 1), JOIN(x, residual), TERMS, ZERO, PART (the first plane that is
//   written); PIXEL with OUT_PLANES, or OUT_GROUP with OUT_STORED, EACH, S2D; ADDED (0 or 1: a residual), RESIDUAL_GROUP, RESIDUAL_STORED, RESIDUAL_EACH, RESIDUAL_S2D, RESIDUAL_PART
// Bound: device memory, and the caches where it is resized. Best: NVIDIA H200: 3840x2160 enlarged in
//   0.052 ms, 1920x1080 made of them in 0.063.
#define STACK 1
#define D2S 1
#if !defined(BORDER)
#define BORDER 0
#endif
#include "tensor.cuh"

// Planes of the map that the residual is.
#ifdef SAMPLES
#define ADDED_PLANES (2 * SAMPLES * SAMPLES * GROUPS)
#else
#define ADDED_PLANES PLANES
#endif

struct Gather {
    const void* in;
    void* out;
    const void* residual;
    const float* factors;
    uint32_t* flags;      // a word for each picture, see `flag_picture`
    Source source;        // pixels: `top`, `left` of the first one that there is memory for
    Map from, to, added;  // `top`, `left` of the first pixel that there is memory for
    LayerExtent extent;
    int rows, columns;    // of the source's value, and
    int target_rows, target_columns;  // of the target's: where pixels are made of several
    Range valid, stored;  // of the target: pixels that are not zero (ZERO), and those that are written
    int top, left;        // the first pixel that is made
    int offset;           // of the view of the source
    int added_offset;     // and of that of the residual
    int factors_each;
    float factor;
    int beyond;
};

// A plane of a single pixel of a map: where its high term is.
template <int GROUP_PLANES, int S2D_OF, int PLANES_EACH>
__device__ __forceinline__ size_t value_at(const Map& map, int row, int column, int plane, int first, int picture,
                                           int across) {
    row -= map.top;
    column -= map.left;
    if (S2D_OF > 1) {
        plane += (static_cast<unsigned>(row) % S2D_OF * S2D_OF + static_cast<unsigned>(column) % S2D_OF) * PLANES_EACH;
        row = static_cast<unsigned>(row) / S2D_OF;
        column = static_cast<unsigned>(column) / S2D_OF;
    }
    plane += first;
    row += picture / across * map.rows;
    column += picture % across * map.columns;
    return vector_at<GROUP_PLANES>(map, row, column, plane) + plane % 8 * 2;
}

template <int STORED_PLANES, int GROUP_PLANES>
__device__ __forceinline__ size_t low_terms(const Map& map) {
    return static_cast<size_t>(STORED_PLANES / GROUP_PLANES) * map.group * 16;
}

template <int STORED_PLANES, int GROUP_PLANES>
__device__ __forceinline__ float value_of(const void* map, size_t at, const Map& of) {
    const uint8_t* const high = static_cast<const uint8_t*>(map) + at;
    float value = 0.0f;
    if (TERMS == 2)
        value = widen(__ldg(reinterpret_cast<const uint16_t*>(high + low_terms<STORED_PLANES, GROUP_PLANES>(of))));
    return value + widen(__ldg(reinterpret_cast<const uint16_t*>(high)));
}

// A plane of a pixel of the source.
__device__ __forceinline__ float read(const Gather& p, int row, int column, int plane, int picture) {
#if defined(IN_GROUP)
    const size_t at =
        value_at<IN_GROUP, IN_S2D, IN_EACH>(p.from, row, column, plane, IN_PART, picture, p.extent.across);
    return value_of<IN_STORED, IN_GROUP>(p.in, at, p.from);
#else
    row = inside(row - p.source.padding - p.source.top, p.source.rows);
    column = inside(column - p.source.padding - p.source.left, p.source.columns);
    if (row < 0 || column < 0) return 0.0f;
    const size_t pixel = (static_cast<size_t>(picture) * p.source.rows + row) * p.source.columns + column;
    return level<IN_PIXEL>(__ldg(static_cast<const source_t*>(p.in) + pixel * IN_PLANES + plane));
#endif
}

#ifdef UP
// Keys's cubic with a = -3/4, of a distance in units of 1 / (2 * UP) pixels.
__device__ __forceinline__ float cubic(int distance) {
    const float t = static_cast<float>(abs(distance)) / (2 * UP);
    if (t <= 1.0f) return ((1.25f * t - 2.25f) * t) * t + 1.0f;
    return t < 2.0f ? ((-0.75f * t + 3.75f) * t - 6.0f) * t + 3.0f : 0.0f;
}
#endif

#if ADDED
// A plane of a pixel of the residual.
__device__ __forceinline__ float added(const Gather& p, int y, int x, int plane, int picture) {
    const int row = y + p.added_offset, column = x + p.added_offset;
#if defined(RESIDUAL_GROUP)
    const size_t at = value_at<RESIDUAL_GROUP, RESIDUAL_S2D, RESIDUAL_EACH>(p.added, row, column, plane, RESIDUAL_PART,
                                                                           picture, p.extent.across);
    return value_of<RESIDUAL_STORED, RESIDUAL_GROUP>(p.residual, at, p.added);
#else
    const size_t line = static_cast<size_t>(picture) * p.added.rows + row - p.added.top;
    return __ldg(static_cast<const float*>(p.residual) +
                 (line * p.added.pitch + column - p.added.left) * ADDED_PLANES + plane);
#endif
}
#endif

#ifdef SAMPLES
// The pixel before a place `offset` pixels from the middle of pixel `first`, and in `share` how far behind it
// that is; beyond the edges, the place at them. Relative to `first`, so that nothing rounds more in a large map.
__device__ __forceinline__ int place_before(int first, float offset, int size, float& share) {
    const float inner = fminf(fmaxf(offset, static_cast<float>(-first)), static_cast<float>(size - 1 - first));
    share = inner - floorf(inner);
    return min(max(first + static_cast<int>(floorf(inner)), 0), size - 1);
}

// Where a sample of a pixel lies in one direction, in pixels from its middle.
__device__ __forceinline__ float middle_of(int sample) {
    return static_cast<float>(2 * sample + 1 - SAMPLES) / (2 * SAMPLES);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
tensor_gather(const __grid_constant__ Gather p) {
    const int number = blockIdx.x * THREADS + threadIdx.x, picture = blockIdx.z;
    const int x = p.left + number / (WRITTEN / VALUES), first = number % (WRITTEN / VALUES) * VALUES;
    const int y = p.top + blockIdx.y;
    if (x >= p.left + p.extent.columns) return;
    float values[VALUES] = {};
#ifdef UP
    const int y_double = (2 * y + 1) * DOWN - UP, x_double = (2 * x + 1) * DOWN - UP;
    const int top = floor_divide(y_double, 2 * UP) - 1, left = floor_divide(x_double, 2 * UP) - 1;
    float down[4], along[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        down[i] = cubic(y_double - 2 * UP * (top + i));
        along[i] = cubic(x_double - 2 * UP * (left + i));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = min(max(top + i, 0), p.rows - 1);
        float sums[VALUES] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int column = min(max(left + k, 0), p.columns - 1);
#pragma unroll
            for (int v = 0; v < VALUES; v++)
                if (first + v < PLANES) sums[v] = fmaf(read(p, row, column, first + v, picture), along[k], sums[v]);
        }
#pragma unroll
        for (int v = 0; v < VALUES; v++) values[v] = fmaf(sums[v], down[i], values[v]);
    }
#elif defined(BILINEAR)
    // Twice the place, in units of one pixel of the target's size.
    const long long y_double = max((2LL * y + 1) * p.rows - p.target_rows, 0LL);
    const long long x_double = max((2LL * x + 1) * p.columns - p.target_columns, 0LL);
    const int top = static_cast<int>(y_double / (2 * p.target_rows));
    const int left = static_cast<int>(x_double / (2 * p.target_columns));
    const float lower = static_cast<float>(y_double % (2 * p.target_rows)) / (2 * p.target_rows);
    const float after =
        static_cast<float>(x_double % (2 * p.target_columns)) / (2 * p.target_columns);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = min(top + i, p.rows - 1);
#pragma unroll
        for (int v = 0; v < VALUES; v++) {
            if (first + v >= PLANES) continue;
            const float one = read(p, row, min(left, p.columns - 1), first + v, picture);
            const float other = read(p, row, min(left + 1, p.columns - 1), first + v, picture);
            values[v] = fmaf(fmaf(other, after, one * (1.0f - after)), i ? lower : 1.0f - lower, values[v]);
        }
    }
#elif defined(SAMPLES)
    int top = 0, left = 0;
    float lower = 0.0f, after = 0.0f;
    bool infinite = false;
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const int sample = (first + v) / SAMPLED, plane = (first + v) % SAMPLED;
        if (first + v >= PLANES) continue;
        // The planes of a group lie at the same place.
        if (v == 0 || plane % (SAMPLED / GROUPS) == 0) {
            const int moved = (sample * GROUPS + plane / (SAMPLED / GROUPS)) * 2;
            const float across = added(p, y, x, moved, picture), down = added(p, y, x, moved + 1, picture);
            left = place_before(x, across + middle_of(sample % SAMPLES), p.columns, after);
            top = place_before(y, down + middle_of(sample / SAMPLES), p.rows, lower);
            infinite = is_infinite(across) || is_infinite(down);
        }
        const int bottom = min(top + 1, p.rows - 1), right = min(left + 1, p.columns - 1);
        const float upper = fmaf(read(p, top, right, plane, picture), after,
                                 read(p, top, left, plane, picture) * (1.0f - after));
        const float under = fmaf(read(p, bottom, right, plane, picture), after,
                                 read(p, bottom, left, plane, picture) * (1.0f - after));
        // Offsets that 16 bits cannot hold are seen in what they make.
        values[v] = infinite ? __uint_as_float(0x7fc00000u) : fmaf(under, lower, upper * (1.0f - lower));
    }
#elif defined(POOL)
    // Plane by plane: the places of all at once would not fit the registers.
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        if (first + v >= PLANES) continue;
        values[v] = __uint_as_float(0xff800000u);  // less than any number
#pragma unroll 1
        for (int i = 0; i < POOL * POOL; i++) {
            const int row = min(max(y * POOL_STEP + i / POOL, 0), p.rows - 1);
            const int column = min(max(x * POOL_STEP + i % POOL, 0), p.columns - 1);
            values[v] = fmaxf(values[v], read(p, row, column, first + v, picture));
        }
    }
#else
    const int y_cell = floor_divide(y, STEP_D2S), x_cell = floor_divide(x, STEP_D2S);
    const int inner = (y - y_cell * STEP_D2S) * STEP_D2S + x - x_cell * STEP_D2S;
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        const int plane = first + v;
        if (plane >= PLANES) continue;
        const int own = plane / (STEP_S2D * STEP_S2D) * (STEP_D2S * STEP_D2S) + inner;
        const int row = y_cell * STEP_S2D + plane / STEP_S2D % STEP_S2D + p.offset;
        const int column = x_cell * STEP_S2D + plane % STEP_S2D + p.offset;
        values[v] = p.factor * read(p, floor_divide(row, ENLARGE), floor_divide(column, ENLARGE), own, picture);
#if FACTORS
        values[v] *= __ldg(p.factors + static_cast<size_t>(picture) * p.factors_each + own);
#endif
    }
#endif
#if ADDED && !defined(SAMPLES)
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        if (first + v >= PLANES) continue;
        const float more = added(p, y, x, first + v, picture);
#ifdef JOIN
        values[v] = JOIN(values[v], more);
#else
        values[v] += more;
#endif
    }
#endif
    const bool outside = ZERO && (y < p.valid.top || y >= p.valid.bottom || x < p.valid.left || x >= p.valid.right);
#pragma unroll
    for (int v = 0; v < VALUES; v++)
        if (outside) values[v] = 0.0f;
    uint32_t sizes = 0;
#if defined(OUT_GROUP)
    uint8_t* const target = static_cast<uint8_t*>(p.out) +
        value_at<OUT_GROUP, S2D, EACH>(p.to, y, x, first, PART, picture, p.extent.across);
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        uint8_t* const to = target + term * low_terms<OUT_STORED, OUT_GROUP>(p.to);
#if VALUES == 8
        uint32_t pairs[4];
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            pairs[pair] = pack(values[pair * 2], values[pair * 2 + 1]);
            if (term == 0) add_sizes(sizes, pairs[pair], p.beyond);
        }
        *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
#else
        const uint16_t half = round_to_half(values[0]);
        if (term == 0) add_sizes(sizes, half, p.beyond);
        *reinterpret_cast<uint16_t*>(to) = half;
#endif
#pragma unroll
        for (int v = 0; v < VALUES; v++) values[v] = low_term(values[v]);
    }
#else
    if (y < p.stored.top || y >= p.stored.bottom || x < p.stored.left || x >= p.stored.right) return;
    const size_t line = static_cast<size_t>(picture) * p.to.rows + y - p.to.top;
    pixel_t* const pixel = static_cast<pixel_t*>(p.out) + (line * p.to.pitch + x - p.to.left) * OUT_PLANES + PART;
#pragma unroll
    for (int v = 0; v < VALUES; v++) {
        add_sizes(sizes, pack(values[v], 0.0f), p.beyond);
        pixel[v] = to_pixel(values[v]);
    }
#endif
    flag_picture(p.flags, picture, sizes, p.beyond);
}
