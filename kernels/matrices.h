// The matrix products of subgroups, which hold matrices together, and the memory that a group shares
// for them.
//
// Without units for them every subgroup is a work-item, its factors are places in shared memory,
// which holds floats, and its sums are there, too: slow, for tests of what is around them.
//
// Shared memory is counted in vectors of 16 bytes: eight 16-bit floats, or four floats.
//
// Macros
//   MATRIX_M, MATRIX_N, MATRIX_K   rows and columns of a product, and the length of its sums
//   SUB              work-items of a subgroup
//   HAS_UNITS        defined: there are units; arrays of matrices are then indexed by constants, which is
//                    what loops of EACH are for

#include "dialect.h"

#ifdef HAS_UNITS
#define EACH UNROLL
#define SHARED(name, vectors) LOCAL_MEMORY float4 name[vectors]
#define HELD(name, count) float4 name[count]
#define READ(held, from) held = *(const GLOBAL float4 *)(from)
#define CLEAR(held) held = SPLAT(float4, 0.0f)
#define PUT(shared, place, held) shared[place] = held
#define QUAD(shared, place) shared[place]
#define LEFTS(name, count) matrix_a name[count]
#define RIGHTS(name, count) matrix_b name[count]
#define SUMS(name, rows, columns) matrix_c name[rows][columns]
#define ZERO(sums) sums = (matrix_c)(0.0f)
#define LOAD_LEFT(matrix, shared, place, step) matrix = load_a(shared + (place), step)
#define LOAD_RIGHT(matrix, shared, place, step) matrix = load_b(shared + (place), step)
#define STORE_SUMS(sums, shared, place, step) store_c(shared + (place), step, sums)
#define MULTIPLY(left, right, sums) sums = multiply_matrices(left, right, sums)
#define SUBGROUP get_sub_group_id()
#define LANE get_sub_group_local_id()
#define SUBGROUP_BARRIER() sub_group_barrier(CLK_LOCAL_MEM_FENCE)
#else
#define EACH NO_UNROLL
#define SHARED(name, vectors) LOCAL_MEMORY float name[8 * (vectors)]
#define HELD(name, count) float4 name[count][2]
#define READ(held, from)                                                                           \
    held[0] = *(const GLOBAL half4 *)(from), held[1] = *(const GLOBAL half4 *)((from) + 4)
#define CLEAR(held) held[0] = held[1] = SPLAT(float4, 0.0f)
#define PUT(shared, place, held)                                                                   \
    put_four(shared + 8 * (place), held[0]), put_four(shared + 8 * (place) + 4, held[1])
#define QUAD(shared, place) quad_of(shared + 4 * (place))
#define LEFTS(name, count) int name[count][2]
#define RIGHTS(name, count) int name[count][2]
#define SUMS(name, rows, columns)                                                                  \
    LOCAL_MEMORY float name[rows][columns][GROUP * MATRIX_M * MATRIX_N]
#define ZERO(sums)                                                                                 \
    NO_UNROLL for (int each = 0; each < MATRIX_M * MATRIX_N; each++) sums[SUM_OF(each)] = 0.0f
#define LOAD_LEFT(matrix, shared, place, step) matrix[0] = 8 * (place), matrix[1] = 8 * (step)
#define LOAD_RIGHT(matrix, shared, place, step) LOAD_LEFT(matrix, shared, place, step)
#define STORE_SUMS(sums, shared, place, step) store_sums(shared + 4 * (place), 4 * (step), sums)
#define MULTIPLY(left, right, sums)                                                                \
    multiply(shared + left[0], left[1], shared + right[0], right[1], sums)
#define SUM_OF(each) (LOCAL_ID() * (MATRIX_M * MATRIX_N) + (each))
#define SUBGROUP LOCAL_ID()
#define LANE 0
#define SUBGROUP_BARRIER()

DEVICE void put_four(LOCAL float *place, const float4 held) {
    place[0] = held.x, place[1] = held.y, place[2] = held.z, place[3] = held.w;
}

DEVICE float4 quad_of(const LOCAL float *place) {
    float4 made;
    float *parts = (float *)&made;
    UNROLL for (int i = 0; i < 4; i++) parts[i] = place[i];
    return made;
}

DEVICE void store_sums(LOCAL float *place, const int step, const LOCAL float *sums) {
    NO_UNROLL for (int i = 0; i < MATRIX_M; i++) {
        NO_UNROLL for (int j = 0; j < MATRIX_N; j++)
            place[i * step + j] = sums[SUM_OF(i * MATRIX_N + j)];
    }
}

DEVICE void multiply(const LOCAL float *left, const int left_step, const LOCAL float *right,
                     const int right_step, LOCAL float *sums) {
    NO_UNROLL for (int i = 0; i < MATRIX_M; i++) {
        NO_UNROLL for (int j = 0; j < MATRIX_N; j++) {
            float sum = sums[SUM_OF(i * MATRIX_N + j)];
            NO_UNROLL for (int k = 0; k < MATRIX_K; k++)
                sum = FMA(left[i * left_step + k], right[k * right_step + j], sum);
            sums[SUM_OF(i * MATRIX_N + j)] = sum;
        }
    }
}
#endif
