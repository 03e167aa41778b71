// The peak rate of the units for matrix products of 16-bit floats: factors in registers, sums in fp32,
// nothing loaded.
//
// Every subgroup multiplies SIDE by SIDE matrices REPEATS times and stores a sum, so that none of it can
// be left out. The factors are noise: zeros need less power.
//
// Layouts
//   target   [group][work-item] of four floats
//   noise    16-bit floats, at least MATRIX_K rows of MATRIX_M and of MATRIX_N
//
// Macros, with those of matrices.h
//   GROUP, SUBGROUPS   work-items and subgroups of a group
//   SIDE               matrices of each factor
//   REPEATS            of the multiplication of each pair
//
// Bound: the units.

#include "matrices.h"

#define LEFT_ROW (MATRIX_K / 8)
#define RIGHT_ROW (MATRIX_N / 8)
#define LEFT_VECTORS (MATRIX_M * LEFT_ROW)
#define VECTORS (LEFT_VECTORS + MATRIX_K * RIGHT_ROW)
#define SUM_VECTORS (MATRIX_M * MATRIX_N / 4)
#define MOST (VECTORS > SUBGROUPS * SUM_VECTORS ? VECTORS : SUBGROUPS * SUM_VECTORS)

KERNEL(GROUP)
matrix_peak(GLOBAL float4 *RESTRICT target, const GLOBAL half *RESTRICT noise) {
    SHARED(shared, MOST);
    HELD(held, 1);
    LEFTS(lefts, SIDE);
    RIGHTS(rights, SIDE);
    SUMS(sums, SIDE, SIDE);
    NO_UNROLL for (int item = LOCAL_ID(); item < VECTORS; item += GROUP) {
        READ(held[0], noise + item * 8);
        PUT(shared, item, held[0]);
    }
    BARRIER();
    EACH for (int m = 0; m < SIDE; m++) {
        LOAD_LEFT(lefts[m], shared, 0, LEFT_ROW);
        LOAD_RIGHT(rights[m], shared, LEFT_VECTORS, RIGHT_ROW);
        EACH for (int n = 0; n < SIDE; n++) {
            ZERO(sums[m][n]);
        }
    }
    NO_UNROLL for (int step = 0; step < REPEATS; step++) {
        EACH for (int m = 0; m < SIDE; m++) {
            EACH for (int n = 0; n < SIDE; n++) {
                MULTIPLY(lefts[m], rights[n], sums[m][n]);
            }
        }
    }
    const int place = SUBGROUP * SUM_VECTORS;
    float4 total = SPLAT(float4, 0.0f);
    EACH for (int m = 0; m < SIDE; m++) {
        EACH for (int n = 0; n < SIDE; n++) {
            BARRIER();
            STORE_SUMS(sums[m][n], shared, place, MATRIX_N / 4);
            BARRIER();
            total = total + QUAD(shared, place + LANE % SUM_VECTORS);
        }
    }
    target[GROUP_ID(0) * GROUP + LOCAL_ID()] = total;
}
