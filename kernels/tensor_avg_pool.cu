// Sums of global average pooling: of each plane of a map of tensor.cuh, over a part of it.
//
//     sums(plane) += sum over the pixels of the part of round(in(pixel, plane) * UNIT)
//
// Values become integers, multiples of 1 / UNIT, which are added: in any order and in however
// many parts, the sum is the same to the bit. tensor_vectors.cu divides them.
//
// Arguments: `AvgPool` below. Layouts
//   in    map of STORED planes in groups of GROUP
//   sums  int64 [picture][each]; this adds to the first PLANES of them
// Macros
//   THREADS, GROUP, STORED (planes), S2D, EACH (planes of a single pixel, padded), PLANES (those that
//   are not padding), TERMS, UNIT (a power of two; values up to 2^31 / UNIT in size are summed as they
//   are)
// Bound: device memory, for the map it reads.
#define STACK 1
#include "tensor.cuh"

#define VECTORS (GROUP / 8)
#define COLUMN_THREADS (THREADS / VECTORS)

struct AvgPool {
    const uint8_t* in;
    unsigned long long* sums;
    uint32_t* flags;  // a word for each picture, see `is_infinite`
    Map from;     // top and left: of no meaning
    Range part;   // single pixels of a cell
    int each;
    int across;   // pictures side by side
    int lines;    // stored rows of a block
    int beyond;   // see `is_infinite`
};

// Blocks: (parts of rows, groups, pictures).
extern "C" __global__ void __launch_bounds__(THREADS)
tensor_avg_pool(const __grid_constant__ AvgPool p) {
    __shared__ long long shared[COLUMN_THREADS][GROUP];
    const int vector = threadIdx.x % VECTORS, first = threadIdx.x / VECTORS;
    const int plane = blockIdx.y * GROUP + vector * 8;
    // The single pixels that these 8 planes belong to.
    const int dy = plane / EACH / S2D, dx = plane / EACH % S2D;
    const int top = p.part.top / S2D + blockIdx.x * p.lines;
    const int bottom = min(top + p.lines, (p.part.bottom + S2D - 1) / S2D);
    const int left = p.part.left / S2D, right = (p.part.right + S2D - 1) / S2D;
    const int down = blockIdx.z / p.across * p.from.rows, along = blockIdx.z % p.across * p.from.columns;
    long long sums[8] = {};
    uint32_t sizes = 0;
    for (int row = top; row < bottom; row++) {
        if (row * S2D + dy < p.part.top || row * S2D + dy >= p.part.bottom) continue;
#pragma unroll 8
        for (int column = left + first; column < right; column += COLUMN_THREADS) {
            const bool inside = column * S2D + dx >= p.part.left && column * S2D + dx < p.part.right;
            const uint8_t* const from = p.in + vector_at<GROUP>(p.from, down + row, along + column, plane);
            uint4 words[TERMS];
#pragma unroll
            for (int term = 0; term < TERMS; term++)
                words[term] = __ldg(reinterpret_cast<const uint4*>(
                    from + static_cast<size_t>(term * (STORED / GROUP)) * p.from.group * 16));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 two = unpack((&words[0].x)[i]);
                if (inside) add_sizes(sizes, (&words[0].x)[i], p.beyond);
                if (TERMS == 2) {
                    const float2 low = unpack((&words[TERMS - 1].x)[i]);
                    two.x += low.x;
                    two.y += low.y;
                }
                sums[i * 2] += inside ? __float2int_rn(two.x * UNIT) : 0;
                sums[i * 2 + 1] += inside ? __float2int_rn(two.y * UNIT) : 0;
            }
        }
    }
    flag_picture(p.flags, blockIdx.z, sizes, p.beyond);
#pragma unroll
    for (int i = 0; i < 8; i++) shared[first][vector * 8 + i] = sums[i];
    __syncthreads();
    if (threadIdx.x >= GROUP) return;
    long long sum = 0;
    for (int i = 0; i < COLUMN_THREADS; i++) sum += shared[i][threadIdx.x];
    const int own = (blockIdx.y * GROUP + threadIdx.x) % EACH;
    if (own >= PLANES) return;
    unsigned long long* const target = p.sums + static_cast<size_t>(blockIdx.z) * p.each + own;
    atomicAdd(target, static_cast<unsigned long long>(sum));
}
