// BatchNorm, GroupNorm and InstanceNorm forward, the form `held`: warps hold a group in registers while one warp has the bulk copy engine fetch the
// following groups into shared memory. Compute capability 9.0.
#pragma once
#include "channel_norm_walk.cuh"

namespace bops {

constexpr uint32_t held_slots = 32;  // places, at most
constexpr uint32_t chain_steps = 20; // that a thread adds up in one go
constexpr int held_steps = 12;       // of a group, in registers

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
    alignas(8) uint64_t full[held_slots];
    alignas(8) uint64_t empty[held_slots];

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
// [slot][array][reading thread]. before(number) is called before each step; returns the number of steps. in_turn: the blocks of a team take the steps
// in turn. policy: an L2 cache policy, 0 for none.
template <bool in_turn = false, int arrays, typename T, typename F>
__device__ __forceinline__ uint32_t fetch_groups(bulk_ring &bulk, const walk_geometry &ring, const step_range &range,
                                                 const segment_geometry &geometry, const T *const (&tensors)[arrays],
                                                 const bops_channel_strides *const (&strides)[arrays], uint32_t readers, const F &before,
                                                 uint64_t policy = 0) {
    constexpr uint32_t width = 16 / sizeof(T);
    const uint32_t teams = gridDim.x / ring.cluster, own_group = blockIdx.x / ring.cluster, rank = blockIdx.x - own_group * ring.cluster;
    const uint32_t lane = threadIdx.x % 32;
    uint32_t number = 0;
    bulk_place place = {range.slot, 0};
    for (uint32_t group = own_group; group < geometry.groups; group += teams) {
        uint32_t sample, channel;
        geometry.segment(group, 0, sample, channel);
        uint32_t step = in_turn ? range.from * ring.cluster + rank : rank * ring.steps + range.from;
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
                step += ring.cluster;
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

// Teams walk over groups. The first `held` steps of a group go to registers, which frees their places at once. Further steps keep their places until
// they are written out. A warp uses the mean of its first vectors as the shift of its moments. If the shift turns out to be far from the mean, the
// warp adds up its part once more. general: for activations that take many instructions.
template <typename T, bool general> __global__ void __maxnreg__(112) channel_norm_held(const __grid_constant__ channel_walk_arguments a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), held = general ? 0 : held_steps;
    __shared__ moments<float> warp_moments[2][merge_lanes];
    __shared__ cluster_exchange exchange;
    __shared__ bulk_ring bulk;
    const walk_geometry &ring = a.ring;
    const uint32_t readers = blockDim.x - 32, warps = readers / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t rank = ring.cluster > 1 ? cluster_rank() : 0, first = rank * ring.steps, steps = ring.steps;
    const uint32_t teams = gridDim.x / ring.cluster, groups = uint32_t(a.geometry.groups);
    bulk.initialize(ring.slots, readers);
    if (ring.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (a.overlaps) follow_previous();
    if (warp == warps) {
        const T *const tensors[1] = {static_cast<const T *>(a.o.x)};
        const bops_channel_strides *const strides[1] = {&a.p.x};
        fetch_groups(bulk, ring, ring.all_steps(), a.geometry, tensors, strides, readers, [](uint32_t) {});
        return;
    }
    const auto stride_of = [&](const bops_channel_strides &s) { return a.geometry.is_batch ? s.batch : s.channel; };
    step_walk step(ring);
    const auto lanes_of = [&](uint32_t w) { // of a warp, that hold a vector in the current step
        const uint32_t segment = step.segment - step.sub, here = min(ring.segments - min(segment, ring.segments), ring.multi);
        const uint32_t before = w * 32, have = min(step.left, ring.pitch) * here;
        return have > before ? min(have - before, 32u) : 0;
    };
    uint32_t warp_vectors = 0; // of the warp that has this thread's lane as its number
    step.start(ring, first);
    const uint32_t first_lanes = lanes_of(warp);
    for (uint32_t i = 0; i < steps; ++i, step.next(ring)) warp_vectors += lanes_of(lane);
    if (lane >= warps) warp_vectors = 0;
    step.start(ring, first + 1);
    // The step whose vectors give the shift. The first step may be the rest of a segment, in which some warps have no vectors.
    const uint32_t shift_step = first_lanes == 0 && steps > 1 ? 1 : 0, shift_lanes = shift_step ? lanes_of(warp) : first_lanes;
    const float shift_scale = shift_lanes ? 1.0f / float(shift_lanes * width) : 0.0f;
    const float warp_count = float(warp_vectors * width), own_reciprocal = 1.0f / __shfl_sync(~0u, warp_count, warp);
    const uint32_t block_vectors = ring.vectors_of(rank);
    const float block_reciprocal = ring.cluster == 1 ? a.reciprocal_count : block_vectors ? 1.0f / (float(block_vectors) * width) : 0.0f;
    const float rank_count = lane < ring.cluster ? float(ring.vectors_of(lane)) * width : 0.0f;

    bulk_place place; // the next to read
    for (uint32_t group = blockIdx.x / ring.cluster, turn = 0; group < groups; group += teams, ++turn) {
        // 1. The moments of each warp's part.
        packed<16> data[held + 1];
        moments<float> total = {0, 0, 0};
        float sum[width] = {}, square[width] = {};
        step.start(ring, first);
        const auto take = [&](const packed<16> &vector, uint32_t v) {
            const bool is_mine = step.is_mine(ring);
            float x[width];
            unpack<T>(vector, x);
            if (v < 2 && v == shift_step) {
                float copy[width], mean[1];
#pragma unroll
                for (int k = 0; k < width; ++k) copy[k] = x[k];
                mean[0] = is_mine ? tree_sum(copy) : 0.0f;
                warp_sum(mean, 32);
                total.shift = mean[0] * shift_scale;
            }
            if (is_mine) add_moments(x, total.shift, sum, square);
            step.next(ring);
        };
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < steps) {
                bulk.wait_full(place);
                data[v] = shared_vector(place.slot * readers + threadIdx.x);
                bulk.release(place.slot);
                place.next(ring.slots);
                take(data[v], v);
            }
        bulk_place kept = place; // of the first step that is not held
        float early[2] = {};     // sums of the first steps: a chain of additions ends there
        for (uint32_t v = held; v < steps; ++v, place.next(ring.slots)) {
            if (v == chain_steps) {
                early[0] = tree_sum(sum), early[1] = tree_sum(square);
#pragma unroll
                for (int k = 0; k < width; ++k) sum[k] = square[k] = 0;
            }
            bulk.wait_full(place);
            take(shared_vector(place.slot * readers + threadIdx.x), v);
        }
        float sums[2] = {early[0] + tree_sum(sum), early[1] + tree_sum(square)};
        warp_sum(sums, 32);
        total.sum = sums[0], total.square = sums[1];
        recenter(total, own_reciprocal, [&](float shift, float(&again)[2]) {
            again[0] = again[1] = 0;
            step.start(ring, first);
            const auto take_again = [&](const packed<16> &vector) {
                float x[width], sum[width] = {}, square[width] = {};
                unpack<T>(vector, x);
                if (step.is_mine(ring)) add_moments(x, shift, sum, square);
                again[0] += tree_sum(sum), again[1] += tree_sum(square);
                step.next(ring);
            };
#pragma unroll
            for (int v = 0; v < held; ++v)
                if (v < steps) take_again(data[v]);
            bulk_place later = kept;
#pragma unroll 1
            for (uint32_t v = held; v < steps; ++v, later.next(ring.slots)) take_again(shared_vector(later.slot * readers + threadIdx.x));
        });
        if (lane == 0) warp_moments[turn % 2][warp] = total;
        readers_sync(readers);

        // 2. The moments of the block and of its cluster.
        moments<float> part = {0, 0, 0};
        if (lane < warps) part = warp_moments[turn % 2][lane];
        total = merge_across<true>(part, warp_count, block_reciprocal);
        if (ring.cluster > 1) {
            if (warp == 0) exchange.send({total.shift, total.sum, total.square, 0}, turn, rank, ring.cluster, threadIdx.x);
            const float(*const blocks)[4] = exchange.wait(turn);
            part = {0, 0, 0};
            if (lane < ring.cluster) part = {blocks[lane][0], blocks[lane][1], blocks[lane][2]};
            total = merge_across<true>(part, rank_count, a.reciprocal_count);
        }
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
        uint32_t sample, channel;
        a.geometry.segment(group, 0, sample, channel);
        if (threadIdx.x == 0 && rank == 0) save_group(a, group, s);

        // 3. The output.
        step.start(ring, first);
        walk_pointer<T> y(ring, stride_of(a.p.y));
        y.at = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel) + step.offset(ring, stride_of(a.p.y), width);
        float scale, offset;
        const auto take_parameters = [&] {
            const uint32_t index = a.geometry.is_batch ? group : channel + min(step.segment, ring.segments - 1);
            scale = s.rstd * parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
            offset = fmaf(-s.correction, scale, parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f));
        };
        take_parameters();
        const auto finish = [&](const packed<16> &vector) {
            if (step.is_mine(ring)) {
                float d[width];
                unpack<T>(vector, d);
#pragma unroll
                for (int k = 0; k < width; ++k) d[k] -= s.shift;
                store<16, false>(y.at, channel_output<T, 16, general>(d, scale, offset, false, packed<16>{}, a.p.activation));
            }
            const bool is_other = step.next(ring);
            y.next(is_other);
            if (is_other && !a.geometry.is_batch) take_parameters();
        };
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < steps) finish(data[v]);
        for (uint32_t v = held; v < steps; ++v, kept.next(ring.slots)) {
            const packed<16> vector = shared_vector(kept.slot * readers + threadIdx.x);
            bulk.release(kept.slot);
            finish(vector);
        }
    }
}

// Host: the form `held`.
template <typename T> bops_status channel_norm_held_kernels(const bops_channel_norm_params &p, const bops_channel_norm_held_choice &c,
                                                            const form_types &types, const bops_channel_norm_operands &o, void *workspace,
                                                            const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        const walk_choice walk = {c.cluster_blocks, c.steps, c.threads, c.places};
        const channel_walk_arguments a = walk_arguments<T>(p, walk, types, o, workspace, c.overlaps);
        launch_shape shape;
        shape.grid = dim3(c.blocks), shape.block = dim3(c.threads + 32), shape.cluster = c.cluster_blocks, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = c.places * c.threads * 16;
        const bops_status status =
            call.one_of(!is_unrolled(p.activation), specialised(channel_norm_held<T, false>, channel_norm_held<T, true>), shape, a);
        return status ? status : finish_running(p, o, a.records, call);
    }
}

} // namespace bops
