// Planted fault: a copy with a cache policy to an address that ptxas keeps in a uniform and another register. The kernel gate must report
// the instruction.
#include <cstdint>
#include <cuda_runtime.h>

extern __shared__ __align__(16) unsigned char stages[];

__global__ void copies_to_two_registers(const uint4 *x, uint4 *y, uint32_t rows) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    uint32_t offset = threadIdx.x * 16;
    for (uint32_t row = 0; row < rows; ++row, offset += 4096) {
        const uint32_t to = uint32_t(__cvta_generic_to_shared(stages + offset));
        const uint4 *const from = x + row * 256 + threadIdx.x;
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (uint32_t row = 0; row < rows; ++row, offset -= 4096) y[row * 256 + threadIdx.x] = *reinterpret_cast<uint4 *>(stages + offset);
}
