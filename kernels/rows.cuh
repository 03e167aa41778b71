// Kernels that go down strips of a picture, row by row: which rows are whose.
//
// Macros: DEPTH and SIDE, see tensor_rows.cu.
#include "tensor.cuh"

// Rows of results of a block: `begin` to before `end` of all strips, one strip after the other. Each block
// has as many, or one more.
struct Rows {
    int each;  // of a strip
    int begin, end;
};

__device__ __forceinline__ Rows rows_of_block(const LayerExtent& extent) {
    const long long tiles = extent.tiles;
    const int blocks = gridDim.x / DEPTH, block = blockIdx.x / DEPTH;
    return {extent.tiles / extent.tiles_across, static_cast<int>(tiles * block / blocks),
            static_cast<int>(tiles * (block + 1) / blocks)};
}

// The tile of a row.
__device__ __forceinline__ Tile tile_of_row(int number, const Rows& rows, const Conv& p) {
    const int strip = number / rows.each;
    return tile_at((number - strip * rows.each) * p.extent.tiles_across + strip, p);
}

// The first row of input that a row of results reads, counted from the block's first.
__device__ __forceinline__ int first_input(int number, const Rows& rows) {
    return number - rows.begin + (number / rows.each - rows.begin / rows.each) * (SIDE - 1);
}
