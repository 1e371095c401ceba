// Gradients of BatchNorm, GroupNorm and InstanceNorm, the form `held`: warps hold a part of a group in registers while one warp has the bulk copy
// engine fetch the following groups into shared memory. Compute capability 9.0.
#pragma once
#include <cooperative_groups.h>

#include "../../common/messages.cuh"
#include "channel_norm_backward_walk.cuh"
#include "bulk_ring.cuh"

namespace bops {

// Steps of a group in registers, at most. In a step a thread has a vector of dy and one of x, which take 8 of the registers of `held_registers`.
constexpr int held_backward_steps = 4; // of a cluster
constexpr int held_active_steps = 6;   // of a grid, whose blocks have an SM to themselves, with an activation
constexpr int held_plain_steps = 10;   // of a grid without an activation

// Registers of a thread, at most: of a grid all that there are, 128 with 16 warps on an SM and 168 with 12; of clusters, of which several share an SM,
// fewer.
constexpr int held_registers(bool active, bool cooperative) { return !cooperative ? 112 : active ? 128 : 168; }

// Sets the elements of a vector of dy to 0 that a ReLU does not pass: those whose y, or pre-activation, is at most 0.
template <typename T> __device__ __forceinline__ void mask_relu(const packed<16> &y, packed<16> &dy) {
#pragma unroll
    for (int i = 0; i < 4; ++i) { // greater, or a NaN
        if constexpr (sizeof(T) == 4) dy.word[i] = __uint_as_float(y.word[i]) <= 0.0f ? 0 : dy.word[i];
        else if constexpr (std::is_same_v<T, __half>)
            dy.word[i] &= __hgtu2_mask(reinterpret_cast<const __half2 &>(y.word[i]), __float2half2_rn(0.0f));
        else dy.word[i] &= __hgtu2_mask(reinterpret_cast<const __nv_bfloat162 &>(y.word[i]), __float2bfloat162_rn(0.0f));
    }
}
template <typename T, int width> __device__ __forceinline__ void mask_relu(const float (&pre)[width], packed<16> &dy) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 4) dy.word[i] = pre[i] <= 0.0f ? 0 : dy.word[i];
        else dy.word[i] &= (pre[2 * i] <= 0.0f ? 0 : 0xffffu) | (pre[2 * i + 1] <= 0.0f ? 0 : 0xffff0000u);
    }
}

// Teams walk over groups; a place holds a step of dy and one of x. The first `held` steps of a group go to registers, which frees their places at once.
// Further steps keep their places until they are written out.
//
// by_segment: the sums of each segment are wanted, or a segment has a weight of its own. A warp then takes one segment at a time; when it leaves a
// segment, it stores its sums in a slot of their own. With SiLU the numbers in registers stand for dpre / silu_unit.
//
// cooperative: a team is any number of blocks, on whichever SMs they run. They exchange their sums through memory, two messages a block. What the
// messages hold at first is unknown, so the first exchange is a barrier of the grid, which the fetching warp joins once it can fetch nothing more.
// active: cooperative, with an activation.
//
// masks: cooperative, through a ReLU whose sign a residual or y gives. The residual or y passes through the same places. When an element is added up,
// dpre (which is dy or 0) replaces dy, so that nothing else is needed later. dpre is also the gradient of the residual, and is written while the team
// exchanges sums.
template <typename T, activation_form form, bool active, bool by_segment, bool cooperative, bool masks> struct held_group {
    static constexpr int width = 16 / int(sizeof(T)), arrays = masks ? 3 : 2;
    static constexpr int held = cooperative ? active ? held_active_steps : held_plain_steps : form == any_activation ? 0 : held_backward_steps;
    static constexpr float unit = form == silu_activation ? silu_unit : 1.0f;
    static_assert(!masks || (cooperative && !active && !by_segment), "");

    const channel_backward_walk_arguments &a;
    const walk_geometry &ring;
    uint32_t readers, lane, warp;
    uint32_t own_group, rank, first;                     // the team's first group; of the block in its team, and its first step of a group
    uint32_t full, vector, array_bytes;                  // addresses: of the first place's barrier, of the thread's vector there
    uint32_t first_segment, segment_warps, own_segments; // of the block
    uint32_t partials;    // address of sums of warps over segments, [turn % 2][segment - the block's first][warp of the segment], of 8 bytes each
    bops_activation kind; // the activation, copied: after each wait the compiler would load the argument again
    step_walk step;
    uint32_t sample, channel; // of the group's first segment
    float mean, rstd, scale, bias, weight, next_mean = 0, next_rstd = 0;
    uint32_t turn_partials; // address of those of the turn

    // What registers hold of a group.
    struct vectors {
        packed<16> dy[held + 1], x[held + 1];
    };

    // first_group: of the team. The caller divides before the fetching warp branches off, where the quotient goes to uniform registers. Behind the branch
    // it and what follows from it would take registers of the threads, which the steps need.
    __device__ __forceinline__ held_group(const channel_backward_walk_arguments &arguments, const bulk_ring &bulk, uint32_t first_group)
        : a(arguments), ring(arguments.ring), readers(blockDim.x - 32), lane(threadIdx.x % 32), warp(threadIdx.x / 32), own_group(first_group),
          rank(blockIdx.x - own_group * ring.team_blocks), first(rank * ring.steps), full(kept_address(bulk.full)),
          vector(kept_address(dynamic_shared + threadIdx.x * 16)), array_bytes(readers * 16),
          first_segment(ring.by_chunks.quotient(first) * ring.multi), segment_warps(ring.pitch / 32),
          partials(kept_address(dynamic_shared + ring.places * arrays * readers * 16)), kind(arguments.p.activation), step(ring) {
        const uint32_t end_segment = min(ring.by_chunks.quotient(first + ring.steps - 1) * ring.multi + ring.multi, ring.segments);
        own_segments = end_segment > first_segment ? end_segment - first_segment : 0;
    }
    __device__ __forceinline__ bops_activation activation() const { return cooperative && !active ? BOPS_IDENTITY : kind; }
    __device__ __forceinline__ uint64_t stride_of(const bops_channel_strides &s) const { return a.geometry.is_batch ? s.batch : s.channel; }
    __device__ __forceinline__ void wait_full(const bulk_place &place) const { mbarrier::wait(full + place.slot * 8, place.parity); }
    __device__ __forceinline__ void release(uint32_t slot) const { mbarrier::arrive(full + offsetof(bulk_ring, empty) + slot * 8); }
    __device__ __forceinline__ packed<16> vector_of(uint32_t slot, int array) const {
        return load_shared(vector + (slot * arrays + array) * array_bytes);
    }
    // Loads the statistics of the next group ahead.
    __device__ __forceinline__ void load_statistics(uint32_t group) {
        if (group < uint32_t(a.geometry.groups))
            next_mean = __ldg(static_cast<const float *>(a.o.mean) + group), next_rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    }
    // Goes on to a group, after which the team takes group `next`.
    __device__ __forceinline__ void enter(uint32_t group, uint32_t next, uint32_t turn) {
        mean = next_mean, rstd = next_rstd;
        load_statistics(next);
        a.geometry.segment(group, 0, sample, channel);
        turn_partials = partials + turn % 2 * own_segments * segment_warps * 8;
    }
    // Goes to the block's first step of the group.
    __device__ __forceinline__ void start() {
        step.start(ring, first);
        take_parameters();
    }
    // Takes the parameters of the step's segment.
    __device__ __forceinline__ void take_parameters() {
        const uint32_t index = a.geometry.is_batch ? channel : channel + min(step.segment, ring.segments - 1);
        weight = parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
        bias = activation() || masks ? unit * parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f) : 0.0f;
        scale = rstd * unit * weight;
    }
    __device__ __forceinline__ void make_dpre(const packed<16> &dy_vector, const packed<16> &x_vector, float (&dy)[width], float (&d)[width]) const {
        unpack<T>(dy_vector, dy);
        unpack_deviations<T>(x_vector, mean, d);
        differentiate_together<T, form>(activation(), d, scale, bias, dy);
    }
    // Replaces dy by dpre, of a vector of y or of the residual.
    __device__ __forceinline__ void mask(const packed<16> &extra, const packed<16> &x_vector, packed<16> &dy_vector) const {
        if (a.o.y) {
            mask_relu<T>(extra, dy_vector);
        } else {
            float pre[width], d[width];
            unpack<T>(extra, pre);
            unpack<T>(x_vector, d);
#pragma unroll
            for (int k = 0; k < width; ++k) pre[k] += fmaf(d[k] - mean, scale, bias);
            mask_relu<T>(pre, dy_vector);
        }
    }

    // The warp's sums of dpre and dpre xhat over the group, by segment of their products with the weight. Reads the steps of the group from `place` on;
    // leaves place at the next group. Returns the place of the first step that is not held.
    __device__ __forceinline__ bulk_place add(vectors &data, bulk_place &place, float (&weighted)[2]) {
        float sum[width] = {}, product[width] = {};
        const auto take = [&](packed<16> &dy_vector, const packed<16> &x_vector, const packed<16> &extra, bool is_last) {
            if (step.is_mine(ring)) {
                float dy[width], d[width];
                if constexpr (masks) mask(extra, x_vector, dy_vector);
                make_dpre(dy_vector, x_vector, dy, d);
                add_products(dy, d, sum, product);
            }
            const uint32_t segment = step.segment;
            const bool is_other = step.next(ring);
            if constexpr (by_segment)
                if (is_other || is_last) leave_segment(segment, sum, product, weighted);
        };
        start();
        packed<16> extra = {};
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < ring.steps) {
                wait_full(place);
                data.dy[v] = vector_of(place.slot, 0), data.x[v] = vector_of(place.slot, 1);
                if constexpr (masks) extra = vector_of(place.slot, 2);
                release(place.slot);
                place.next(ring.places);
                take(data.dy[v], data.x[v], extra, v + 1 == ring.steps);
            }
        const bulk_place kept = place;
#pragma unroll 1
        for (uint32_t v = held; v < ring.steps; ++v, place.next(ring.places)) {
            wait_full(place);
            packed<16> dy_vector = vector_of(place.slot, 0);
            if constexpr (masks) extra = vector_of(place.slot, 2);
            take(dy_vector, vector_of(place.slot, 1), extra, v + 1 == ring.steps);
            if constexpr (masks) store_shared(vector + place.slot * arrays * array_bytes, dy_vector);
        }
        if constexpr (!by_segment) {
            weighted[0] = tree_sum(sum) * unit, weighted[1] = tree_sum(product) * (rstd * unit);
            warp_sum(weighted, 32);
        }
        return kept;
    }
    // Stores the warp's sums of a segment, adds their products with its weight to `weighted`, and goes on to the segment of this step.
    __device__ __forceinline__ void leave_segment(uint32_t segment, float (&sum)[width], float (&product)[width], float (&weighted)[2]) {
        float sums[2] = {tree_sum(sum) * unit, tree_sum(product) * (rstd * unit)};
        warp_sum(sums, 32);
        weighted[0] = fmaf(weight, sums[0], weighted[0]), weighted[1] = fmaf(weight, sums[1], weighted[1]);
        const uint32_t segment_warp = ring.multi > 1 ? step.lane / 32 : warp;
        if (lane == 0 && segment < ring.segments && step.sub < ring.multi)
            store_shared(turn_partials + ((segment - first_segment) * segment_warps + segment_warp) * 8, make_float2(sums[0], sums[1]));
#pragma unroll
        for (int k = 0; k < width; ++k) sum[k] = product[k] = 0;
        take_parameters();
    }
    // Writes dpre, which masks have left in place of dy, as the gradient of the residual. at: the place of the first step that is not held.
    __device__ __forceinline__ void write_dresidual(const vectors &data, bulk_place at) {
        step.start(ring, first);
        walk_pointer<T> dresidual(ring, a.p.dresidual.batch);
        dresidual.at =
            static_cast<T *>(a.o.dresidual) + segment_offset(a.p.dresidual, sample, channel) + step.offset(ring, a.p.dresidual.batch, width);
        const auto put = [&](const packed<16> &dpre) {
            if (step.is_mine(ring)) store<16, false>(dresidual.at, dpre);
            dresidual.next(step.next(ring));
        };
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < ring.steps) put(data.dy[v]);
#pragma unroll 1
        for (uint32_t v = held; v < ring.steps; ++v, at.next(ring.places)) put(vector_of(at.slot, 0));
    }
    // Writes the sums of the block's segments, which a later launch adds up.
    __device__ __forceinline__ void write_segment_sums() const {
        for (uint32_t k = threadIdx.x; k < own_segments; k += readers) {
            const float2 *const of_segment = static_cast<const float2 *>(__cvta_shared_to_generic(turn_partials)) + k * segment_warps;
            float2 total = {0, 0};
            for (uint32_t w = 0; w < segment_warps; ++w) {
                const float2 of_warp = of_segment[w];
                total.x += of_warp.x, total.y += of_warp.y;
            }
            const uint64_t row = a.geometry.row_of(sample, channel + first_segment + k);
            *reinterpret_cast<float2 *>(a.segment_sums + (row * ring.team_blocks + rank) * 2) = total;
        }
    }
    // Called by all reading threads: the sums of a grid's team from the messages of its blocks. team_sums: in shared memory.
    __device__ __forceinline__ void receive_team_sums(const uint4 *messages, uint32_t turn, float2 (&team_sums)[merge_lanes],
                                                      float (&sums)[2]) const {
        if (turn == 0) cooperative_groups::this_grid().sync();
        if (warp * 32 < ring.team_blocks) {
            sums[0] = sums[1] = 0;
            for (uint32_t i = threadIdx.x; i < ring.team_blocks; i += readers) {
                const float2 of_block = receive_sums(messages + own_group * ring.team_blocks + i, turn + 1);
                sums[0] += of_block.x, sums[1] += of_block.y;
            }
            warp_sum(sums, 32);
            if (lane == 0) team_sums[warp] = make_float2(sums[0], sums[1]);
        }
        readers_sync(readers);
        sums[0] = sums[1] = 0;
        const uint32_t warps = readers / 32;
        for (uint32_t w = 0; w < warps && w * 32 < ring.team_blocks; ++w) sums[0] += team_sums[w].x, sums[1] += team_sums[w].y;
    }
    // Writes the gradients of the elements; the walk is at the group's first step. kept: the place of the first step that is not held.
    __device__ __forceinline__ void write(const vectors &data, bulk_place &kept, float mean_g, float slope) {
        walk_pointer<T> dx(ring, stride_of(a.p.dx));
        dx.at = static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + step.offset(ring, stride_of(a.p.dx), width);
        const auto finish = [&](const packed<16> &dy_vector, const packed<16> &x_vector) {
            if (step.is_mine(ring)) {
                float dy[width], d[width];
                make_dpre(dy_vector, x_vector, dy, d);
                make_dx(d, scale, mean_g, slope, dy);
                if (a.o.dx) store<16, false>(dx.at, pack<T, 16>(dy));
            }
            const bool is_other = step.next(ring);
            dx.next(is_other);
            if (by_segment && is_other) take_parameters();
        };
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < ring.steps) finish(data.dy[v], data.x[v]);
#pragma unroll 1
        for (uint32_t v = held; v < ring.steps; ++v, kept.next(ring.places)) {
            const packed<16> dy_vector = vector_of(kept.slot, 0), x_vector = vector_of(kept.slot, 1);
            if constexpr (masks) order_before_copies();
            release(kept.slot);
            finish(dy_vector, x_vector);
        }
    }
};

// The fetching warp. In a grid it joins the barrier of the first exchange once the places are full and nothing was released that it could fill.
template <typename T, int held, bool cooperative, bool masks>
__device__ __forceinline__ void fetch_held(const channel_backward_walk_arguments &a, bulk_ring &bulk) {
    constexpr int arrays = masks ? 3 : 2;
    const walk_geometry &ring = a.ring;
    const T *tensors[arrays] = {static_cast<const T *>(a.o.dy), static_cast<const T *>(a.o.x)};
    const bops_channel_strides *strides[arrays] = {&a.p.dy, &a.p.x};
    if constexpr (masks) tensors[2] = static_cast<const T *>(a.o.y ? a.o.y : a.o.residual), strides[2] = a.o.y ? &a.p.y : &a.p.residual;
    const uint32_t meeting = max(ring.steps, ring.places + min(ring.steps, uint32_t(held)));
    const auto meet = [&](bool is_time) {
        if (cooperative && is_time) cooperative_groups::this_grid().sync();
    };
    const auto before = [&](uint32_t number) { meet(number == meeting); };
    const uint64_t policy = masks ? evict_last() : 0; // lines, rather than those of the gradients
    meet(fetch_groups(bulk, ring, ring.all_steps(), a.geometry, tensors, strides, blockDim.x - 32, before, policy) <= meeting);
}

template <typename T, activation_form form, bool active, bool by_segment, bool cooperative, bool masks = false>
__global__ void __maxnreg__(held_registers(active, cooperative))
    channel_norm_backward_held(const __grid_constant__ channel_backward_walk_arguments a) {
    if (!has_sm_90) return;
    using group_type = held_group<T, form, active, by_segment, cooperative, masks>;
    __shared__ float2 warp_sums[2][merge_lanes], team_sums[merge_lanes];
    __shared__ cluster_exchange exchange;
    __shared__ bulk_ring bulk;
    const walk_geometry &ring = a.ring;
    const uint32_t readers = blockDim.x - 32, warps = readers / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t teams = gridDim.x / ring.team_blocks, groups = uint32_t(a.geometry.groups), own_group = blockIdx.x / ring.team_blocks;
    bulk.initialize(ring.places, readers);
    if (!cooperative && ring.team_blocks > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (a.overlaps) follow_previous();
    if (cooperative) allow_dependents();
    if (warp == warps) {
        fetch_held<T, group_type::held, cooperative, masks>(a, bulk);
        return;
    }
    group_type own(a, bulk, own_group);
    own.load_statistics(own_group);
    bulk_place place; // the next to read
    for (uint32_t group = own_group, turn = 0; group < groups; group += teams, ++turn) {
        // 1. The sums of the warp, and the gradient of the residual.
        own.enter(group, group + teams, turn);
        float sums[2] = {};
        typename group_type::vectors data;
        bulk_place kept = own.add(data, place, sums);
        if (lane == 0) warp_sums[turn % 2][warp] = make_float2(sums[0], sums[1]);
        readers_sync(readers);

        // 2. The sums of the block and of its team.
        merge_warp_sums(warp_sums[turn % 2], warps, merge_lanes, sums);
        uint4 *const messages = a.messages + turn % 2 * gridDim.x; // of the turn
        if (cooperative && threadIdx.x == 0) {
            send_sums(messages + blockIdx.x, make_float2(sums[0], sums[1]), turn + 1);
            if (turn == 0) send_sums(messages + gridDim.x + blockIdx.x, make_float2(0, 0), 0);
        }
        if (!cooperative && ring.team_blocks > 1 && warp == 0) exchange.send({sums[0], sums[1], 0, 0}, turn, own.rank, ring.team_blocks, threadIdx.x);
        if (masks && a.o.dresidual) own.write_dresidual(data, kept);
        if (by_segment && (a.o.dweight || a.o.dbias)) own.write_segment_sums();
        constexpr bool early = form != silu_activation; // its registers are scarce
        if constexpr (early) own.start();
        if constexpr (cooperative) own.receive_team_sums(messages, turn, team_sums, sums);
        else if (ring.team_blocks > 1) receive_cluster_sums(exchange, turn, ring.team_blocks, sums);
        if constexpr (!early) own.start();
        if constexpr (!by_segment) {
            if (threadIdx.x == 0 && own.rank == 0) {
                store_parameter<T>(a.o.dbias, a.weight_is_wide, group, sums[0]);
                store_parameter<T>(a.o.dweight, a.weight_is_wide, group, sums[1]);
            }
            sums[0] *= own.weight, sums[1] *= own.weight;
        }

        // 3. The gradients of the elements.
        own.write(data, kept, own.rstd * sums[0] * a.reciprocal_count, own.rstd * own.rstd * sums[1] * a.reciprocal_count);
    }
}

// Host: the form `held`.
template <typename T> bops_status channel_norm_backward_held_kernels(const backward_call<bops_channel_norm_backward_held_choice> &f) {
    const auto &c = f.c;
    const bool by_segment = f.p.groups != 0, is_grid = c.team == BOPS_NORM_GRID;
    const channel_backward_walk_arguments a = backward_walk_arguments<T>(f, {c.team_blocks, c.steps, c.threads, c.places}, is_grid ? c.blocks : 0);
    // Places, and slots for warps' sums: of each step at most one of every warp, twice.
    const uint32_t places_bytes = c.places * c.threads * (c.reads_extra ? 48 : 32), sums_bytes = by_segment ? (c.steps + 1) * c.threads / 2 : 0;
    launch_shape shape = f.shape(c.threads + 32, places_bytes + sums_bytes);
    shape.cooperative = is_grid, shape.cluster = is_grid ? 1 : c.team_blocks;
    if (c.reads_extra) return f.call(channel_norm_backward_held<T, light_activation, false, false, true, true>, shape, a);
    const int form = activation_form_of(f.p.activation);
    const auto run = [&](auto apart) {
        constexpr bool by = decltype(apart)::value;
        if (is_grid)
            return f.call.one_of(f.p.activation == BOPS_IDENTITY ? 0 : form + 1,
                                 specialised(channel_norm_backward_held<T, light_activation, false, by, true>,
                                             channel_norm_backward_held<T, light_activation, true, by, true>,
                                             channel_norm_backward_held<T, silu_activation, true, by, true>),
                                 shape, a);
        return f.call.one_of(form,
                             specialised(channel_norm_backward_held<T, light_activation, true, by, false>,
                                         channel_norm_backward_held<T, silu_activation, true, by, false>,
                                         channel_norm_backward_held<T, any_activation, true, by, false>),
                             shape, a);
    };
    const bops_status status = by_segment ? run(std::true_type()) : run(std::false_type());
    return status ? status : sum_parts<T>(a, c.team_blocks > 1 || c.overlaps, f.call);
}

} // namespace bops
