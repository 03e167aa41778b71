// The matrix product of sm_90a, by a warpgroup: 64 x 16 by 16 x COLUMNS_EACH values in shared memory,
// accumulated in registers. The text of an instruction names every register, hence one case to each
// number of columns.
//
// Macros: GROUP (64 or 32, values of a row of an operand), COLUMNS_EACH (16, 32, 48, 64, 96 or 128; WIDTH
// unless defined before).
#include "integers.cuh"

#ifndef COLUMNS_EACH
#define COLUMNS_EACH WIDTH
#endif

#define ELEMENT "f16"

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A matrix in shared memory whose rows are GROUP values, in the order of tensor.cuh: 8 rows are a
// period of it.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    const uint64_t swizzle = GROUP == 64 ? 1 : 2;
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | 1ull << 16 |
           static_cast<uint64_t>(GROUP * 16 >> 4) << 32 | swizzle << 62;
}

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
              "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

// d (64 x COLUMNS_EACH) = a (64 x 16) * b (16 x COLUMNS_EACH), plus d if `add`.
__device__ __forceinline__ void wgmma(float (&d)[COLUMNS_EACH / 2], uint64_t a, uint64_t b, int add) {
#if COLUMNS_EACH == 16
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7},\n"
        "%8, %9, p, 1, 1, 0, 0; }\n"
        : D8(0)
        : "l"(a), "l"(b), "r"(add));
#elif COLUMNS_EACH == 32
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},\n"
        "%16, %17, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8)
        : "l"(a), "l"(b), "r"(add));
#elif COLUMNS_EACH == 48
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %26, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23},\n"
        "%24, %25, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8), D8(16)
        : "l"(a), "l"(b), "r"(add));
#elif COLUMNS_EACH == 64
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},\n"
        "%32, %33, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8), D8(16), D8(24)
        : "l"(a), "l"(b), "r"(add));
#elif COLUMNS_EACH == 96
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,\n"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47},\n"
        "%48, %49, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40)
        : "l"(a), "l"(b), "r"(add));
#elif COLUMNS_EACH == 128
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,\n"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,\n"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},\n"
        "%64, %65, p, 1, 1, 0, 0; }\n"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
        : "l"(a), "l"(b), "r"(add));
#endif
}

// For 32, 64 and 128 columns: d (64 x COLUMNS_EACH) = a (64 x 16, in registers as `mma` has it: 16 rows to a warp) * b (16 x COLUMNS_EACH),
// plus d if `add`.
__device__ __forceinline__ void wgmma_of_registers(float (&d)[COLUMNS_EACH / 2], const uint32_t (&a)[4], uint64_t b, int add) {
#if COLUMNS_EACH == 32
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},\n"
        "{%16,%17,%18,%19}, %20, p, 1, 1, 0; }\n"
        : D8(0), D8(8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
#elif COLUMNS_EACH == 64
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},\n"
        "{%32,%33,%34,%35}, %36, p, 1, 1, 0; }\n"
        : D8(0), D8(8), D8(16), D8(24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
#elif COLUMNS_EACH == 128
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." ELEMENT "." ELEMENT "\n"
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,\n"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,\n"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,\n"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},\n"
        "{%64,%65,%66,%67}, %68, p, 1, 1, 0; }\n"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
#endif
}

// The compiler sees results in registers as soon as a matrix product is issued: this keeps what reads or
// writes them on its side of a wait.
template <int COUNT>
__device__ __forceinline__ void pin_accumulators(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

template <int ROWS_OF_SUMS, int COUNT>
__device__ __forceinline__ void pin_accumulators(float (&sums)[ROWS_OF_SUMS][COUNT]) {
#pragma unroll
    for (int row = 0; row < ROWS_OF_SUMS; row++) pin_accumulators(sums[row]);
}

// Makes the next phase of a barrier wait for `bytes` copied bytes, too.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// A contiguous copy from device to shared memory; multiples of 16 bytes.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
