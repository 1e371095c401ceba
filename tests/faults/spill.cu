// Planted fault: more values alive at once than its registers hold. The kernel gate must report the spill.
#include <cuda_runtime.h>

__global__ void __launch_bounds__(1024, 2) spills(const float *x, float *y) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = x[threadIdx.x + 1024 * i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; ++i) y[threadIdx.x + 1024 * i] = v[i] * v[63 - i] + v[(i * 7) % 64];
}
