// Planted fault: a variable that nothing reads. The kernel gate must report the compiler's warning.
#include <cuda_runtime.h>

__global__ void warns(float *y) {
    int unused = 3;
    y[threadIdx.x] = 1;
}
