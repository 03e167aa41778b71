// The epilogue of convolutions, fp32: activation, factor, residual, store.
//
//     value = activation(sum) * FACTOR + residual
//
// The planes of a convolution come in the order [dy][dx][plane], where dy and dx are below D2S,
// SUB_PLANES of each: those that the target has, padded where it is a map.
//
// Macros
//   ACTIVATE(type, x, slope)   the activation, in the words of dialect.h
//   SLOPE            if it is the same for all planes; else slopes stand behind the biases
//   FACTOR           if it is not 1
//   RESIDUAL         defined: there is one, a map of the convolution's own pixels and planes
//   JOIN(type, x, residual)   defined: computes the result from what is made, x, and the residual
//   BLOCK            of maps
//   SUB_PLANES, SUB_BLOCKS   planes of one pixel of the target, as of the convolution, and their blocks
//   STORED           planes of the convolution that are written
//   D2S, S2D    of the store; one of them is 1
//   ZERO_OUTSIDE     defined: the target holds zeros outside `y_start`, `y_stop`, `x_start`, `x_stop`

#include "maps.h"

#ifdef SLOPE
#define SLOPE_AT(type, slopes, place) SPLAT(type, SLOPE)
#else
#define SLOPE_AT(type, slopes, place) (slopes)[place]
#endif
// Whether planes beyond those that are written can come.
#define HAS_SPARE (STORED < OUT_PLANES)

#ifdef TARGET_TYPE
#define TARGET_ARGUMENTS PIXELS
#else
#define TARGET_ARGUMENTS MAP(GLOBAL ELEMENT *RESTRICT, target)
#endif

#ifdef RESIDUAL
#define RESIDUAL_ARGUMENTS , MAP(const GLOBAL ELEMENT *RESTRICT, residual)
#else
#define RESIDUAL_ARGUMENTS
#endif
#if defined(ZERO_OUTSIDE) || defined(TARGET_TYPE)
// Pixels of the target, from the first that the convolution makes.
#define BOUNDS , const int y_start, const int y_stop, const int x_start, const int x_stop
#define IS_INSIDE(y, x) ((y) >= y_start && (y) < y_stop && (x) >= x_start && (x) < x_stop)
#else
#define BOUNDS
#define IS_INSIDE(y, x) 1
#endif
#define STORE_ARGUMENTS TARGET_ARGUMENTS RESIDUAL_ARGUMENTS BOUNDS

#ifdef JOIN
#define SCALED(type, x) (x)
#define SUMMED(type, x, residual) JOIN(type, x, residual)
#elif defined(FACTOR)
#define SCALED(type, x) ((x) * SPLAT(type, FACTOR))
#define SUMMED(type, x, residual) FMA(x, SPLAT(type, FACTOR), residual)
#else
#define SCALED(type, x) (x)
#define SUMMED(type, x, residual) ((x) + (residual))
#endif

// The target's pixel behind a pixel and a plane of the convolution.
DEVICE int target_y(int y, int plane) { return y * D2S + plane / SUB_PLANES / D2S; }
DEVICE int target_x(int x, int plane) { return x * D2S + plane / SUB_PLANES % D2S; }

// The place of a plane in a target that is a map.
DEVICE int target_place(int y, int x, int plane, int pitch, int area) {
#if S2D > 1
    const int block = (y % S2D * S2D + x % S2D) * SUB_BLOCKS + plane / BLOCK;
    return (block * area + y / S2D * pitch + x / S2D) * BLOCK + plane % BLOCK;
#else
    const int own = D2S > 1 ? plane % SUB_PLANES : plane;
    const int place = target_y(y, D2S > 1 ? plane : 0) * pitch +
                      target_x(x, D2S > 1 ? plane : 0);
    return (own / BLOCK * area + place) * BLOCK + own % BLOCK;
#endif
}

// The place of a plane in the residual.
DEVICE int residual_place(int y, int x, int plane, int pitch, int area) {
    const int own = D2S > 1 ? plane % SUB_PLANES : plane;
    const int block = (D2S > 1 ? plane / SUB_PLANES * SUB_BLOCKS : 0) + own / BLOCK;
    return (block * area + y * pitch + x) * BLOCK + own % BLOCK;
}
