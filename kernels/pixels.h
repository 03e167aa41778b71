// A picture as the source of a kernel: its own integers, beyond its edges what its border says. To be
// included after maps.h.
//
// Macros
//   SOURCE_TYPE    of a level
//   SOURCE_UNIT    the value of one level
//   SOURCE_PLANES  of a pixel
//   ENLARGE        by which pixels are repeated
//   BORDER_REFLECT, BORDER_ZERO   one is defined unless the border is replicated

// The picture, its size, the place (row, column) of the pixel at which the kernel's coordinates begin,
// and how many of its ENLARGE repetitions lie before that.
#define PICTURE                                                                                    \
    const GLOBAL SOURCE_TYPE *RESTRICT source, const int height, const int width,                  \
        const int y_first, const int x_first, const int y_repeat, const int x_repeat

#define PIXEL_ROW(y) inside(y_first + (y_repeat + (y)) / ENLARGE, height)
#define PIXEL_COLUMN(x) inside(x_first + (x_repeat + (x)) / ENLARGE, width)

// The number of a pixel in its picture, which may have more than 2^31 of them; -1 for none.
DEVICE Place pixel_place(int row, int column, int width) {
#ifdef BORDER_ZERO
    if (row < 0 || column < 0) return -1;
#endif
    return (Place)row * width + column;
}

DEVICE float pixel_value(const GLOBAL SOURCE_TYPE *RESTRICT source, Place place, int plane) {
#ifdef BORDER_ZERO
    if (place < 0) return 0.0f;
#endif
    return (float)source[place * SOURCE_PLANES + plane] * SOURCE_UNIT;
}
