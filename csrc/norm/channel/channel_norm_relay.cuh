// BatchNorm, GroupNorm and InstanceNorm forward, the form `relay`: the bulk copy engine fetches one group after another into shared memory; some
// warps add up a group while others write out the one before. Compute capability 9.0.
#pragma once
#include <cooperative_groups.h>

#include "bulk_ring.cuh"

namespace bops {

constexpr int relay_threads = 896; // of a block, at most: 72 registers each, in steps of 8, are what an SM has for them
// Vectors of 16 bytes that a writing thread takes of each step. With one, half as many vectors would share the waits and the walk of a step: a vector
// would take 300 instructions, not 120 (docs/rejected.md). With more, places would be larger, and fewer of them would have room.
constexpr int relay_vectors = 2;

// What shares a group: the blocks of a cluster; any number of blocks of a cooperative launch, wherever they lie; such blocks, whose shared memory
// does not hold the whole group.
enum relay_team { cluster_team, grid_team, overflowing_team };

// Threads of a block that neither add up nor write. Such threads are whole warps: one fetches and one merges; in a grid one more receives; where the
// group overflows two more fetch; one more fetches a residual.
__host__ __device__ constexpr uint32_t relay_service(relay_team kind, bool has_residual = false) {
    return (kind == cluster_team ? 64 : kind == grid_team ? 96 : 160) + (has_residual ? 32 : 0);
}

// Passes values from the warps that make them to the warps that take them; up to two are under way at once.
template <typename V> struct relay_slots {
    V value[2];
    alignas(8) uint64_t full[2];
    alignas(8) uint64_t empty[2];

    // Called by one thread, before a barrier. makers: warps; takers: threads.
    __device__ __forceinline__ void initialize(uint32_t makers, uint32_t takers) {
        for (int i = 0; i < 2; ++i) mbarrier::initialize(shared_address(&full[i]), makers), mbarrier::initialize(shared_address(&empty[i]), takers);
    }
    // Called by one lane of a making warp: waits until the slot of a turn is free and returns it; then `made` says that it was written.
    __device__ __forceinline__ V &make(uint32_t turn) {
        mbarrier::wait(shared_address(&empty[turn % 2]), (turn / 2 & 1) ^ 1);
        return value[turn % 2];
    }
    __device__ __forceinline__ void made(uint32_t turn) { mbarrier::arrive(shared_address(&full[turn % 2])); }
    // Called by a taker: waits until the slot of a turn was written and returns it; then `taken` says that it was read.
    __device__ __forceinline__ const V &take(uint32_t turn) {
        mbarrier::wait(shared_address(&full[turn % 2]), turn / 2 & 1);
        return value[turn % 2];
    }
    __device__ __forceinline__ void taken(uint32_t turn) { mbarrier::arrive(shared_address(&empty[turn % 2])); }
    // Called by all lanes of a warp: the first lane takes the value, all lanes get it.
    __device__ __forceinline__ V take_by_warp(uint32_t turn) {
        float numbers[sizeof(V) / 4] = {};
        if (threadIdx.x % 32 == 0) {
            const float *const from = reinterpret_cast<const float *>(&take(turn));
#pragma unroll
            for (int i = 0; i < int(sizeof(V) / 4); ++i) numbers[i] = from[i];
            taken(turn);
        }
        V result;
#pragma unroll
        for (int i = 0; i < int(sizeof(V) / 4); ++i) reinterpret_cast<float *>(&result)[i] = __shfl_sync(~0u, numbers[i], 0);
        return result;
    }
};

struct relay_moments {
    moments<float> of_warp[merge_lanes];
};

// A thread's walk through the steps of its block. In each step it has `vectors` vectors of each of `arrays` tensors: numbers `thread`, `thread +
// team` and so on. The parameter `team`, here and in relay_lanes: threads of the block that walk together, those that write or those that add up, not
// a team of blocks. in_turn: the blocks of a team take the steps in turn.
template <int arrays, int vectors = relay_vectors, bool in_turn = false> struct relay_walk {
    static constexpr int ahead = arrays == 1 ? 2 : 1; // vectors in registers at once
    uint32_t first, stride;                           // the block's first step of a group, and from one to the next
    uint32_t full, vector;                            // addresses: of the first place's barrier, of the vector there
    // Of each vector: its number in its segment's part of a step, and the number of that segment among those of the step.
    uint32_t lane[vectors], sub[vectors];

    __device__ __forceinline__ relay_walk(const walk_geometry &ring, const bulk_ring &bulk, uint32_t rank, uint32_t thread, uint32_t team)
        : first(in_turn ? rank : rank * ring.steps), stride(in_turn ? ring.team_blocks : 1), full(kept_address(bulk.full)),
          vector(kept_address(dynamic_shared + thread * 16)) {
#pragma unroll
        for (int j = 0; j < vectors; ++j) {
            sub[j] = ring.by_pitch.quotient(thread + j * team);
            lane[j] = sub[j] < ring.multi ? thread + j * team - sub[j] * ring.pitch : ~0u;
        }
    }
    // Walks through the steps of a range, whose first lies at `place`. Calls enter(segment, chunk) before a run of steps of the same segments, and
    // take(j, data, is_mine) for vector j of each step; is_mine: it belongs to the group. releases: frees each place after it was read.
    template <bool releases, typename Enter, typename Take> __device__ __forceinline__ void pass(const walk_geometry &ring, const step_range &range,
                                                                                                 bulk_place &place, uint32_t team, Enter &&enter,
                                                                                                 Take &&take) const {
        const uint32_t steps = range.to - range.from, array_bytes = vectors * team * 16;
        uint32_t step = first + range.from * stride;
        uint32_t whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks, segment = whole * ring.multi;
        for (uint32_t done = 0; done < steps;) {
            const uint32_t run = min(in_turn ? (ring.chunks - chunk - 1) / stride + 1 : ring.chunks - chunk, steps - done);
            uint32_t left = ring.per_segment - chunk * ring.pitch;
            bool is_there[vectors];
#pragma unroll
            for (int j = 0; j < vectors; ++j) is_there[j] = segment + sub[j] < ring.segments;
            enter(segment, chunk);
            for (uint32_t i = 0; i < run; ++i) {
                mbarrier::wait(full + place.slot * 8, place.parity);
                const uint32_t from = vector + place.slot * arrays * array_bytes, released = full + offsetof(bulk_ring, empty) + place.slot * 8;
#pragma unroll
                for (int base = 0; base < vectors; base += ahead) {
                    packed<16> data[ahead][arrays];
#pragma unroll
                    for (int j = 0; j < ahead; ++j)
#pragma unroll
                        for (int t = 0; t < arrays; ++t) data[j][t] = load_shared(from + t * array_bytes + (base + j) * team * 16);
                    if (releases && base + ahead == vectors) mbarrier::arrive(released);
#pragma unroll
                    for (int j = 0; j < ahead; ++j) take(base + j, data[j], is_there[base + j] && lane[base + j] < left);
                }
                place.next(range.end_slot, range.slot);
                left -= in_turn ? stride * ring.pitch : ring.pitch;
            }
            done += run;
            if constexpr (in_turn) {
                step += run * stride;
                whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks, segment = whole * ring.multi;
            } else {
                chunk = 0, segment += ring.multi;
            }
        }
    }
    // Walks through steps that have left shared memory: reads one tensor, whose group begins at `from`, from global memory. Calls take as `pass`
    // does.
    template <typename T, typename Take> __device__ __forceinline__ void pass_in_memory(const walk_geometry &ring, const step_range &range,
                                                                                        const T *from, uint64_t segment_stride, Take &&take) const {
        constexpr uint32_t width = 16 / sizeof(T);
#pragma unroll 1
        for (uint32_t i = range.from; i < range.to; ++i) {
            const uint32_t step = first + i * stride, whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks;
#pragma unroll
            for (int j = 0; j < vectors; ++j) {
                const uint32_t segment = whole * ring.multi + sub[j];
                const bool is_mine = segment < ring.segments && lane[j] < ring.per_segment - chunk * ring.pitch;
                packed<16> data[1] = {};
                if (is_mine) data[0] = load<16, false>(from + segment * segment_stride + (uint64_t(chunk) * ring.pitch + lane[j]) * width);
                take(j, data, is_mine);
            }
        }
    }
};

// Number of vectors that a warp has in a step, if each of its lanes has `places` vectors there.
__device__ __forceinline__ uint32_t relay_lanes(const walk_geometry &ring, uint32_t step, uint32_t warp, uint32_t team, int places) {
    const uint32_t whole = ring.by_chunks.quotient(step), chunk = step - whole * ring.chunks, segment = whole * ring.multi;
    const uint32_t have = min(ring.per_segment - chunk * ring.pitch, ring.pitch) * min(ring.segments - min(segment, ring.segments), ring.multi);
    uint32_t lanes = 0;
    for (int j = 0; j < places; ++j) lanes += min(max(have, j * team + warp * 32) - (j * team + warp * 32), 32u);
    return lanes;
}

// What the warps of a block share in shared memory.
template <typename Part, typename Result> struct relay_shared {
    relay_slots<Part> &parts;     // from the warps that add up to the one that merges
    relay_slots<Result> &results; // from the warp that merges, in a grid the one that receives, to those that write
    cluster_exchange &exchange;   // between the blocks of a cluster
    message_exchange &messages;   // between the blocks of a grid
    bulk_ring &bulk;
};

// A thread's place in its block and its team. The warps of a block, in this order: those that write; those that add up; one that fetches; one that
// merges; in a grid one that receives; further ones that fetch.
template <typename Part, typename Result, bool cooperative> struct relay_block {
    const walk_geometry &ring;
    const relay_shared<Part, Result> shared;
    uint32_t team, sum_team, warps, sum_warps; // threads and warps that write, and that add up
    uint32_t lane, warp, fetcher;              // fetcher: number of the warp that fetches
    uint32_t teams, groups, own_group, rank;   // rank: of the block in its team

    __device__ __forceinline__ relay_block(const walk_geometry &geometry, uint64_t all_groups, uint32_t writing, uint32_t adding,
                                           const relay_shared<Part, Result> &own)
        : ring(geometry), shared(own), team(writing), sum_team(adding), warps(writing / 32), sum_warps(adding / 32), lane(threadIdx.x % 32),
          warp(threadIdx.x / 32), fetcher(warps + sum_warps), teams(gridDim.x / geometry.team_blocks), groups(uint32_t(all_groups)),
          own_group(blockIdx.x / geometry.team_blocks), rank(blockIdx.x - own_group * geometry.team_blocks) {}

    // Called by all threads: initialises what they share, and waits for the previous kernel and for the blocks that messages come from.
    __device__ __forceinline__ void start(bool overlaps, uint4 *messages) const {
        shared.bulk.initialize(ring.places, team);
        if (threadIdx.x == 0) shared.parts.initialize(sum_warps, 32), shared.results.initialize(1, warps);
        if (cooperative) shared.messages.initialize();
        else if (ring.team_blocks > 1) {
            shared.exchange.initialize(threadIdx.x);
            cluster_arrive();
            cluster_wait();
        }
        __syncthreads();
        if (overlaps) follow_previous();
        if (cooperative) {
            shared.messages.clear(messages);
            cooperative_groups::this_grid().sync();
        }
    }
    // Calls f(group, turn) for the team's groups.
    template <typename F> __device__ __forceinline__ void for_groups(const F &f) const {
        for (uint32_t group = own_group, turn = 0; group < groups; group += teams, ++turn) f(group, turn);
    }
    // Called by a fetching warp: fetches the steps of a range, as fetch_groups does. most: in a grid, places that are being filled at once.
    template <bool in_turn, int arrays, typename T>
    __device__ __forceinline__ void fetch(const step_range &range, const segment_geometry &geometry, const T *const (&tensors)[arrays],
                                          const bops_channel_strides *const (&strides)[arrays], uint32_t most, uint64_t policy) const {
        bulk_place arriving = {range.slot, 0}; // the first whose bytes are not known to have come
        const auto before = [&](uint32_t number) {
            if (!cooperative || number < most) return;
            shared.bulk.wait_full(arriving);
            arriving.next(range.end_slot, range.slot);
        };
        fetch_groups<in_turn>(shared.bulk, ring, range, geometry, tensors, strides, relay_vectors * team, before, policy);
    }
};

// A barrier of the warps that write.
__device__ __forceinline__ void writers_sync(uint32_t team) { asm volatile("bar.sync 1, %0;" ::"r"(team) : "memory"); }

// Vectors that a thread which adds up has in a step.
template <activation_form form> constexpr int relay_sum_vectors = form == silu_activation ? 2 * relay_vectors : relay_vectors;

// Number of segments whose weight and bias a block keeps in shared memory.
__host__ __device__ __forceinline__ uint32_t relay_parameters(const walk_geometry &ring, bool is_batch, bool overflows) {
    return is_batch ? 1 : overflows ? ring.segments : ring.run_segments();
}

// A warp of the forward. A warp that adds up uses the mean of its first vectors as the shift of its moments. If the shift turns out to be far from the
// mean, the warp adds up its part once more. In the specialisation for SiLU half as many warps add up as write.
//
// In a grid the merging warp sends the block's moments to the other blocks through memory, and a further warp receives the moments of all blocks. In
// a grid one specialisation, light_activation, serves all short activations, SiLU included.
//
// Overflowing: the blocks take the steps of a group in turn, and the first steps are read twice. The first steps leave shared memory once they are
// added up. The L2 is asked to keep them, and two further warps fetch them: one for the sums, one for the output. The output of the first steps is
// written last, so that these steps take no place while the moments of the next group are exchanged, nor while the first steps of the group after it
// are added up.
//
// has_residual: a further warp fetches the residual into the last places; the warps that write add it from there.
template <typename T, activation_form form, relay_team kind, bool has_residual> struct relay_forward {
    static constexpr bool cooperative = kind != cluster_team, overflows = kind == overflowing_team;
    static constexpr int width = 16 / int(sizeof(T)), sum_vectors = relay_sum_vectors<form>;
    using block_type = relay_block<relay_moments, float3, cooperative>; // its results: shift, correction, rstd
    const channel_walk_arguments &a;
    const block_type &block;
    const walk_geometry &ring;
    uint32_t stride, first; // from one step of the block to its next one, and the block's first step of a group

    __device__ __forceinline__ relay_forward(const channel_walk_arguments &arguments, const block_type &own)
        : a(arguments), block(own), ring(own.ring), stride(overflows ? own.ring.team_blocks : 1),
          first(overflows ? own.rank : own.rank * own.ring.steps) {}

    __device__ __forceinline__ void fetch_residual() const {
        const T *const tensors[1] = {static_cast<const T *>(a.o.residual)};
        const bops_channel_strides *const strides[1] = {&a.p.residual};
        fetch_groups(block.shared.bulk, ring, ring.residual_steps(), a.geometry, tensors, strides, relay_vectors * block.team, [](uint32_t) {});
    }
    // Fetches x, or the part of it that this warp has.
    __device__ __forceinline__ void fetch() const {
        const T *const tensors[1] = {static_cast<const T *>(a.o.x)};
        const bops_channel_strides *const strides[1] = {&a.p.x};
        const auto fetch = [&](const step_range &range, uint32_t most, uint64_t policy) {
            block.template fetch<overflows>(range, a.geometry, tensors, strides, most, policy);
        };
        // Where groups are channels, memory is faster if the lines of x stay in the L2 longer than those that are written.
        if constexpr (!overflows) fetch(ring.all_steps(), ring.arriving, a.geometry.is_batch && !has_residual ? evict_last() : 0);
        else if (block.warp == block.fetcher) fetch(ring.staying_steps(), ring.arriving, evict_first());
        else if (block.warp == block.fetcher + 3) fetch(ring.repeated_range(false), ring.window_places, evict_last());
        else fetch(ring.repeated_range(true), ring.window_places, evict_first());
    }
    __device__ __forceinline__ step_range staying_steps() const { return overflows ? ring.staying_steps() : ring.all_steps(); }

    // Adds up the moments of the warp's part of each group.
    __device__ __forceinline__ void add() const {
        const uint32_t own = block.warp - block.warps, team = block.sum_team, first_lanes = relay_lanes(ring, first, own, team, 1);
        // The step whose vectors give the shift. The first step may be the rest of a segment, in which some warps have no vectors.
        const uint32_t shift_step = first_lanes == 0 && ring.steps > 1 ? 1 : 0;
        const uint32_t shift_lanes = shift_step ? relay_lanes(ring, first + stride, own, team, 1) : first_lanes;
        const float shift_scale = shift_lanes ? 1.0f / float(shift_lanes * width) : 0.0f;
        uint32_t own_vectors = 0;
        for (uint32_t i = 0; i < ring.steps; ++i) own_vectors += relay_lanes(ring, first + i * stride, own, team, sum_vectors);
        const float own_reciprocal = 1.0f / float(own_vectors * width);
        const step_range staying = staying_steps(), repeated = ring.repeated_range(false);
        const relay_walk<1, sum_vectors, overflows> walk(ring, block.shared.bulk, block.rank, threadIdx.x - block.team, team);
        bulk_place place, window = {repeated.slot, 0};
        block.for_groups([&](uint32_t group, uint32_t turn) {
            moments<float> total = {0, 0, 0};
            uint32_t step = 0;
            const bulk_place start = place;
#pragma unroll 1 // a second time is rare
            for (bool is_first = true;; is_first = false, place = start) {
                // early: what the chains of additions that have ended came to: the sum of the deviations from the shift, and that of their squares
                float sum[width] = {}, square[width] = {}, early[2] = {};
                uint32_t chain = 0; // steps in the chain that is being added up
                const auto enter = [](uint32_t, uint32_t) {};
                const auto take = [&](int j, const packed<16>(&data)[1], bool is_mine) {
                    float x[width];
                    if (j == 0 && step++ == shift_step) {
                        float mean[1];
                        unpack<T>(data[0], x);
                        mean[0] = is_mine ? tree_sum(x) : 0.0f;
                        warp_sum(mean, 32);
                        total.shift = mean[0] * shift_scale;
                    }
                    if (j == 0 && chain++ == chain_vectors / sum_vectors) {
                        early[0] += tree_sum(sum), early[1] += tree_sum(square), chain = 1;
#pragma unroll
                        for (int k = 0; k < width; ++k) sum[k] = square[k] = 0;
                    }
                    if (is_mine) {
                        unpack<T>(data[0], x);
                        add_moments(x, total.shift, sum, square);
                    }
                };
                if constexpr (overflows) {
                    if (is_first) walk.template pass<true>(ring, repeated, window, team, enter, take);
                    else walk.pass_in_memory(ring, repeated, x_of(group), a.geometry.is_batch ? a.p.x.batch : a.p.x.channel, take);
                }
                walk.template pass<false>(ring, staying, place, team, enter, take);
                float totals[2] = {early[0] + tree_sum(sum), early[1] + tree_sum(square)};
                warp_sum(totals, 32);
                total.sum = totals[0], total.square = totals[1];
                if (!is_first || !recenter(total, own_reciprocal)) break;
            }
            if (block.lane == 0) block.shared.parts.make(turn).of_warp[own] = total, block.shared.parts.made(turn);
        });
    }
    __device__ __forceinline__ const T *x_of(uint32_t group) const {
        uint32_t sample, channel;
        a.geometry.segment(group, 0, sample, channel);
        return static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel);
    }

    // Merges the moments of the block's warps, and in a cluster those of its blocks.
    __device__ __forceinline__ void merge() const {
        const uint32_t lane = block.lane;
        uint32_t warp_vectors = 0; // of the warp that has this thread's lane as its number
        for (uint32_t i = 0; i < ring.steps; ++i) warp_vectors += relay_lanes(ring, first + i * stride, lane, block.sum_team, sum_vectors);
        const float warp_count = lane < block.sum_warps ? float(warp_vectors * width) : 0.0f;
        const uint32_t block_vectors = ring.vectors_of<overflows>(block.rank);
        const float block_reciprocal = ring.team_blocks == 1 ? a.reciprocal_count : block_vectors ? 1.0f / (float(block_vectors) * width) : 0.0f;
        const float rank_count = lane < ring.team_blocks ? float(ring.vectors_of(lane)) * width : 0.0f;
        block.for_groups([&](uint32_t group, uint32_t turn) {
            const relay_moments &from = block.shared.parts.take(turn);
            moments<float> part = {0, 0, 0};
            if (lane < block.sum_warps) part = from.of_warp[lane];
            block.shared.parts.taken(turn);
            moments<float> total = merge_across<true>(part, warp_count, block_reciprocal);
            if (cooperative) {
                if (lane == 0) block.shared.messages.send(a.messages, make_float3(total.shift, total.sum, total.square), turn);
                return;
            }
            if (ring.team_blocks > 1) {
                block.shared.exchange.send({total.shift, total.sum, total.square, 0}, turn, block.rank, ring.team_blocks, lane);
                const float(*const blocks)[4] = block.shared.exchange.wait(turn);
                part = {0, 0, 0};
                if (lane < ring.team_blocks) part = {blocks[lane][0], blocks[lane][1], blocks[lane][2]};
                total = merge_across<true>(part, rank_count, a.reciprocal_count);
            }
            finish(total, group, turn);
        });
    }
    // Receives the moments of all blocks of a grid's team.
    __device__ __forceinline__ void receive() const {
        float count[message_exchange::lane_messages];
#pragma unroll
        for (uint32_t i = 0; i < message_exchange::lane_messages; ++i)
            count[i] = block.lane + 32 * i < ring.team_blocks ? float(ring.vectors_of<overflows>(block.lane + 32 * i)) * width : 0.0f;
        block.for_groups([&](uint32_t group, uint32_t turn) {
            finish(block.shared.messages.receive_moments(a.messages, turn, ring.team_blocks, count, a.reciprocal_count), group, turn);
        });
    }
    // Passes the statistics of a group on to the warps that write, and saves them.
    __device__ __forceinline__ void finish(moments<float> total, uint32_t group, uint32_t turn) const {
        total.sum += total.sum - total.sum; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
        if (block.lane == 0) block.shared.results.make(turn) = make_float3(s.shift, s.correction, s.rstd), block.shared.results.made(turn);
        if (block.lane == 0 && block.rank == 0) save_group(a, group, s);
    }

    // Writes the output.
    __device__ __forceinline__ void write() const {
        const uint32_t team = block.team, parameters = relay_parameters(ring, a.geometry.is_batch, overflows); // of the block's part of a group
        float2 *const all_parameters = reinterpret_cast<float2 *>(dynamic_shared + ring.places * relay_vectors * team * 16);
        // by_segment: 1 if each segment has a weight and a bias of its own, 0 if all segments are of one channel.
        const uint32_t first_segment = a.geometry.is_batch || overflows ? 0 : ring.by_chunks.quotient(first) * ring.multi,
                       by_segment = a.geometry.is_batch ? 0 : 1;
        const uint64_t segment_stride = a.geometry.is_batch ? a.p.y.batch : a.p.y.channel, step_elements = uint64_t(stride) * ring.pitch * width;
        const bops_activation activation = form == silu_activation ? BOPS_SILU : a.p.activation;
        const relay_walk<1, relay_vectors, overflows> walk(ring, block.shared.bulk, block.rank, threadIdx.x, team);
        const step_range staying = staying_steps(), repeated = ring.repeated_range(true);
        bulk_place place, window = {has_residual ? ring.residual_steps().slot : repeated.slot, 0};
        block.for_groups([&](uint32_t group, uint32_t turn) {
            uint32_t sample, channel;
            a.geometry.segment(group, 0, sample, channel);
            float2 *const own_parameters = all_parameters + turn % 2 * parameters;
            for (uint32_t k = threadIdx.x; k < parameters; k += team) {
                const uint32_t index = channel + min(first_segment + k, by_segment * (ring.segments - 1));
                own_parameters[k] =
                    make_float2(parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f), parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f));
            }
            writers_sync(team);
            const float3 s = block.shared.results.take_by_warp(turn);
            T *const y_group = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel);
            T *y[relay_vectors];
            float scale[relay_vectors], offset[relay_vectors];
            const auto enter = [&](uint32_t segment, uint32_t chunk) {
#pragma unroll
                for (int j = 0; j < relay_vectors; ++j) {
                    const uint32_t own_segment = segment + walk.sub[j];
                    y[j] = y_group + (own_segment * segment_stride + (chunk * ring.pitch + walk.lane[j]) * width);
                    const float2 affine = own_parameters[min(own_segment - first_segment, parameters - 1)];
                    scale[j] = s.z * affine.x, offset[j] = fmaf(-s.y, scale[j], affine.y);
                }
            };
            const auto take = [&](int j, const packed<16>(&data)[1], bool is_mine) {
                const packed<16> added = has_residual ? take_residual(walk.vector, window, j) : packed<16>{};
                if (is_mine) {
                    float d[width];
                    unpack_deviations<T>(data[0], s.x, d);
                    store<16, overflows>(y[j], channel_output<T, 16, false>(d, scale[j], offset[j], has_residual, added, activation));
                }
                y[j] += step_elements;
            };
            walk.template pass<true>(ring, staying, place, team, enter, take);
            if constexpr (overflows) walk.template pass<true>(ring, repeated, window, team, enter, take);
        });
    }
    // Vector j of the residual, from a place of the window. With the last vector the thread releases the place and goes on to the next one. vector:
    // address of the thread's first vector in shared memory.
    __device__ __forceinline__ packed<16> take_residual(uint32_t vector, bulk_place &window, int j) const {
        if (j == 0) block.shared.bulk.wait_full(window);
        const packed<16> added = load_shared(vector + (window.slot * relay_vectors + j) * block.team * 16);
        if (j + 1 == relay_vectors) {
            block.shared.bulk.release(window.slot);
            window.next(ring.places, ring.residual_steps().slot);
        }
        return added;
    }
};

// Every warp has one role and keeps it for all groups of its team.
template <typename T, activation_form form, relay_team kind, bool has_residual> __global__ void __launch_bounds__(relay_threads, 1)
    channel_norm_relay(const __grid_constant__ channel_walk_arguments a) {
    if (!has_sm_90) return;
    using relay_type = relay_forward<T, form, kind, has_residual>;
    __shared__ relay_slots<relay_moments> parts;
    __shared__ relay_slots<float3> statistics;
    __shared__ cluster_exchange exchange;
    __shared__ message_exchange messages;
    __shared__ bulk_ring bulk;
    constexpr int sum_vectors = relay_type::sum_vectors;
    const uint32_t team = (blockDim.x - relay_service(kind, has_residual)) * sum_vectors / (sum_vectors + relay_vectors);
    const typename relay_type::block_type block(a.ring, a.geometry.groups, team, team * relay_vectors / sum_vectors,
                                                {parts, statistics, exchange, messages, bulk});
    block.start(a.overlaps, a.messages);
    const relay_type relay(a, block);
    if (has_residual && block.warp == block.fetcher + relay_service(kind) / 32) relay.fetch_residual();
    else if (block.warp == block.fetcher || (relay_type::overflows && block.warp > block.fetcher + 2)) relay.fetch();
    else if (block.warp >= block.warps && block.warp < block.fetcher) relay.add();
    else if (block.warp == block.fetcher + 1) relay.merge();
    else if (relay_type::cooperative && block.warp > block.fetcher + 1) relay.receive();
    else relay.write();
}

// Host: the form `relay`.
template <typename T> bops_status channel_norm_relay_kernels(const forward_call<bops_channel_norm_relay_choice> &f) {
    const auto &c = f.c;
    const uint32_t step_vectors = c.threads * relay_vectors;
    const walk_choice walk = {
        c.team_blocks, c.steps, step_vectors, c.places, c.arriving_places, c.repeated_steps, c.residual_places + c.repeated_places};
    const bool is_grid = c.team == BOPS_NORM_GRID, is_silu = f.p.activation == BOPS_SILU && !is_grid, has_residual = c.residual_places > 0;
    const channel_walk_arguments a = walk_arguments<T>(f, walk, is_grid ? c.blocks : 0);
    const relay_team kind = !is_grid ? cluster_team : c.repeated_steps ? overflowing_team : grid_team;
    const uint32_t sum_vectors = is_silu ? relay_sum_vectors<silu_activation> : relay_sum_vectors<light_activation>;
    const uint32_t sum_threads = c.threads * relay_vectors / sum_vectors;
    const uint32_t parameters = relay_parameters(a.ring, f.p.groups == 0, kind == overflowing_team);
    launch_shape shape = f.shape(c.threads + sum_threads + relay_service(kind, has_residual),
                                 c.places * step_vectors * 16 + 2 * parameters * uint32_t(sizeof(float2)));
    shape.cooperative = is_grid, shape.cluster = is_grid ? 1 : c.team_blocks;
    const bops_status status = f.call(kind == overflowing_team ? channel_norm_relay<T, light_activation, overflowing_team, false>
                                      : has_residual           ? kind == grid_team ? channel_norm_relay<T, light_activation, grid_team, true>
                                                                                   : channel_norm_relay<T, light_activation, cluster_team, true>
                                                : kind == grid_team ? channel_norm_relay<T, light_activation, grid_team, false>
                                      : is_silu                ? channel_norm_relay<T, silu_activation, cluster_team, false>
                                                               : channel_norm_relay<T, light_activation, cluster_team, false>,
                                      shape, a);
    return status ? status : finish_running(f, a.records);
}

} // namespace bops
