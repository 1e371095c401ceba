// The ring in shared memory through which teams that walk over groups fetch them: one warp has the bulk copy engine fill its places, other warps read
// them. Compute capability 9.0.
#pragma once
#include "channel_norm_walk.cuh"

namespace bops {

// Places of a ring, at most. Each has two barriers in `bulk_ring`, and a thread of the block initialises both. A place of `relay` has at least 7 KB,
// so that shared memory has room for 31; the places of `held` are smaller if a block has fewer than 224 threads that hold vectors.
constexpr uint32_t bulk_slots = 32;
// Vectors that a thread adds up in one chain. docs/numerics.md allows 48 additions in a row, with those of the sums of lanes, warps and blocks that
// follow.
constexpr uint32_t chain_vectors = 20;

// A position in a ring: a place, and the parity of how often the walk has come around.
struct bulk_place {
    uint32_t slot = 0, parity = 0;
    __device__ __forceinline__ void next(uint32_t end, uint32_t begin = 0) {
        if (++slot == end) slot = begin, parity ^= 1;
    }
};

// Places in shared memory. One warp fills them through the bulk copy engine, the other warps read them. A place is full when its bytes have arrived,
// and empty when every reading thread has released it.
struct bulk_ring {
    alignas(8) uint64_t full[bulk_slots];
    alignas(8) uint64_t empty[bulk_slots];

    // Called by all threads, before a barrier.
    __device__ __forceinline__ void initialize(uint32_t slots, uint32_t readers) {
        if (threadIdx.x < slots) {
            mbarrier::initialize(shared_address(&full[threadIdx.x]), 1);
            mbarrier::initialize(shared_address(&empty[threadIdx.x]), readers);
        }
        mbarrier::fence_initialized();
    }
    __device__ __forceinline__ void wait_full(const bulk_place &place) const { mbarrier::wait(shared_address(&full[place.slot]), place.parity); }
    __device__ __forceinline__ void wait_empty(const bulk_place &place) const {
        mbarrier::wait(shared_address(&empty[place.slot]), place.parity ^ 1);
    }
    __device__ __forceinline__ void expect(uint32_t slot, uint32_t bytes) { mbarrier::expect(shared_address(&full[slot]), bytes); }
    // policy: an L2 cache policy for the lines.
    template <bool has_policy> __device__ __forceinline__ void copy(uint32_t slot, void *to, const void *from, uint32_t bytes, uint64_t policy) {
#if __CUDA_ARCH__ >= 900
        if constexpr (has_policy)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                             shared_address(to)),
                         "l"(from), "r"(bytes), "r"(shared_address(&full[slot])), "l"(policy)
                         : "memory");
        else
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                         "l"(from), "r"(bytes), "r"(shared_address(&full[slot]))
                         : "memory");
#endif
    }
    // Called by every reading thread. One lane for its warp would be a little faster, but racecheck does not follow that.
    __device__ __forceinline__ void release(uint32_t slot) { mbarrier::arrive(shared_address(&empty[slot])); }
};

// The fetching warp: copies the steps of a range, group after group, into the range's places. A place holds one step of `arrays` tensors:
// [slot][array][vector]. readers: vectors of a step, for which a place has room in each array. before(number) is called before each step; returns the
// number of steps. in_turn: the blocks of a team take the steps in turn. policy: an L2 cache policy, 0 for none.
template <bool in_turn = false, int arrays, typename T, typename F>
__device__ __forceinline__ uint32_t fetch_groups(bulk_ring &bulk, const walk_geometry &ring, const step_range &range,
                                                 const segment_geometry &geometry, const T *const (&tensors)[arrays],
                                                 const bops_channel_strides *const (&strides)[arrays], uint32_t readers, const F &before,
                                                 uint64_t policy = 0) {
    constexpr uint32_t width = 16 / sizeof(T);
    const uint32_t teams = gridDim.x / ring.team_blocks, own_group = blockIdx.x / ring.team_blocks, rank = blockIdx.x - own_group * ring.team_blocks;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t number = 0;
    bulk_place place = {range.slot, 0};
    for (uint32_t group = own_group; group < geometry.groups; group += teams) {
        uint32_t sample, channel;
        geometry.segment(group, 0, sample, channel);
        uint32_t step = in_turn ? range.from * ring.team_blocks + rank : rank * ring.steps + range.from;
        uint32_t whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks, segment = whole * ring.multi;
        for (uint32_t i = range.from; i < range.to; ++i, place.next(range.end_slot, range.slot)) {
            const uint32_t here = segment < ring.segments ? min(ring.segments - segment, ring.multi) : 0;
            const uint32_t bytes = min(ring.per_segment - chunk * ring.pitch, ring.pitch) * 16; // of one segment
            before(number++);
            bulk.wait_empty(place);
            if (lane == 0) bulk.expect(place.slot, here * bytes * arrays);
            __syncwarp();
            for (uint32_t s = lane; s < here; s += 32)
#pragma unroll
                for (int t = 0; t < arrays; ++t) {
                    const uint64_t stride = geometry.is_batch ? strides[t]->batch : strides[t]->channel;
                    void *const to = dynamic_shared + ((place.slot * arrays + t) * readers + s * ring.pitch) * 16;
                    const T *const from =
                        tensors[t] + segment_offset(*strides[t], sample, channel) + (segment + s) * stride + uint64_t(chunk) * ring.pitch * width;
                    if (in_turn || policy) bulk.copy<true>(place.slot, to, from, bytes, policy);
                    else bulk.copy<false>(place.slot, to, from, bytes, 0);
                }
            if constexpr (in_turn) {
                step += ring.team_blocks;
                whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks, segment = whole * ring.multi;
            } else if (++chunk == ring.chunks) {
                chunk = 0, segment += ring.multi;
            }
        }
    }
    return number;
}

// A barrier of the reading warps.
__device__ __forceinline__ void readers_sync(uint32_t readers) { asm volatile("bar.sync 1, %0;" ::"r"(readers) : "memory"); }

} // namespace bops
