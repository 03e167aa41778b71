// 3x3 convolution by its definition, fp32, with leaky ReLU; the ends of a network fused in.
//
//     target(y, x, o) = leaky(bias(o) + sum over i, dy, dx of
//                             weight(o, i, dy, dx) * source(y + dy, x + dx, i))
//
// A work-item keeps LINE pixels x VECTORS vectors of output planes in registers, and for each input
// plane and each of three taps along the line it loads VECTORS vectors of weights and uses them for
// LINE pixels. Work-items of a group: LANES beside each other in planes, so that they share their
// inputs, times GROUP_X x GROUP_Y lines of pixels, which share the weights through the caches.
//
// Layouts
//   maps     [planes / BLOCK][rows][columns][BLOCK]: `area` pixels from a block to the next,
//            `pitch` from a row to the next. Rows and columns are allocated for whole groups, so
//            nothing is checked; what lies beyond a layer's region is computed and never used.
//   weights  [groups of planes][tap across][in plane][tap along][VECTORS][LANES][WIDTH]
//   bias     [groups of planes][VECTORS][LANES][WIDTH]
//   pixels   [rows][columns][planes], of a whole picture or a window of it
//
// Macros
//   IN_PLANES, OUT_PLANES  padded to whole LOADs and groups of planes
//   LINE, VECTORS, WIDTH, LANES, GROUP_X, GROUP_Y  shape of the work, see above; VECTOR is the type
//   DOWN                   1: the line of a work-item runs down a column, 0: along a row
//   LOAD                   input planes read at once, 1 or 4; divides IN_BLOCK
//   IN_BLOCK, OUT_BLOCK    BLOCK of the maps
//   SLOPE                  of the leaky ReLU
//   SOURCE_TYPE            where the source is pixels: their type, with SOURCE_UNIT, the value of
//                          one level, SOURCE_PLANES, and ENLARGE, by which they are repeated
//   TARGET_TYPE            where the target is pixels: their type, with TARGET_PEAK, the level of
//                          1.0 (0 for float), and TARGET_PLANES
//
// Bound: fp32 multiply-adds in the middle of a network, memory at its ends. Best: H200, 128 > 128
// planes, 1920x1080: 13.9 ms, 44 TFLOP/s, 0.91 of what the multiply-add units reach.

#include "dialect.h"

#define GROUP (LANES * GROUP_X * GROUP_Y)
#define REACH (LINE + 2)

#ifdef SOURCE_TYPE
#define SOURCE SOURCE_TYPE
#else
#define SOURCE float
#endif
#ifdef TARGET_TYPE
#define TARGET TARGET_TYPE
#else
#define TARGET float
#endif

// Planes plane .. plane + LOAD - 1 of one pixel.
DEVICE void load(float *values, const GLOBAL SOURCE *RESTRICT source, int place, int area,
                 int plane) {
#ifdef SOURCE_TYPE
    UNROLL for (int i = 0; i < LOAD; i++)
        values[i] = plane + i < SOURCE_PLANES
                        ? (float)source[(Wide)place * SOURCE_PLANES + plane + i] * SOURCE_UNIT
                        : 0.0f;
#elif LOAD == 4
    const int first = (plane / IN_BLOCK * area + place) * IN_BLOCK + plane % IN_BLOCK;
    const float4 four = *(const GLOBAL float4 *)(source + first);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
#else
    values[0] = source[(plane / IN_BLOCK * area + place) * IN_BLOCK + plane % IN_BLOCK];
#endif
}

KERNEL(GROUP)
direct(const GLOBAL SOURCE *RESTRICT source, const int source_pitch, const int source_area,
#ifdef SOURCE_TYPE
       // Place of the region's first input in the enlarged picture, whose size is height x width;
       // place of the window's first pixel in the picture.
       const int y_first, const int x_first, const int height, const int width, const int top,
       const int left,
#endif
       const GLOBAL VECTOR *RESTRICT weights, const GLOBAL VECTOR *RESTRICT bias,
       GLOBAL TARGET *RESTRICT target, const int target_pitch, const int target_area
#ifdef TARGET_TYPE
       // Place of the region's first result in the target; the part of the target to be written.
       , const int y_shift, const int x_shift, const int y_start, const int y_stop,
       const int x_start, const int x_stop
#endif
) {
    const int lane = LOCAL_ID() % LANES;
    const int line = LOCAL_ID() / LANES;
    const int planes = GROUP_ID(0);
    const int x = (GROUP_ID(1) * GROUP_X + line % GROUP_X) * (DOWN ? 1 : LINE);
    const int y = (GROUP_ID(2) * GROUP_Y + line / GROUP_X) * (DOWN ? LINE : 1);

    VECTOR sums[LINE][VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) {
        const VECTOR start = bias[(planes * VECTORS + v) * LANES + lane];
        UNROLL for (int n = 0; n < LINE; n++) sums[n][v] = start;
    }

    const GLOBAL VECTOR *weight = weights + planes * (9 * IN_PLANES * VECTORS * LANES) + lane;
    NO_UNROLL for (int across = 0; across < 3; across++) {
        int places[REACH];
        UNROLL for (int n = 0; n < REACH; n++) {
            const int py = y + (DOWN ? n : across), px = x + (DOWN ? across : n);
#ifdef SOURCE_TYPE
            const int row = min(max(y_first + py, 0), height - 1) / ENLARGE - top;
            const int column = min(max(x_first + px, 0), width - 1) / ENLARGE - left;
            places[n] = row * source_pitch + column;
#else
            places[n] = py * source_pitch + px;
#endif
        }
        NO_UNROLL for (int plane = 0; plane < IN_PLANES; plane += LOAD) {
            float values[REACH][LOAD];
            UNROLL for (int n = 0; n < REACH; n++)
                load(values[n], source, places[n], source_area, plane);
            UNROLL for (int i = 0; i < LOAD; i++) {
                UNROLL for (int along = 0; along < 3; along++) {
                    UNROLL for (int v = 0; v < VECTORS; v++) {
                        const VECTOR w = weight[((i * 3 + along) * VECTORS + v) * LANES];
                        UNROLL for (int n = 0; n < LINE; n++)
                            sums[n][v] = FMA(w, SPLAT(VECTOR, values[n + along][i]), sums[n][v]);
                    }
                }
            }
            weight += LOAD * 3 * VECTORS * LANES;
        }
    }

    UNROLL for (int n = 0; n < LINE; n++) {
        const int py = y + (DOWN ? n : 0), px = x + (DOWN ? 0 : n);
        UNROLL for (int v = 0; v < VECTORS; v++) {
            const VECTOR value = MAX(sums[n][v], sums[n][v] * SPLAT(VECTOR, SLOPE));
            const int plane = ((planes * VECTORS + v) * LANES + lane) * WIDTH;
#ifdef TARGET_TYPE
            const int row = py + y_shift, column = px + x_shift;
            if (row < y_start || row >= y_stop || column < x_start || column >= x_stop) continue;
            GLOBAL TARGET *pixel = target + ((Wide)row * target_pitch + column) * TARGET_PLANES;
            const float *parts = (const float *)&value;
            UNROLL for (int i = 0; i < WIDTH; i++) {
                const float unit = CLAMP(parts[i], 0.0f, 1.0f);
                if (plane + i < TARGET_PLANES)
#if TARGET_PEAK
                    pixel[plane + i] = (TARGET)ROUND(unit * TARGET_PEAK);
#else
                    pixel[plane + i] = unit;
#endif
            }
#else
            const int place = py * target_pitch + px;
            *(GLOBAL VECTOR *)(target + (plane / OUT_BLOCK * target_area + place) * OUT_BLOCK +
                               plane % OUT_BLOCK) = value;
#endif
        }
    }
}
