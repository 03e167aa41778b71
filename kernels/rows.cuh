// Kernels that go down strips of a picture, row by row: which rows are whose.
//
// Macros: DEPTH and SIDE, see tensor_rows.cu.
#include "tensor.cuh"

// Rows of results are counted through all strips, one strip after the other; `extent.tiles` are those of a
// strip.
struct Row {
    int strip, row;
    int input;  // the first row of input that it reads, counted from the block's first
};

// The first row of a block. Each block has as many as another, or one more.
__device__ __forceinline__ Row first_row(int block, const LayerExtent& extent) {
    const long long rows = static_cast<long long>(extent.tiles) * extent.tiles_across;
    const int number = static_cast<int>(rows * block / (gridDim.x / DEPTH));
    return {number / extent.tiles, number % extent.tiles, 0};
}

__device__ __forceinline__ int rows_between(const Row& first, const Row& last, const LayerExtent& extent) {
    return (last.strip - first.strip) * extent.tiles + last.row - first.row;
}

__device__ __forceinline__ void advance(Row& at, int by, const LayerExtent& extent) {
    at.row += by;
    at.input += by;
    while (at.row >= extent.tiles) {
        at.row -= extent.tiles;
        at.strip++;
        at.input += SIDE - 1;
    }
}

__device__ __forceinline__ Tile tile_of_row(const Row& at, const Conv& p) {
    return tile_at(at.row * p.extent.tiles_across + at.strip, p);
}
