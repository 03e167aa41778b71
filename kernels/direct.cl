// Convolutions by their definition, fp32: of any planes and taps, the ends of a network fused in.
//
//     target(y, x, o) = epilogue(bias(o) + sum over i, dy, dx of
//                                weight(o, i, dy, dx) * source(y + dy, x + dx, i))
//
// A work-item accumulates LINE pixels x VECTORS vectors of output planes in registers, and for each
// input plane and each of TAPS taps along the line it loads VECTORS vectors of weights and uses them
// for LINE pixels. Work-items of a group: LANES beside each other in planes, so that they share their
// inputs, times GROUP_X x GROUP_Y lines of pixels, which share the weights through the caches.
//
// Layouts
//   source, target, residual   see maps.h; the epilogue and the store are those of store.h
//   weights  [groups of planes][tap across][in plane][tap along][VECTORS][LANES][WIDTH]
//   bias     [groups of planes][VECTORS][LANES][WIDTH], then as many slopes
//
// Macros, with those of result.h and, where the ends are pixels, of pixels.h and levels.h
//   TAPS                   in each direction
//   IN_PLANES, OUT_PLANES  padded to whole LOADs and groups of planes
//   GROUP                  work-items of a group
//   LINE, VECTORS, WIDTH, LANES, GROUP_X, GROUP_Y  shape of the work, see above; VECTOR is the type
//   DOWN                   1: the line of a work-item runs down a column, 0: along a row
//   LOAD                   input planes read at once, 1 or 4; divides BLOCK
//
// Bound: fp32 multiply-adds in the middle of a network, memory at its ends. Best: NVIDIA H200,
// 2026-11-21, 128 > 128 planes, 1920x1080: 13.9 ms, 44 TFLOP/s, 0.91 of what the multiply-add units
// reach; 3 > 32 0.256 ms, 128 > 3 1.10 ms.

#include "result.h"
#ifdef SOURCE_TYPE
#include "pixels.h"
#endif

STATIC_ASSERT(group_is_of_lanes_and_lines, GROUP == LANES * GROUP_X * GROUP_Y);
#define RADIUS (LINE + TAPS - 1)

#ifdef SOURCE_TYPE
#define SOURCE SOURCE_TYPE
#define SOURCE_PLACE Place
#define SOURCE_ARGUMENTS PICTURE
#else
#define SOURCE ELEMENT
#define SOURCE_PLACE int
#define SOURCE_ARGUMENTS MAP(const GLOBAL ELEMENT *RESTRICT, source)
#endif

// Planes plane .. plane + LOAD - 1 of one pixel.
DEVICE void load(float *values, const GLOBAL SOURCE *RESTRICT source, SOURCE_PLACE place, int area,
                 int plane) {
#ifdef SOURCE_TYPE
    UNROLL for (int i = 0; i < LOAD; i++)
        values[i] = plane + i < SOURCE_PLANES ? pixel_value(source, place, plane + i) : 0.0f;
#elif LOAD == 4
    const int first = (plane / BLOCK * area + place) * BLOCK + plane % BLOCK;
    const float4 four = *(const GLOBAL ELEMENT4 *)(source + first);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
#else
    values[0] = source[(plane / BLOCK * area + place) * BLOCK + plane % BLOCK];
#endif
}

// `row_groups` are the groups down a picture: those of all pictures follow each other.
KERNEL(GROUP)
direct(SOURCE_ARGUMENTS, const GLOBAL VECTOR *RESTRICT weights, const GLOBAL VECTOR *RESTRICT bias,
       const int row_groups, STORE_ARGUMENTS CHECK_ARGUMENTS) {
    const int lane = LOCAL_ID() % LANES;
    const int line = LOCAL_ID() / LANES;
    const int planes = GROUP_ID(0);
    const int picture = GROUP_ID(2) / row_groups, row_group = GROUP_ID(2) % row_groups;
    const int x = (GROUP_ID(1) * GROUP_X + line % GROUP_X) * (DOWN ? 1 : LINE);
    const int y = (row_group * GROUP_Y + line / GROUP_X) * (DOWN ? LINE : 1);

#ifdef SOURCE_TYPE
    source += (Wide)picture * height * width * SOURCE_PLANES;
    const int source_area = 0;
#else
    FIND(source, BLOCK, picture);
#endif
    FIND_TARGET(picture);
    FIND_RESIDUAL(picture);

    VECTOR sums[LINE][VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) {
        const VECTOR start = bias[(planes * VECTORS + v) * LANES + lane];
        UNROLL for (int n = 0; n < LINE; n++) sums[n][v] = start;
    }

    const GLOBAL VECTOR *weight =
        weights + planes * (TAPS * TAPS * IN_PLANES * VECTORS * LANES) + lane;
    NO_UNROLL for (int across = 0; across < TAPS; across++) {
        SOURCE_PLACE places[RADIUS];
        UNROLL for (int n = 0; n < RADIUS; n++) {
            const int py = y + (DOWN ? n : across), px = x + (DOWN ? across : n);
#ifdef SOURCE_TYPE
            places[n] = pixel_place(PIXEL_ROW(py), PIXEL_COLUMN(px), width);
#else
            places[n] = py * source_pitch + px;
#endif
        }
        NO_UNROLL for (int plane = 0; plane < IN_PLANES; plane += LOAD) {
            float values[RADIUS][LOAD];
            UNROLL for (int n = 0; n < RADIUS; n++)
                load(values[n], source, places[n], source_area, plane);
            UNROLL for (int i = 0; i < LOAD; i++) {
                UNROLL for (int along = 0; along < TAPS; along++) {
                    UNROLL for (int v = 0; v < VECTORS; v++) {
                        const VECTOR w = weight[((i * TAPS + along) * VECTORS + v) * LANES];
                        UNROLL for (int n = 0; n < LINE; n++)
                            sums[n][v] = FMA(w, SPLAT(VECTOR, values[n + along][i]), sums[n][v]);
                    }
                }
            }
            weight += LOAD * TAPS * VECTORS * LANES;
        }
    }

    UNROLL for (int v = 0; v < VECTORS; v++) {
        const int plane = ((planes * VECTORS + v) * LANES + lane) * WIDTH;
        const VECTOR slope = SLOPE_AT(VECTOR, bias + OUT_PLANES / WIDTH, plane / WIDTH);
        if (HAS_SPARE && plane >= STORED) continue;
        UNROLL for (int n = 0; n < LINE; n++) {
            const int py = y + (DOWN ? n : 0), px = x + (DOWN ? 0 : n);
#ifdef CHECKED
            if (plane == 0) {
                CHECK_SUM(sums[n][v].x, py, px, picture);
            }
#endif
            store_result(ACTIVATE(VECTOR, sums[n][v], slope), py, px, plane, STORE_NAMES);
        }
    }
}
