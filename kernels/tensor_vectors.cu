// Tasks of vectors.cuh by themselves, a block to each picture: sums set to zero before the first pass, and
// means and dense layers that no launch of tensor_average.cu ends with.
//
// Arguments: `Tasks` of vectors.cuh.
// Bound: the time of a launch.
#include "vectors.cuh"

extern "C" __global__ void __launch_bounds__(VECTOR_THREADS)
tensor_vectors(const __grid_constant__ Tasks p) {
    run_tasks(p, blockIdx.x);
}
