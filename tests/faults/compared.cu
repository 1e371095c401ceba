// For scripts/compare-kernels: two kernels that are the same under another NAME; with another FACTOR the second one is not.
__global__ void NAME(float *x) { x[threadIdx.x] = x[threadIdx.x] * 2 + 1; }

__global__ void scaled(float *x) { x[threadIdx.x] = x[threadIdx.x] * FACTOR + 1; }
