// Sums of planes times planes over a map of tensor.cuh, or a part of it: of each head, q(i) k(j); then of the squares
// of all q; then of k.
//
//     sums(i, j) += sum over the pixels of the part of round(q(pixel, i) * k(pixel, j) * 2^27)
//
// Products become integers, which are added: in any order and in however many parts, the sum is the same to
// the bit. A float near 2^14 has steps of 2^-9, one near 2^-4 steps of 2^-27: what adding such a number rounds a
// product to is in the sum's lowest bits. Values are 64 at most: a picture that has larger ones is flagged, since
// `beyond` is that of 64 or less. So a product has 22 bits before, and 18 behind the cut, and 2^24 pixels have room.
// tensor_vectors.cu makes floats of the sums.
//
// A block takes HEADS_EACH heads of some rows: runs of PIXELS pass by in shared memory, sums stay in registers.
//
// Arguments: `CrossSums` below. Layouts
//   in    map of STORED planes in groups of GROUP
//   sums  int64 [picture][each]; this adds to the first of them: [HEADS][DEPTH][DEPTH], [HEADS * DEPTH] twice
// Macros
//   THREADS, GROUP, STORED (planes), QUERY_PLANE, KEY_PLANE (the first ones), HEADS, HEADS_EACH, DEPTH (planes of a
//   head), EACH (sums of a thread), TERMS
// Bound: multiply-adds.
#define STACK 1
#include "tensor_cells.cuh"

#define PIXELS 32
#define PITCH (PIXELS + 4)
#define TAKEN (HEADS_EACH * DEPTH)
#define PAIRS (DEPTH * DEPTH)
#define ELEMENTS (HEADS_EACH * PAIRS + 2 * TAKEN)
#define NEAR_COARSE 24576.0f
#define NEAR_FINE 0.09375f
static_assert(ELEMENTS <= EACH * THREADS, "sums of a thread");

struct CrossSums {
    const uint8_t* in;
    unsigned long long* sums;
    uint32_t* flags;  // a word for each picture, see `flag_picture`
    Map from;         // top and left: of no meaning
    Range part;       // pixels of a cell
    int each;
    int across;       // pictures side by side
    int lines;        // rows of a block
    int beyond;
};

// Writes the planes from `first` on of the 8 at a plane to their rows of shared memory.
__device__ __forceinline__ void place_eight(float (*near)[PITCH], const float (&values)[8], int plane, int first,
                                            int pixel) {
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int own = plane + k - first;
        if (own >= 0 && own < TAKEN) near[own][pixel] = values[k];
    }
}

// Blocks: (parts of rows, parts of heads, pictures).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_cross_sums(const __grid_constant__ CrossSums p) {
    __shared__ __align__(16) float near[2 * TAKEN][PITCH];
    const int head = blockIdx.y * HEADS_EACH;
    const int top = p.part.top + blockIdx.x * p.lines, bottom = min(top + p.lines, p.part.bottom);
    const int down = blockIdx.z / p.across, along = blockIdx.z % p.across;
    int one[EACH], other[EACH];
    long long totals[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int element = min(static_cast<int>(threadIdx.x) + i * THREADS, ELEMENTS - 1);
        const int square = element - HEADS_EACH * PAIRS;
        one[i] = square < 0 ? element / DEPTH : square;
        other[i] = square < 0 ? TAKEN + element / PAIRS * DEPTH + element % DEPTH : square;
        totals[i] = 0;
    }
    uint32_t sizes = 0;
    for (int row = top; row < bottom; row++)
        for (int column = p.part.left; column < p.part.right; column += PIXELS) {
            __syncthreads();
            for (int item = threadIdx.x; item < PIXELS * 2 * (TAKEN / 8 + 2); item += THREADS) {
                const int pixel = item % PIXELS, vector = item / PIXELS / 2, is_key = item / PIXELS % 2;
                const int first = (is_key ? KEY_PLANE : QUERY_PLANE) + head * DEPTH;
                const int plane = (first / 8 + vector) * 8;
                if (plane >= first + TAKEN) continue;
                float values[8] = {};
                if (column + pixel < p.part.right) {
                    const uint8_t* const from =
                        p.in + single_at<GROUP, 1, STORED>(p.from, row, column + pixel, plane, down, along);
                    const uint4 words = term_of<STORED, GROUP>(from, p.from, 0);
#pragma unroll
                    for (int i = 0; i < 4; i++) add_sizes(sizes, (&words.x)[i], p.beyond);
                    add<STORED, GROUP>(values, from, p.from);
                }
                place_eight(near + is_key * TAKEN, values, plane, first, pixel);
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const float4* const a = reinterpret_cast<const float4*>(near[one[i]]);
                const float4* const b = reinterpret_cast<const float4*>(near[other[i]]);
                uint32_t coarse = 0, fine = 0;
#pragma unroll
                for (int four = 0; four < PIXELS / 4; four++) {
                    const float4 left = a[four], right = b[four];
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        const float made = fmaf((&left.x)[k], (&right.x)[k], NEAR_COARSE);
                        const float rest = fmaf((&left.x)[k], (&right.x)[k], NEAR_COARSE - made);
                        coarse += __float_as_uint(made);
                        fine += __float_as_uint(rest + NEAR_FINE);
                    }
                }
                coarse -= PIXELS * __float_as_uint(NEAR_COARSE);
                fine -= PIXELS * __float_as_uint(NEAR_FINE);
                totals[i] += static_cast<long long>(static_cast<int>(coarse)) * (1 << 18) + static_cast<int>(fine);
            }
        }
    flag_picture(p.flags, blockIdx.z, sizes, p.beyond);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int element = threadIdx.x + i * THREADS, square = element - HEADS_EACH * PAIRS;
        if (element >= ELEMENTS) continue;
        const int place = square < 0       ? head * PAIRS + element
                          : square < TAKEN ? HEADS * PAIRS + head * DEPTH + square
                                           : HEADS * (PAIRS + DEPTH) + head * DEPTH + square - TAKEN;
        unsigned long long* const target = p.sums + static_cast<size_t>(blockIdx.z) * p.each + place;
        atomicAdd(target, static_cast<unsigned long long>(totals[i]));
    }
}
