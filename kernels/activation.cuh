// What follows a sum, by the code of `Activation` in waifu2x/networks/model.py.

__device__ __forceinline__ float activation_of(int code, float x, float slope) {
    switch (code) {
        case 1: return 1.0f / (1.0f + expf(-x));
        case 2: return x / (1.0f + expf(-x));
        default: return x > 0.0f ? x : x * slope;
    }
}
