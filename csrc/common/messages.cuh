// Sums that blocks of a grid exchange through global memory, on whichever SMs they run.
#pragma once
#include <cstdint>

namespace bops {

// Leaves two sums of a block for the other blocks of its team. Each sum is stored together with the tag in one 64-bit word, so that a reader can tell
// whether it has arrived and no fence is needed.
__device__ __forceinline__ void send_sums(uint4 *to, float2 sums, uint32_t tag) {
    const uint64_t first = uint64_t(tag) << 32 | __float_as_uint(sums.x), second = uint64_t(tag) << 32 | __float_as_uint(sums.y);
    asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second) : "memory");
}
__device__ __forceinline__ void load_message(const uint4 *from, uint64_t &first, uint64_t &second) {
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(from) : "memory");
}
// Waits until both sums with this tag have arrived.
__device__ __forceinline__ float2 receive_sums(const uint4 *from, uint32_t tag) {
    uint64_t first, second;
    do load_message(from, first, second);
    while (uint32_t(first >> 32) != tag || uint32_t(second >> 32) != tag);
    return make_float2(__uint_as_float(uint32_t(first)), __uint_as_float(uint32_t(second)));
}

} // namespace bops
