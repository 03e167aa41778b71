// Planewise steps between maps of tensor.cuh, by vectors of 16 bytes: maps cropped, enlarged, scaled plane by
// plane, gated.
//
//     out(y, x, c) = in((y + top) / ENLARGE, (x + left) / ENLARGE, c) * factors(c) * factor + residual(.., c)
//                    to the bit of both terms where nothing is multiplied or added
//     with JOIN      JOIN(in, residual) instead of all that
//
// Arguments: `Planewise` below. Layouts
//   in, out, residual  maps in groups of GROUP, OUT_GROUP, RESIDUAL_GROUP planes
//   factors            float [picture][factors_each], PLANES of them used
// Macros
//   THREADS, VECTORS (of a group, which neighbouring threads share: they divide WRITTEN), REPEATS (pixels
//   of a thread), PLANES (that are made), WRITTEN (the same with the padding of the target's part, which is
//   written too), GROUP, STORED, IN_EACH, IN_S2D, IN_PART (first plane), ENLARGE,
//   FACTORS (0 or 1), JOIN(x, residual), TERMS, RESIDUAL and with it RESIDUAL_GROUP, RESIDUAL_STORED,
//   RESIDUAL_EACH, RESIDUAL_S2D, RESIDUAL_PART; and those of the store, see tensor.cuh
// Bound: device memory.
#define STACK 1
#define D2S 1
#include "tensor_cells.cuh"

#define EACH_COLUMNS (THREADS / VECTORS)
// With a factor of 1, a copy. The terms of a sum of two terms may be others: of the two numbers that it
// lies half way between, the high one becomes the even one.
#define COPIES (TERMS == 2 && !FACTORS && !RESIDUAL)

struct Planewise {
    const uint8_t* in;
    uint8_t* out;
    const uint8_t* residual;
    const float* factors;
    uint32_t* flags;  // a word for each picture, see `flag_picture`
    Map from, to, added;
    LayerExtent extent;
    Range valid;
    int factors_each;
    float factor;
    int beyond;
};

// With one term, the compiler would rather spill a register than have a block fewer.
#if TERMS == 1
#define BLOCK_BOUNDS __launch_bounds__(THREADS, 1)
#else
#define BLOCK_BOUNDS __launch_bounds__(THREADS)
#endif

// Blocks: (parts of columns, rows, pictures * parts of planes).
extern "C" __global__ void BLOCK_BOUNDS
tensor_planewise(const __grid_constant__ Planewise p) {
    const int picture = blockIdx.z / (WRITTEN / (VECTORS * 8));
    const int plane = (blockIdx.z % (WRITTEN / (VECTORS * 8)) * VECTORS + threadIdx.x % VECTORS) * 8;
    const int down = picture / p.extent.across, along = picture % p.extent.across;
    const int y = blockIdx.y, x0 = blockIdx.x * EACH_COLUMNS * REPEATS + threadIdx.x / VECTORS;
    float factors[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        factors[i] = p.factor;
#if FACTORS
        const size_t at = static_cast<size_t>(picture) * p.factors_each + plane + i;
        factors[i] *= plane + i < PLANES ? __ldg(p.factors + at) : 0.0f;
#endif
    }
    float values[REPEATS][8] = {};
#if COPIES
    uint4 terms[REPEATS][2] = {};
#endif
#pragma unroll
    for (int i = 0; i < REPEATS; i++) {
        const int x = x0 + i * EACH_COLUMNS;
        // Behind the last plane there is only padding: zeros.
        if (x >= p.extent.columns || plane >= PLANES) continue;
        const int row = (y + p.from.top) / ENLARGE, column = (x + p.from.left) / ENLARGE;
        const uint8_t* const from =
            p.in + single_at<GROUP, IN_S2D, IN_EACH>(p.from, row, column, IN_PART + plane, down, along);
        add<STORED, GROUP>(values[i], from, p.from);
#if COPIES
        terms[i][0] = term_of<STORED, GROUP>(from, p.from, 0);
        terms[i][1] = term_of<STORED, GROUP>(from, p.from, 1);
#endif
    }
    uint32_t sizes = 0;
#pragma unroll
    for (int i = 0; i < REPEATS; i++) {
        const int x = x0 + i * EACH_COLUMNS;
        if (x >= p.extent.columns) continue;
        float more[8] = {};
#if RESIDUAL
        if (plane < PLANES) add<RESIDUAL_STORED, RESIDUAL_GROUP>(more, p.residual +
            single_at<RESIDUAL_GROUP, RESIDUAL_S2D, RESIDUAL_EACH>(p.added, y + p.added.top, x + p.added.left,
                RESIDUAL_PART + plane, down, along), p.added);
#endif
        const bool outside = ZERO && (y < p.valid.top || y >= p.valid.bottom || x < p.valid.left || x >= p.valid.right);
        uint32_t high[4], low[4];
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            float two[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
#ifdef JOIN
                two[k] = JOIN(values[i][pair * 2 + k], more[pair * 2 + k]);
#else
                two[k] = fmaf(values[i][pair * 2 + k], factors[pair * 2 + k], more[pair * 2 + k]);
#endif
                if (outside) two[k] = 0.0f;
            }
            high[pair] = pack(two[0], two[1]);
            if (TERMS == 2) low[pair] = pack(low_term(two[0]), low_term(two[1]));
        }
#if COPIES
        if (p.factor == 1.0f && !outside)
#pragma unroll
            for (int pair = 0; pair < 4; pair++) {
                high[pair] = (&terms[i][0].x)[pair];
                low[pair] = (&terms[i][1].x)[pair];
            }
#endif
        uint8_t* const target = p.out +
            single_at<OUT_GROUP, S2D, EACH>(p.to, y + p.to.top, x + p.to.left, PART + plane, down, along);
        *reinterpret_cast<uint4*>(target) = make_uint4(high[0], high[1], high[2], high[3]);
#pragma unroll
        for (int pair = 0; pair < 4; pair++) add_sizes(sizes, high[pair], p.beyond);
        if (TERMS == 2)
            *reinterpret_cast<uint4*>(target + static_cast<size_t>(OUT_STORED / OUT_GROUP) * p.to.group * 16) =
                make_uint4(low[0], low[1], low[2], low[3]);
    }
    flag_picture(p.flags, picture, sizes, p.beyond);
}
