// How a team, which is a block, a cluster or some blocks of a grid, walks over the groups of BatchNorm, GroupNorm and InstanceNorm.
#pragma once
#include "channel_norm_split.cuh"

namespace bops {

// Some steps of a block, and the places in shared memory that they take in turn.
struct step_range {
    uint32_t from, to, slot, end_slot;
};

// What was chosen for a walk.
struct walk_choice {
    uint32_t team_blocks, steps;                    // of a team; of a group in one block
    uint32_t step_vectors;                          // of a block, in one step
    uint32_t places = 0, arriving = 0;              // of the ring; places that are being filled at once
    uint32_t repeated_steps = 0, window_places = 0; // steps that are fetched twice; places for each reading of them, or for a residual
};

// How the blocks of a team share a group's vectors of 16 bytes. In a step a block takes a part of one segment, or several whole segments of `pitch`
// vectors each; a block has `steps` steps.
struct walk_geometry {
    uint32_t team_blocks, steps, places; // blocks of a team; steps of a block; places of its ring
    uint32_t per_segment, segments;      // vectors of a segment; segments of a group
    uint32_t chunks;                     // steps of a segment
    uint32_t pitch, multi;               // in a step: vectors that there is room for of each segment; segments
    divisor by_chunks, by_pitch;
    uint32_t arriving;       // steps on the way to shared memory, at most
    uint32_t repeated_steps; // first steps of a block, which are fetched twice
    uint32_t window_places;  // last places of the ring: for each reading of repeated steps, or for a residual

    // whole_warps: no warp takes vectors of two segments in one step.
    __host__ void set(const segment_geometry &geometry, const walk_choice &c, uint32_t width, uint64_t spatial, bool whole_warps) {
        per_segment = uint32_t(spatial / width), segments = geometry.segments;
        team_blocks = c.team_blocks, steps = c.steps, places = c.places, arriving = c.arriving;
        repeated_steps = c.repeated_steps, window_places = c.window_places;
        pitch = whole_warps ? (per_segment + 31) / 32 * 32 : per_segment;
        multi = pitch < c.step_vectors ? c.step_vectors / pitch : 1;
        if (multi == 1) pitch = c.step_vectors;
        chunks = multi > 1 ? 1 : (per_segment + c.step_vectors - 1) / c.step_vectors;
        by_chunks = divisor(chunks), by_pitch = divisor(pitch);
    }
    __device__ __forceinline__ step_range all_steps() const { return {0, steps, 0, places - window_places}; }
    __device__ __forceinline__ step_range residual_steps() const { return {0, steps, places - window_places, places}; }
    // The steps that stay on chip; and the repeated steps, at the first or at the second reading.
    __device__ __forceinline__ step_range staying_steps() const { return {repeated_steps, steps, 0, places - 2 * window_places}; }
    __device__ __forceinline__ step_range repeated_range(bool is_second) const {
        const uint32_t end = is_second ? places : places - window_places;
        return {0, repeated_steps, end - window_places, end};
    }
    // The most segments that the steps of a block touch.
    __host__ __device__ __forceinline__ uint32_t run_segments() const { return ((steps - 1) / chunks + 2) * multi; }
    // Number of vectors in the first `step` steps of a group.
    __device__ __forceinline__ uint32_t vectors_before(uint32_t step) const {
        const uint32_t whole = by_chunks.quotient(step), chunk = step - whole * chunks;
        return whole * multi >= segments ? segments * per_segment : whole * multi * per_segment + min(chunk * pitch, per_segment);
    }
    // Number of vectors of the block of this rank. in_turn: the blocks of a team take the steps in turn.
    template <bool in_turn = false> __device__ __forceinline__ uint32_t vectors_of(uint32_t rank) const {
        if constexpr (!in_turn) return vectors_before((rank + 1) * steps) - vectors_before(rank * steps);
        uint32_t vectors = 0;
        for (uint32_t i = 0; i < steps; ++i) vectors += vectors_before(i * team_blocks + rank + 1) - vectors_before(i * team_blocks + rank);
        return vectors;
    }
};

// A thread's way through the steps of a block.
struct step_walk {
    uint32_t lane;    // number of the thread's vector among those of its segment in a step
    uint32_t sub;     // number of that segment among those of the step
    uint32_t chunk;   // number of the step among those of the segment
    uint32_t left;    // vectors of the segment from this step on
    uint32_t segment; // of the group

    __device__ __forceinline__ explicit step_walk(const walk_geometry &ring) {
        sub = ring.by_pitch.quotient(threadIdx.x);
        lane = sub < ring.multi ? threadIdx.x - sub * ring.pitch : ~0u;
    }
    __device__ __forceinline__ void start(const walk_geometry &ring, uint32_t step) {
        const uint32_t whole = ring.by_chunks.quotient(step);
        chunk = step - whole * ring.chunks;
        left = ring.per_segment - chunk * ring.pitch;
        segment = whole * ring.multi + sub;
    }
    __device__ __forceinline__ bool is_mine(const walk_geometry &ring) const { return lane < left && segment < ring.segments; }
    // Offset in elements of this step's vector from the group's first element.
    __device__ __forceinline__ uint64_t offset(const walk_geometry &ring, uint64_t segment_stride, uint32_t width) const {
        return segment * segment_stride + (chunk * ring.pitch + lane) * width;
    }
    // Goes on to the next step; returns whether it is of another segment.
    __device__ __forceinline__ bool next(const walk_geometry &ring) {
        left -= ring.pitch;
        if (++chunk < ring.chunks) return false;
        chunk = 0, left = ring.per_segment, segment += ring.multi;
        return true;
    }
};

// A tensor's vectors along a walk.
template <typename T> struct walk_pointer {
    T *at;
    uint64_t step, jump; // elements to the next step of a segment, to that of the next segment

    __device__ __forceinline__ walk_pointer(const walk_geometry &ring, uint64_t segment_stride) {
        constexpr uint32_t width = 16 / sizeof(T);
        step = uint64_t(ring.pitch) * width;
        jump = ring.multi * segment_stride - (ring.chunks - 1) * step;
    }
    __device__ __forceinline__ void next(bool is_other_segment) { at += is_other_segment ? jump : step; }
};

// An address in shared memory, kept in a register.
__device__ __forceinline__ uint32_t kept_address(const void *shared) {
    uint32_t address = shared_address(shared);
    asm volatile("" : "+r"(address)); // else computed anew at every use
    return address;
}
__device__ __forceinline__ packed<16> load_shared(uint32_t address) {
    packed<16> to;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                 : "r"(address)
                 : "memory");
    return to;
}
// Called by a thread that has stored to a place, before it releases it: the next to write there is a bulk copy.
__device__ __forceinline__ void order_before_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void store_shared(uint32_t address, const packed<16> &from) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from.word[0]), "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3])
                 : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float2 from) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(from.x), "f"(from.y) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, const float *from) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]) : "memory");
}

// Exchange of three numbers, moments or sums, between the blocks of a team through global memory. A message is one 16-byte store and one 16-byte
// load, and carries the number of its turn, so that no fence is needed. A block sends its message of turn t after it has received those of turn t -
// ahead from all blocks, and these had received those of turn t - 2 * ahead before. With slots for 2 * ahead turns no block overwrites a message that
// another still reads.
struct message_exchange {
    // Turns that a block may send before it has received the messages of the first of them. With fewer a block waits more often for the slowest one;
    // with more there are more slots in memory.
    static constexpr uint32_t ahead = 4;
    static constexpr uint32_t turns = 2 * ahead; // turns for which there are slots
    // Messages of a turn that a lane receives, at most. A warp receives up to 160 messages, so that a team may have a block on every SM of an H200,
    // which has 132. Each message takes four registers of the lane.
    static constexpr uint32_t lane_messages = 5;
    alignas(8) uint64_t received[ahead];

    // Called by all threads, before a barrier.
    __device__ __forceinline__ void initialize() {
        if (threadIdx.x < ahead) mbarrier::initialize(shared_address(&received[threadIdx.x]), 1);
        mbarrier::fence_initialized();
    }
    // Called by all threads, before a barrier of the grid. `messages` is [turn % turns][block]; what it holds at first is unknown.
    __device__ __forceinline__ static void clear(uint4 *messages) {
        if (threadIdx.x < turns) store_message(messages + threadIdx.x * gridDim.x + blockIdx.x, make_uint4(0, 0, 0, 0));
    }
    // Called by one thread: sends the block's numbers.
    __device__ __forceinline__ void send(uint4 *messages, const float3 &part, uint32_t turn) {
        mbarrier::wait(shared_address(&received[turn % ahead]), (turn / ahead & 1) ^ 1);
        store_message(messages + turn % turns * gridDim.x + blockIdx.x,
                      make_uint4(turn + 1, __float_as_uint(part.x), __float_as_uint(part.y), __float_as_uint(part.z)));
    }
    // Called by a warp. part[i]: the numbers of the block of rank lane + 32 * i, zeros if there is no such block.
    __device__ __forceinline__ void receive(const uint4 *messages, uint32_t turn, uint32_t team, float3 (&part)[lane_messages]) {
        const uint32_t lane = threadIdx.x % 32;
        const uint4 *const from = messages + turn % turns * gridDim.x + blockIdx.x / team * team + lane;
        uint4 message[lane_messages];
        bool is_missing;
        do {
            is_missing = false;
#pragma unroll
            for (uint32_t i = 0; i < lane_messages; ++i)
                message[i] = lane + 32 * i < team ? load_message(from + 32 * i) : make_uint4(turn + 1, 0, 0, 0);
#pragma unroll
            for (uint32_t i = 0; i < lane_messages; ++i) is_missing |= message[i].x != turn + 1;
        } while (__any_sync(~0u, is_missing));
        if (lane == 0) mbarrier::arrive(shared_address(&received[turn % ahead]));
#pragma unroll
        for (uint32_t i = 0; i < lane_messages; ++i)
            part[i] = make_float3(__uint_as_float(message[i].y), __uint_as_float(message[i].z), __uint_as_float(message[i].w));
    }
    // The moments of the team. count[i]: number of elements of the block of rank lane + 32 * i.
    __device__ __forceinline__ moments<float> receive_moments(const uint4 *messages, uint32_t turn, uint32_t team,
                                                              const float (&count)[lane_messages], float reciprocal_count) {
        float3 part[lane_messages];
        receive(messages, turn, team, part);
        float shift[1] = {};
#pragma unroll
        for (uint32_t i = 0; i < lane_messages; ++i) shift[0] = fmaf(part[i].x, count[i], shift[0]);
        warp_sum(shift, 32);
        moments<float> total = {rounded_product(shift[0], reciprocal_count), 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < lane_messages; ++i) merge(total, moments<float>{part[i].x, part[i].y, part[i].z}, count[i]);
        float sums[2] = {total.sum, total.square};
        warp_sum(sums, 32);
        return {total.shift, sums[0], sums[1]};
    }

    static __device__ __forceinline__ void store_message(uint4 *to, const uint4 &value) {
#if __CUDA_ARCH__ >= 900
        const uint64_t low = uint64_t(value.y) << 32 | value.x, high = uint64_t(value.w) << 32 | value.z;
        asm volatile("{ .reg .b128 all; mov.b128 all, {%1, %2}; st.relaxed.gpu.global.b128 [%0], all; }" ::"l"(to), "l"(low), "l"(high) : "memory");
#endif
    }
    static __device__ __forceinline__ uint4 load_message(const uint4 *from) {
        uint64_t low = 0, high = 0;
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .b128 all; ld.relaxed.gpu.global.b128 all, [%2]; mov.b128 {%0, %1}, all; }"
                     : "=l"(low), "=l"(high)
                     : "l"(from)
                     : "memory");
#endif
        return make_uint4(uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32));
    }
};

struct channel_walk_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    segment_geometry geometry;
    walk_geometry ring;
    float eps, momentum, reciprocal_count, unbias; // unbias: count / (count - 1), which makes the variance of a batch unbiased
    uint32_t weight_is_wide, overlaps;
    uint4 *messages;              // of teams that are no clusters
    group_record<float> *records; // where samples have running statistics
};

// Host: the arguments of the kernels that walk over groups.
// message_blocks: blocks that send each other messages.
template <typename T, typename Choice>
channel_walk_arguments walk_arguments(const forward_call<Choice> &f, const walk_choice &walk, uint32_t message_blocks) {
    channel_walk_arguments a = {};
    a.geometry.set(f.p.batch, f.p.channels, f.p.spatial, f.p.groups);
    a.ring.set(a.geometry, walk, 16 / sizeof(T), f.p.spatial, false);
    const double count = double(a.geometry.count);
    a.p = f.p, a.o = f.o, a.eps = float(f.p.eps), a.momentum = running_weight<float>(f.p.momentum);
    a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
    a.weight_is_wide = f.types.weight_is_wide, a.overlaps = f.c.overlaps;
    a.messages = static_cast<uint4 *>(f.workspace);
    const bool keeps = f.p.groups && (f.o.running_mean || f.o.running_var);
    a.records = keeps ? reinterpret_cast<group_record<float> *>(a.messages + message_blocks * message_exchange::turns) : nullptr;
    return a;
}

} // namespace bops
