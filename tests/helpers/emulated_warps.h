// Warps, shared memory and asynchronous copies of a GPU on the processor, for kernels as C++: see
// tests/helpers/emulated_kernels.py. Each thread of a block is a fiber; what a warp does together waits for all of
// its threads; warps take turns at random, each for as long as it can go on.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#ifndef SM75
#define SM75 0
#endif
#define __CUDA_ARCH__ 900
#define APART __attribute__((noinline))

struct float2 {
    float x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
struct int2 {
    int x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
template <class T>
static inline T __ldg(const T* pointer) { return *pointer; }
static inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline int __float2int_rn(float value) { return static_cast<int>(lrintf(value)); }
#define __expf expf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float power_of_two(float value) { return exp2f(value); }
// Blocks run one after the other, and so do threads.
static inline void atomicAdd(unsigned long long* to, unsigned long long value) { *to += value; }
template <class T>
static inline T min(T a, T b) { return a < b ? a : b; }
template <class T>
static inline T max(T a, T b) { return a > b ? a : b; }

// Leaves a fiber and goes on with another: only what calls preserve has to be kept.
extern "C" void switch_fibers(void** from, void* to);
asm(".text\n"
    ".globl switch_fibers\n"
    ".hidden switch_fibers\n"
    "switch_fibers:\n"
    "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp, (%rdi); mov %rsi, %rsp\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
    "ret\n");

namespace device {
enum { FIBER_BYTES = 96 << 10, LONGEST_WAIT = 100000000 };

struct Place {
    int x, y, z;
};
struct Copy {
    uint8_t* to;
    const uint8_t* from;
};
typedef std::vector<Copy> Copies;
struct Thread {
    void* stack_pointer;
    std::vector<uint8_t> stack;
    Place place;
    int lane, warp;
    bool is_done;
    Copies open;                                        // not in a group yet
    std::vector<Copies> groups;
    std::vector<std::pair<Copies, uint32_t>> arriving;  // at a barrier, when they are done
};
struct Lane {
    uint32_t a[4], b[2], result[4], value;
    float sums[4];
};
struct Warp {
    int arrived, generation, live, last;
    Lane lanes[32];
};
struct Barrier {
    int count, left, phase;
};

static std::vector<Thread> threads;
static std::vector<Warp> warps;
static std::map<int, Barrier> block_barriers;
static std::map<uint32_t, Barrier> shared_barriers;
static Thread* current;
static void* outside;
static Place block, grid;
static uint8_t* shared;
static bool is_late;  // copies happen when somebody waits for them, and not before
static uint64_t state;
static long waits;    // in a row
static int tries, live;

static uint32_t random_number() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 33;
}

APART static Thread* next_of(int warp) {
    for (int i = 0; i < 32; i++) {
        Thread* const thread = &threads[warp * 32 + (warps[warp].last = (warps[warp].last + 1) % 32)];
        if (!thread->is_done) return thread;
    }
    return nullptr;
}

static int any_warp() {
    int warp;
    do warp = random_number() % warps.size();
    while (!warps[warp].live);
    return warp;
}

// Lets other threads go on: of this warp, or, where it has waited long enough, of another.
APART static void yield(bool leaves_warp) {
    int warp = current->warp;
    if (!leaves_warp) tries = 0;
    else if (++waits > LONGEST_WAIT) {
        fprintf(stderr, "threads wait for each other\n");
        abort();
    } else if (++tries >= 64) {
        tries = 0;
        warp = any_warp();
    }
    Thread* const from = current;
    current = next_of(warp);
    if (current != from) switch_fibers(&from->stack_pointer, current->stack_pointer);
}

static Lane& lane() { return warps[current->warp].lanes[current->lane]; }

// Runs once what all threads of a warp do at once: the last that comes does it.
template <class Work>
APART static void together(Work work) {
    Warp& warp = warps[current->warp];
    const int generation = warp.generation;
    if (++warp.arrived == 32) {
        work(warp);
        warp.arrived = 0;
        warp.generation++;
        waits = 0;
    } else
        while (*static_cast<volatile int*>(&warp.generation) == generation) yield(false);
}

static void arrive(Barrier& barrier) {
    if (--barrier.left) return;
    barrier.left = barrier.count;
    barrier.phase++;
    waits = 0;
}

// bar.sync: who completes it may go on first, or others.
APART static void synchronize(int number, int count) {
    Barrier& barrier = block_barriers.emplace(number, Barrier{count, count, 0}).first->second;
    const int phase = barrier.phase;
    arrive(barrier);
    if (barrier.phase != phase && random_number() & 1) return;
    do yield(true);
    while (*static_cast<volatile int*>(&barrier.phase) == phase);
}

static void run(Copies& copies) {
    for (const Copy& copy : copies) memcpy(copy.to, copy.from, 16);
    copies.clear();
}

static void complete(Thread& thread) {
    for (auto& pair : thread.arriving) {
        run(pair.first);
        arrive(shared_barriers[pair.second]);
    }
    thread.arriving.clear();
}
}  // namespace device

#define threadIdx (device::current->place)
#define blockIdx (device::block)
#define gridDim (device::grid)

static uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - device::shared);
}
static uint16_t round_to_half(float value) { return _cvtss_sh(value, 0); }
static float widen(uint16_t half) { return _cvtsh_ss(half); }
static uint32_t pack(float a, float b) { return round_to_half(a) | static_cast<uint32_t>(round_to_half(b)) << 16; }
static void add_sizes(uint32_t& sizes, uint32_t pair, int beyond) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const uint32_t one = sizes >> shift & 0x7fff, other = pair >> shift & 0x7fff;
        result |= (one > other ? one : other) << shift;
    }
    sizes = result;
}
static float2 unpack(uint32_t pair) { return {widen(pair & 0xffff), widen(pair >> 16)}; }

APART static void __syncthreads() { device::synchronize(0, device::threads.size()); }
APART static void __syncwarp() {
    device::together([](device::Warp&) {});
}
APART static uint32_t __shfl_xor_sync(uint32_t, uint32_t value, int by) {
    device::lane().value = value;
    device::together([by](device::Warp& warp) {
        for (int i = 0; i < 32; i++) warp.lanes[i].result[0] = warp.lanes[i ^ by].value;
    });
    return device::lane().result[0];
}
static float __shfl_xor_sync(uint32_t all, float value, int by) {
    return __uint_as_float(__shfl_xor_sync(all, __float_as_uint(value), by));
}
APART static float __shfl_sync(uint32_t, float value, int from) {
    device::lane().value = __float_as_uint(value);
    device::together([](device::Warp&) {});
    const float found = __uint_as_float(device::warps[device::current->warp].lanes[from].value);
    device::together([](device::Warp&) {});
    return found;
}

APART static void copy16(uint8_t* to, const uint8_t* from) {
    device::Copy copy = {to, from};
    if (SM75 || !device::is_late) memcpy(copy.to, copy.from, 16);
    else device::current->open.push_back(copy);
}
static void copy16_or_zeros(uint8_t* to, const uint8_t* from, bool is_there) {
    static const uint8_t zeros[16] = {};
    copy16(to, is_there ? from : zeros);
}
static void commit() {
    device::current->groups.push_back(std::move(device::current->open));
    device::current->open.clear();
}
template <int ahead>
static void wait() {
    auto& groups = device::current->groups;
    for (; static_cast<int>(groups.size()) > ahead; groups.erase(groups.begin())) device::run(groups.front());
}

static void barrier_init(uint32_t barrier, int count) { device::shared_barriers[barrier] = {count, count, 0}; }
APART static void barrier_arrive(uint32_t barrier) { device::arrive(device::shared_barriers[barrier]); }
APART static void barrier_arrive_copied(uint32_t barrier) {
    device::current->arriving.emplace_back(std::move(device::current->open), barrier);
    device::current->open.clear();
    if (!device::is_late) device::complete(*device::current);
}
APART static void barrier_wait(uint32_t barrier, uint32_t parity) {
    while ((device::shared_barriers[barrier].phase & 1) == static_cast<int>(parity)) {
        device::complete(device::threads[device::random_number() % device::threads.size()]);
        device::yield(true);
    }
}

APART static void load_matrices(uint32_t (&r)[4], uint32_t address) {
    device::lane().value = address;
    device::together([](device::Warp& warp) {
        for (int i = 0; i < 32; i++)
            for (int matrix = 0; matrix < 4; matrix++) {
                const uint32_t row = warp.lanes[matrix * 8 + i / 4].value;
                memcpy(&warp.lanes[i].result[matrix], device::shared + row + i % 4 * 4, 4);
            }
    });
    memcpy(r, device::lane().result, sizeof r);
}

APART static void load_transposed(uint32_t (&r)[4], uint32_t address) {
    device::lane().value = address;
    device::together([](device::Warp& warp) {
        for (int i = 0; i < 32; i++)
            for (int matrix = 0; matrix < 4; matrix++)
                for (int k = 0; k < 2; k++) {
                    const uint32_t row = warp.lanes[matrix * 8 + i % 4 * 2 + k].value;
                    memcpy(reinterpret_cast<uint8_t*>(&warp.lanes[i].result[matrix]) + k * 2,
                           device::shared + row + i / 4 * 2, 2);
                }
    });
    memcpy(r, device::lane().result, sizeof r);
}

// m16n8k16, by the layout of fragments in the PTX ISA; added up in an order of its own.
APART static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    device::Lane& own = device::lane();
    memcpy(own.a, a, sizeof a);
    own.b[0] = b0;
    own.b[1] = b1;
    memcpy(own.sums, d, sizeof d);
    device::together([](device::Warp& warp) {
        float rows[16][16], columns[8][16];
        for (int i = 0; i < 32; i++)
            for (int word = 0; word < 4; word++)
                for (int k = 0; k < 2; k++) {
                    const int at = i % 4 * 2 + k;
                    const device::Lane& lane = warp.lanes[i];
                    rows[i / 4 + word % 2 * 8][at + word / 2 * 8] = widen(lane.a[word] >> 16 * k);
                    if (word < 2) columns[i / 4][at + word * 8] = widen(lane.b[word] >> 16 * k);
                }
        for (int i = 0; i < 32; i++)
            for (int sum = 0; sum < 4; sum++) {
                const float* const row = rows[i / 4 + sum / 2 * 8];
                const float* const column = columns[i % 4 * 2 + sum % 2];
                float& total = warp.lanes[i].sums[sum];
                for (int k = 0; k < 16; k++) total += row[k] * column[k];
            }
    });
    memcpy(d, device::lane().sums, sizeof d);
}

