// Planted faults for compute-sanitizer: `sanitizer memcheck` writes past an allocation, `sanitizer racecheck` reads shared memory that
// another warp writes with no barrier between. Where the tools do not report these, their silence about the tests proves nothing.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

__global__ void writes_past_the_end(int *data, int count) { data[count + threadIdx.x] = 1; }

__global__ void lacks_a_barrier(int *out) {
    __shared__ int slots[256];
    slots[threadIdx.x] = int(threadIdx.x);
    out[threadIdx.x] = slots[255 - threadIdx.x];
}

int main(int argc, char **argv) {
    int *data = nullptr;
    if (argc != 2 || cudaMalloc(&data, 256 * sizeof(int)) != cudaSuccess) return 2;
    if (!std::strcmp(argv[1], "memcheck")) writes_past_the_end<<<1, 32>>>(data, 256);
    else if (!std::strcmp(argv[1], "racecheck")) lacks_a_barrier<<<1, 256>>>(data);
    std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
