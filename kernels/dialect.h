// One source for OpenCL C 1.2 and CUDA C++: the words in which they differ.
//
// Groups are one-dimensional, and as large as KERNEL says. Every multiply-add is written as one, so
// that a value is rounded alike wherever it is computed.

// Values that the host computes as well must be the same there.
#define STATIC_ASSERT(name, condition) typedef char name[(condition) ? 1 : -1]

#ifdef __OPENCL_VERSION__

#define KERNEL(group) __kernel __attribute__((reqd_work_group_size(group, 1, 1))) void
#define KERNEL_FOR(group, groups) KERNEL(group)
#define DEVICE inline
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_MEMORY __local
#define RESTRICT restrict
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define LOCAL_ID() ((int)get_local_id(0))
#define GROUP_ID(d) ((int)get_group_id(d))
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

typedef size_t Wide;
typedef long Place;
typedef long Sum;

#define SPLAT(type, x) ((type)(x))
#define CLAMP(x, low, high) clamp(x, low, high)
#define ROUND(x) rint(x)
#define STORE(type, place, value) *(GLOBAL type *)(place) = (value)
#define WHERE(type, test, a, b) ((test) > SPLAT(type, 0.0f) ? (a) : (b))
#define EXP(type, x) exp(x)
#define TANH(type, x) tanh(x)
#define ERF(type, x) erf(x)
#define SQRT(x) sqrt(x)
#define SIGMOID(type, x) (SPLAT(type, 1.0f) / (SPLAT(type, 1.0f) + exp(-(x))))

#ifdef ON_CPU
// On processors, fma() and fmax() may be calls of a library; these are an instruction each.
#pragma OPENCL FP_CONTRACT ON
#define FMA(a, b, c) ((a) * (b) + (c))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#else
#define FMA(a, b, c) fma(a, b, c)
#define MAX(a, b) fmax(a, b)
#define MIN(a, b) fmin(a, b)
#endif

#else

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef size_t Wide;
typedef long long Place;
typedef long long Sum;

#define KERNEL(group) extern "C" __global__ void __launch_bounds__(group)
// Registers for at most `groups` groups of a multiprocessor: nvcc would spill some to fit more.
#define KERNEL_FOR(group, groups)                                                                  \
    extern "C" __global__ void __launch_bounds__(group, groups)
#define DEVICE __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define LOCAL_MEMORY __shared__
#define RESTRICT __restrict__
#define BARRIER() __syncthreads()
#define LOCAL_ID() ((int)threadIdx.x)
#define GROUP_ID(d) ((int)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

#define SPLAT(type, x) Splat<type>::of(x)
#define FMA(a, b, c) fma_of(a, b, c)
#define MAX(a, b) max_of(a, b)
#define MIN(a, b) min_of(a, b)
#define STORE(type, place, value) store_of((type *)(place), value)
#define WHERE(type, test, a, b) where_of(test, a, b)
#define EXP(type, x) exp_of(x)
#define TANH(type, x) tanh_of(x)
#define ERF(type, x) erf_of(x)
#define SQRT(x) sqrtf(x)
#define SIGMOID(type, x) sigmoid_of(x)
#define CLAMP(x, low, high) fminf(fmaxf(x, low), high)
#define ROUND(x) rintf(x)

template <class Vector> struct Splat;
template <> struct Splat<float> {
    DEVICE static float of(float x) { return x; }
};
template <> struct Splat<float4> {
    DEVICE static float4 of(float x) { return make_float4(x, x, x, x); }
};

DEVICE float fma_of(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float4 fma_of(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
                       fmaf(a.w, b.w, c.w));
}

DEVICE float max_of(float a, float b) { return fmaxf(a, b); }
DEVICE float4 max_of(float4 a, float4 b) {
    return make_float4(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w));
}

DEVICE float min_of(float a, float b) { return fminf(a, b); }
DEVICE float4 min_of(float4 a, float4 b) {
    return make_float4(fminf(a.x, b.x), fminf(a.y, b.y), fminf(a.z, b.z), fminf(a.w, b.w));
}

// nvcc takes plain stores of vectors apart.
DEVICE void store_of(float *place, float value) { *place = value; }
DEVICE void store_of(float4 *place, float4 value) { __stwb(place, value); }

DEVICE float where_of(float test, float a, float b) { return test > 0.0f ? a : b; }
DEVICE float4 where_of(float4 test, float4 a, float4 b) {
    return make_float4(where_of(test.x, a.x, b.x), where_of(test.y, a.y, b.y),
                       where_of(test.z, a.z, b.z), where_of(test.w, a.w, b.w));
}

DEVICE float exp_of(float x) { return expf(x); }
DEVICE float4 exp_of(float4 x) { return make_float4(expf(x.x), expf(x.y), expf(x.z), expf(x.w)); }

DEVICE float tanh_of(float x) { return tanhf(x); }
DEVICE float4 tanh_of(float4 x) {
    return make_float4(tanhf(x.x), tanhf(x.y), tanhf(x.z), tanhf(x.w));
}

DEVICE float erf_of(float x) { return erff(x); }
DEVICE float4 erf_of(float4 x) { return make_float4(erff(x.x), erff(x.y), erff(x.z), erff(x.w)); }

DEVICE float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float4 sigmoid_of(float4 x) {
    return make_float4(sigmoid_of(x.x), sigmoid_of(x.y), sigmoid_of(x.z), sigmoid_of(x.w));
}

DEVICE float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
DEVICE float4 operator-(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
DEVICE float4 operator/(float4 a, float4 b) {
    return make_float4(a.x / b.x, a.y / b.y, a.z / b.z, a.w / b.w);
}
DEVICE float4 operator*(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

#endif
