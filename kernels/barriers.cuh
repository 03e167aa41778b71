// Barriers in shared memory, of sm_80 and later: a phase ends when `count` threads have arrived and
// the announced bytes are there; phases are told apart by their parity, 0 first.
#include "integers.cuh"

__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("{ .reg .b64 state;\n"
                 "mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

// Waits until the phase of that parity has ended; that before the first one has.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{ .reg .pred done;\n"
#if __CUDA_ARCH__ >= 900
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
#else
        "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
#endif
        "@done bra over;\n"
        "bra again;\n"
        "over: }" ::"r"(barrier), "r"(parity) : "memory");
}
