// Gradients of BatchNorm, GroupNorm and InstanceNorm, the form `held`: warps hold a part of a group in registers while one warp has the bulk copy
// engine fetch the following groups into shared memory. Compute capability 9.0.
#pragma once
#include <cooperative_groups.h>

#include "../../common/messages.cuh"
#include "channel_norm_backward_walk.cuh"
#include "bulk_ring.cuh"

namespace bops {

// Steps of a group in registers: in a cluster; in a grid, where a block has a multiprocessor to itself, with an activation and without.
constexpr int held_backward_steps = 4, held_active_steps = 6, held_plain_steps = 10;

// Registers of a thread: with 16 warps on a multiprocessor 128 are available, with 12 warps 168.
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
template <typename T, activation_form form, bool active, bool by_segment, bool cooperative, bool masks = false>
__global__ void __maxnreg__(held_registers(active, cooperative))
    channel_norm_backward_held(const __grid_constant__ channel_backward_walk_arguments a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), arrays = masks ? 3 : 2;
    static_assert(!masks || (cooperative && !active && !by_segment), "");
    constexpr int held = cooperative ? active ? held_active_steps : held_plain_steps : form == any_activation ? 0 : held_backward_steps;
    constexpr float unit = form == silu_activation ? silu_unit : 1.0f;
    __shared__ float2 warp_sums[2][merge_lanes], team_sums[merge_lanes];
    __shared__ cluster_exchange exchange;
    __shared__ bulk_ring bulk;
    const walk_geometry &ring = a.ring;
    const uint32_t readers = blockDim.x - 32, warps = readers / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t teams = gridDim.x / ring.cluster, groups = uint32_t(a.geometry.groups), own_group = blockIdx.x / ring.cluster;
    const uint32_t rank = blockIdx.x - own_group * ring.cluster, first = rank * ring.steps, steps = ring.steps;
    bulk.initialize(ring.slots, readers);
    if (!cooperative && ring.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (a.overlaps) follow_previous();
    if (cooperative) allow_dependents();
    if (warp == warps) {
        const T *tensors[arrays] = {static_cast<const T *>(a.o.dy), static_cast<const T *>(a.o.x)};
        const bops_channel_strides *strides[arrays] = {&a.p.dy, &a.p.x};
        if constexpr (masks) tensors[2] = static_cast<const T *>(a.o.y ? a.o.y : a.o.residual), strides[2] = a.o.y ? &a.p.y : &a.p.residual;
        const uint32_t meeting = max(steps, ring.slots + min(steps, uint32_t(held)));
        const auto meet = [&](bool is_time) {
            if (cooperative && is_time) cooperative_groups::this_grid().sync();
        };
        const auto before = [&](uint32_t number) { meet(number == meeting); };
        const uint64_t policy = masks ? evict_last() : 0; // lines, rather than those of the gradients
        meet(fetch_groups(bulk, ring, ring.all_steps(), a.geometry, tensors, strides, readers, before, policy) <= meeting);
        return;
    }
    const auto stride_of = [&](const bops_channel_strides &s) { return a.geometry.is_batch ? s.batch : s.channel; };
    const bops_activation activation = cooperative && !active ? BOPS_IDENTITY : a.p.activation;
    const uint32_t full = kept_address(bulk.full), vector = kept_address(dynamic_shared + threadIdx.x * 16), array_bytes = readers * 16;
    const auto wait_full = [&](const bulk_place &place) { mbarrier::wait(full + place.slot * 8, place.parity); };
    const auto release = [&](uint32_t slot) { mbarrier::arrive(full + offsetof(bulk_ring, empty) + slot * 8); };
    const auto vector_of = [&](uint32_t slot, int array) { return load_shared(vector + (slot * arrays + array) * array_bytes); };

    // Sums of warps over segments, [turn % 2][segment - the block's first][warp of the segment].
    const uint32_t first_segment = ring.by_chunks.quotient(first) * ring.multi, segment_warps = ring.pitch / 32;
    const uint32_t end_segment = min(ring.by_chunks.quotient(first + steps - 1) * ring.multi + ring.multi, ring.segments);
    const uint32_t own_segments = end_segment > first_segment ? end_segment - first_segment : 0;
    float2 *const partials = reinterpret_cast<float2 *>(dynamic_shared + ring.slots * arrays * readers * 16);

    step_walk step(ring);
    float next_mean = 0, next_rstd = 0;
    const auto load_statistics = [&](uint32_t group) {
        if (group < groups)
            next_mean = __ldg(static_cast<const float *>(a.o.mean) + group), next_rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    };
    load_statistics(own_group);
    bulk_place place; // the next to read
    for (uint32_t group = own_group, turn = 0; group < groups; group += teams, ++turn) {
        const float mean = next_mean, rstd = next_rstd;
        load_statistics(group + teams);
        uint32_t sample, channel;
        a.geometry.segment(group, 0, sample, channel);
        float2 *const turn_partials = partials + turn % 2 * own_segments * segment_warps;
        float scale, bias, weight;
        const auto take_parameters = [&] {
            const uint32_t index = a.geometry.is_batch ? channel : channel + min(step.segment, ring.segments - 1);
            weight = parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
            bias = activation || masks ? unit * parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f) : 0.0f;
            scale = rstd * unit * weight;
        };
        const auto make_dpre = [&](const packed<16> &dy_data, const packed<16> &x_data, float(&dy)[width], float(&d)[width]) {
            unpack<T>(dy_data, dy);
            unpack<T>(x_data, d);
#pragma unroll
            for (int k = 0; k < width; ++k) d[k] -= mean;
            differentiate_together<T, form>(activation, d, scale, bias, dy);
        };

        // 1. Sums of dpre and dpre d; by segment, of their products with the weight.
        packed<16> dy_data[held + 1], x_data[held + 1];
        float sum[width] = {}, product[width] = {}, weighted[2] = {};
        const auto take = [&](packed<16> &dy_vector, const packed<16> &x_vector, const packed<16> &extra, bool is_last) {
            if (step.is_mine(ring)) {
                float dy[width], d[width];
                if constexpr (masks) {
                    if (a.o.y) {
                        mask_relu<T>(extra, dy_vector);
                    } else {
                        float pre[width];
                        unpack<T>(extra, pre);
                        unpack<T>(x_vector, d);
#pragma unroll
                        for (int k = 0; k < width; ++k) pre[k] += fmaf(d[k] - mean, scale, bias);
                        mask_relu<T>(pre, dy_vector);
                    }
                }
                make_dpre(dy_vector, x_vector, dy, d);
#pragma unroll
                for (int k = 0; k < width; ++k) {
                    sum[k] += dy[k];
                    product[k] = fmaf(dy[k], d[k], product[k]);
                }
            }
            const uint32_t segment = step.segment;
            const bool is_other = step.next(ring);
            if constexpr (by_segment) {
                if (is_other || is_last) {
                    float sums[2] = {tree_sum(sum) * unit, tree_sum(product) * (rstd * unit)};
                    warp_sum(sums, 32);
                    weighted[0] = fmaf(weight, sums[0], weighted[0]), weighted[1] = fmaf(weight, sums[1], weighted[1]);
                    const uint32_t segment_warp = ring.multi > 1 ? step.lane / 32 : warp;
                    if (lane == 0 && segment < ring.segments && step.sub < ring.multi)
                        turn_partials[(segment - first_segment) * segment_warps + segment_warp] = make_float2(sums[0], sums[1]);
#pragma unroll
                    for (int k = 0; k < width; ++k) sum[k] = product[k] = 0;
                    take_parameters();
                }
            }
        };
        step.start(ring, first);
        take_parameters();
        packed<16> extra = {};
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < steps) {
                wait_full(place);
                dy_data[v] = vector_of(place.slot, 0), x_data[v] = vector_of(place.slot, 1);
                if constexpr (masks) extra = vector_of(place.slot, 2);
                release(place.slot);
                place.next(ring.slots);
                take(dy_data[v], x_data[v], extra, v + 1 == steps);
            }
        bulk_place kept = place; // of the first step that is not held
#pragma unroll 1
        for (uint32_t v = held; v < steps; ++v, place.next(ring.slots)) {
            wait_full(place);
            packed<16> dy_vector = vector_of(place.slot, 0);
            if constexpr (masks) extra = vector_of(place.slot, 2);
            take(dy_vector, vector_of(place.slot, 1), extra, v + 1 == steps);
            if constexpr (masks) store_shared(vector + place.slot * arrays * array_bytes, dy_vector);
        }
        if constexpr (!by_segment) {
            weighted[0] = tree_sum(sum) * unit, weighted[1] = tree_sum(product) * (rstd * unit);
            warp_sum(weighted, 32);
        }
        if (lane == 0) warp_sums[turn % 2][warp] = make_float2(weighted[0], weighted[1]);
        readers_sync(readers);

        // 2. The sums of the block and of its team.
        const float2 part = lane < warps ? warp_sums[turn % 2][lane] : make_float2(0, 0);
        float sums[2] = {part.x, part.y};
        warp_sum(sums, merge_lanes);
        uint4 *const messages = a.messages + turn % 2 * gridDim.x; // of the turn
        if (cooperative && threadIdx.x == 0) {
            send_sums(messages + blockIdx.x, make_float2(sums[0], sums[1]), turn + 1);
            if (turn == 0) send_sums(messages + gridDim.x + blockIdx.x, make_float2(0, 0), 0);
        }
        if (!cooperative && ring.cluster > 1 && warp == 0) exchange.send({sums[0], sums[1], 0, 0}, turn, rank, ring.cluster, threadIdx.x);
        if (masks && a.o.dresidual) {
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
                if (v < steps) put(dy_data[v]);
            bulk_place at = kept;
#pragma unroll 1
            for (uint32_t v = held; v < steps; ++v, at.next(ring.slots)) put(vector_of(at.slot, 0));
        }
        if (by_segment && (a.o.dweight || a.o.dbias))
            for (uint32_t k = threadIdx.x; k < own_segments; k += readers) {
                float2 total = {0, 0};
                for (uint32_t w = 0; w < segment_warps; ++w) {
                    const float2 of_warp = turn_partials[k * segment_warps + w];
                    total.x += of_warp.x, total.y += of_warp.y;
                }
                const uint64_t row = a.geometry.row_of(sample, channel + first_segment + k);
                *reinterpret_cast<float2 *>(a.segment_sums + (row * ring.cluster + rank) * 2) = total;
            }
        constexpr bool early = form != silu_activation; // its registers are scarce
        if constexpr (early) step.start(ring, first), take_parameters();
        if constexpr (cooperative) {
            if (turn == 0) cooperative_groups::this_grid().sync();
            if (warp * 32 < ring.cluster) {
                sums[0] = sums[1] = 0;
                for (uint32_t i = threadIdx.x; i < ring.cluster; i += readers) {
                    const float2 of_block = receive_sums(messages + own_group * ring.cluster + i, turn + 1);
                    sums[0] += of_block.x, sums[1] += of_block.y;
                }
                warp_sum(sums, 32);
                if (lane == 0) team_sums[warp] = make_float2(sums[0], sums[1]);
            }
            readers_sync(readers);
            sums[0] = sums[1] = 0;
            for (uint32_t w = 0; w < warps && w * 32 < ring.cluster; ++w) sums[0] += team_sums[w].x, sums[1] += team_sums[w].y;
        } else if (ring.cluster > 1) {
            const float(*const blocks)[4] = exchange.wait(turn);
            sums[0] = lane < ring.cluster ? blocks[lane][0] : 0.0f, sums[1] = lane < ring.cluster ? blocks[lane][1] : 0.0f;
            warp_sum(sums, 32);
        }
        if constexpr (!early) step.start(ring, first), take_parameters();
        if constexpr (!by_segment) {
            if (threadIdx.x == 0 && rank == 0) {
                store_parameter<T>(a.o.dbias, a.weight_is_wide, group, sums[0]);
                store_parameter<T>(a.o.dweight, a.weight_is_wide, group, sums[1]);
            }
            sums[0] *= weight, sums[1] *= weight;
        }
        const float mean_g = rstd * sums[0] * a.reciprocal_count, slope = rstd * rstd * sums[1] * a.reciprocal_count;

        // 3. The gradients of the elements.
        walk_pointer<T> dx(ring, stride_of(a.p.dx));
        dx.at = static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + step.offset(ring, stride_of(a.p.dx), width);
        const auto finish = [&](const packed<16> &dy_vector, const packed<16> &x_vector) {
            if (step.is_mine(ring)) {
                float dy[width], d[width];
                make_dpre(dy_vector, x_vector, dy, d);
#pragma unroll
                for (int k = 0; k < width; ++k) dy[k] = fmaf(-d[k], slope, fmaf(dy[k], scale, -mean_g));
                if (a.o.dx) store<16, false>(dx.at, pack<T, 16>(dy));
            }
            const bool is_other = step.next(ring);
            dx.next(is_other);
            if (by_segment && is_other) take_parameters();
        };
#pragma unroll
        for (int v = 0; v < held; ++v)
            if (v < steps) finish(dy_data[v], x_data[v]);
#pragma unroll 1
        for (uint32_t v = held; v < steps; ++v, kept.next(ring.slots)) {
            const packed<16> dy_vector = vector_of(kept.slot, 0), x_vector = vector_of(kept.slot, 1);
            if constexpr (masks) order_before_copies();
            release(kept.slot);
            finish(dy_vector, x_vector);
        }
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
