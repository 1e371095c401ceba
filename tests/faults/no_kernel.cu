// Planted fault: a file whose kernel is gone. The kernel gate must report that nothing was compiled.
#include <cuda_runtime.h>

extern "C" int launches_nothing() { return int(cudaSuccess); }
