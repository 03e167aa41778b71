// The peak rate of the matrix units: matrix products of values in shared memory (WGMMA = 1) or in
// registers (0), accumulated in registers, nothing else.
//
// The values are noise: zeros need less power, and would run faster than any picture.
//
// Layout: target float [block][thread], sums that are stored so that none of the work can be left out.
// Macros: WGMMA, REPEATS, THREADS; GROUP = 64 and WIDTH = 128 for wgmma.
// Bound: the matrix unit. Best: NVIDIA H200, 2026-11-21: 900 TFLOP/s by wgmma, 650 by mma.
//
// Included here, since a file is included once, whichever branch comes first.
#include "integers.cuh"
#if WGMMA
#include "wgmma.cuh"
#else
#include "mma.cuh"
#endif

// Two values between -1 and 1.
__device__ __forceinline__ uint32_t noise(uint32_t seed) {
    seed = seed * 747796405u + 2891336453u;
    seed = (seed >> ((seed >> 28) + 4) ^ seed) * 277803737u;
    return (seed >> 22 ^ seed) & 0xbbffbbffu;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) tensor_peak(float* __restrict__ target) {
    float total = 0;
#if WGMMA
    extern __shared__ __align__(1024) uint32_t shared[];
    const int words = (64 + WIDTH) * GROUP / 2;
    for (int i = threadIdx.x; i < words; i += THREADS) shared[i] = noise(i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float sums[WIDTH / 2] = {};
    const uint32_t a = shared_address(shared), b = a + 64 * GROUP * 2;
    for (int i = 0; i < REPEATS; i++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < GROUP / 16; k++) wgmma(sums, descriptor(a + k * 32), descriptor(b + k * 32), 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < WIDTH / 2; i++) {
        asm volatile("" : "+f"(sums[i])::"memory");
        total += sums[i];
    }
#else
    uint32_t a[4], b[2];
    float sums[16][4] = {};
    for (int i = 0; i < 4; i++) a[i] = noise(threadIdx.x * 8 + i);
    for (int i = 0; i < 2; i++) b[i] = noise(threadIdx.x * 8 + 4 + i);
    for (int i = 0; i < REPEATS; i++)
#pragma unroll
        for (int n = 0; n < 16; n++) mma(sums[n], a, b[0], b[1]);
    for (int n = 0; n < 16; n++) total += sums[n][0] + sums[n][1] + sums[n][2] + sums[n][3];
#endif
    target[blockIdx.x * THREADS + threadIdx.x] = total;
}
