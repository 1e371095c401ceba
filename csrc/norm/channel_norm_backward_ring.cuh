// Gradients of BatchNorm, GroupNorm and InstanceNorm: teams, blocks or clusters, walk over groups staged through shared memory.
#pragma once
#include "channel_norm_backward_split.cuh"
#include "channel_norm_ring.cuh"

namespace bops {

constexpr int backward_ring_batch = 2; // vectors of dy, and of x, of a thread that are under way from shared memory

struct channel_backward_ring_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    segment_geometry geometry;
    ring_geometry ring;
    float reciprocal_count;
    uint32_t weight_is_wide, overlaps;
    float *segment_sums; // [batch * channels][cluster][2]: of dpre and dpre xhat over a block's part of a segment
};

// As in forward; an item is a vector of dy and one of x. by_segment: the sums of each segment are wanted or weighted apart; a warp then takes one
// segment at a time, and its sums of that go to a slot of their own as it leaves it.
template <typename T, bool activated, bool by_segment> __global__ void __launch_bounds__(ring_threads, 1)
    channel_norm_backward_ring(const __grid_constant__ channel_backward_ring_arguments a) {
    constexpr int width = 16 / int(sizeof(T)), batch = backward_ring_batch;
    __shared__ float2 warp_sums[3][merge_lanes];
    __shared__ cluster_exchange exchange;
    if (a.overlaps) follow_previous();
    const row_team team;
    const ring_geometry &ring = a.ring;
    const uint32_t rank = ring.cluster > 1 ? cluster_rank() : 0, first = rank * ring.steps, steps = ring.steps, slots = ring.slots;
    const uint32_t teams = gridDim.x / ring.cluster, groups = uint32_t(a.geometry.groups), own_group = blockIdx.x / ring.cluster;
    const uint32_t again = steps > slots ? steps - slots : 0, kept = steps - again;
    item_ring<2> fetching(slots), reading(slots), finishing(slots);
    if (ring.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const auto stride_of = [&](const bops_channel_strides &s) { return a.geometry.is_batch ? s.batch : s.channel; };

    uint32_t fetch_group = own_group, fetch_item = 0, fetched = 0;
    step_walk walk(ring);
    walk_pointer<const T> fetch_dy(ring, stride_of(a.p.dy)), fetch_x(ring, stride_of(a.p.x));
    const auto start = [&](auto &pointer, const void *tensor, const bops_channel_strides &strides, uint32_t group, const step_walk &from) {
        uint32_t sample, channel;
        a.geometry.segment(group, 0, sample, channel);
        pointer.at =
            static_cast<T *>(const_cast<void *>(tensor)) + segment_offset(strides, sample, channel) + from.offset(ring, stride_of(strides), width);
    };
    const auto start_fetch = [&] {
        walk.start(ring, first);
        start(fetch_dy, a.o.dy, a.p.dy, fetch_group, walk);
        start(fetch_x, a.o.x, a.p.x, fetch_group, walk);
    };
    start_fetch();
    const auto fetch = [&] {
        if (fetch_group < groups) {
            if (walk.is_mine(ring)) {
                copy_async<16>(fetching.slot(0), fetch_dy.at);
                copy_async<16>(fetching.slot(1), fetch_x.at);
            }
            const bool is_other = walk.next(ring);
            fetch_dy.next(is_other);
            fetch_x.next(is_other);
            ++fetch_item;
            if (fetch_item >= steps && (fetch_item == steps || fetch_item == steps + again)) {
                if (fetch_item == steps + again) fetch_item = 0, fetch_group += teams;
                start_fetch();
            }
        }
        copy_commit();
        fetching.next();
        ++fetched;
    };
    for (uint32_t i = 0; i < slots; ++i) fetch();
    const extra_operand which = activated ? extra_of(a.o, a.p.activation) : extra_operand::none;
    const bops_channel_strides &extra_strides = which == extra_operand::y ? a.p.y : a.p.residual;
    const void *const extra = which == extra_operand::y ? a.o.y : a.o.residual;

    // Sums of warps over segments, [turn % 2][segment - the block's first][warp of the segment].
    const uint32_t first_segment = ring.by_chunks.quotient(first) * ring.multi, segment_warps = ring.pitch / 32;
    const uint32_t end_segment = min(ring.by_chunks.quotient(first + steps - 1) * ring.multi + ring.multi, ring.segments);
    const uint32_t own_segments = end_segment > first_segment ? end_segment - first_segment : 0;
    float2 *const partials = reinterpret_cast<float2 *>(dynamic_shared + slots * 2 * blockDim.x * 16);
    const auto partials_of = [&](uint32_t turn) { return partials + turn % 2 * own_segments * segment_warps; };

    step_walk step(ring), extra_step(ring);
    walk_pointer<const T> extra_at(ring, stride_of(extra_strides));
    float scale = 0, bias = 0, weight = 1;
    const auto take_parameters = [&](uint32_t group, float rstd) {
        uint32_t sample, channel;
        a.geometry.segment(group, a.geometry.is_batch ? 0 : min(step.segment, ring.segments - 1), sample, channel);
        weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f);
        scale = rstd * weight;
        if constexpr (activated) bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);
    };
    const auto open = [&](uint32_t group, float rstd, uint32_t from) {
        step.start(ring, first + from);
        take_parameters(group, rstd);
        if (activated && which != extra_operand::none) {
            extra_step.start(ring, first + from);
            start(extra_at, extra, extra_strides, group, extra_step);
        }
    };
    // The next vectors of a walk.
    const auto load_batch = [&](item_ring<2> &from, uint32_t here, packed<16>(&dy)[batch], packed<16>(&x)[batch], packed<16>(&more)[batch]) {
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            dy[j] = from.load(0), x[j] = from.load(1), more[j] = {};
            if (j < here) {
                from.next();
                if (activated && which != extra_operand::none) {
                    if (extra_step.is_mine(ring)) more[j] = load<16, false>(extra_at.at);
                    extra_at.next(extra_step.next(ring));
                }
            }
        }
    };
    const auto make_dpre = [&](const packed<16> &dy_data, const packed<16> &x_data, const packed<16> &more, float mean, float(&dy)[width],
                               float(&d)[width]) {
        unpack<T>(dy_data, dy);
        unpack<T>(x_data, d);
#pragma unroll
        for (int k = 0; k < width; ++k) d[k] -= mean;
        if constexpr (activated) differentiate_vector<T>(a.p.activation, which, more, d, scale, bias, dy);
    };

    float next_mean = 0, next_rstd = 0, mean = 0, rstd = 0;
    const auto load_statistics = [&](uint32_t group) {
        if (group < groups)
            next_mean = __ldg(static_cast<const float *>(a.o.mean) + group), next_rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    };
    load_statistics(own_group);
    if (ring.cluster > 1) cluster_wait();
    uint32_t items = 0;
    const auto wait_items = [&](uint32_t more) { copy_wait_groups(int(fetched - items - more)); };
    for (uint32_t group = own_group, turn = 0; group < groups; group += teams, ++turn) {
        // 1. Sums of dpre and dpre d; by segment, of their products with the weight.
        mean = next_mean, rstd = next_rstd;
        load_statistics(group + teams);
        float sum[width] = {}, product[width] = {}, weighted[2] = {};
        const auto leave_segment = [&](uint32_t segment) {
            float sums[2] = {tree_sum(sum), tree_sum(product) * rstd};
            warp_sum(sums, 32);
            weighted[0] = fmaf(weight, sums[0], weighted[0]), weighted[1] = fmaf(weight, sums[1], weighted[1]);
            const uint32_t warp = ring.multi > 1 ? step.lane / 32 : team.warp;
            if (team.lane == 0 && segment < ring.segments && step.sub < ring.multi)
                partials_of(turn)[(segment - first_segment) * segment_warps + warp] = make_float2(sums[0], sums[1]);
#pragma unroll
            for (int k = 0; k < width; ++k) sum[k] = product[k] = 0;
        };
        open(group, rstd, 0);
        for (uint32_t i = 0; i < steps; i += batch) {
            const uint32_t here = min(steps - i, uint32_t(batch));
            wait_items(here);
            items += here;
            packed<16> dy_data[batch], x_data[batch], more[batch];
            load_batch(reading, here, dy_data, x_data, more);
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                if (j >= here) break;
                if (step.is_mine(ring)) {
                    float dy[width], d[width];
                    make_dpre(dy_data[j], x_data[j], more[j], mean, dy, d);
#pragma unroll
                    for (int k = 0; k < width; ++k) {
                        sum[k] += dy[k];
                        product[k] = fmaf(dy[k], d[k], product[k]);
                    }
                }
                const uint32_t segment = step.segment;
                const bool is_other = step.next(ring);
                if constexpr (by_segment) {
                    if (is_other || i + j + 1 == steps) leave_segment(segment);
                    if (is_other) take_parameters(group, rstd);
                }
            }
            for (uint32_t j = i; j < min(i + batch, again); ++j) {
                fetch();
                finishing.next();
            }
        }
        if constexpr (!by_segment) {
            weighted[0] = tree_sum(sum), weighted[1] = tree_sum(product) * rstd;
            warp_sum(weighted, 32);
        }
        if (team.lane == 0) warp_sums[turn % 3][team.warp] = make_float2(weighted[0], weighted[1]);
        __syncthreads();

        // 2. The blocks of a cluster tell each other theirs.
        const auto merge_warps = [&](uint32_t of_turn, float(&sums)[2]) {
            const float2 part = team.lane < team.warps ? warp_sums[of_turn % 3][team.lane] : make_float2(0, 0);
            sums[0] = part.x, sums[1] = part.y;
            warp_sum(sums, merge_lanes);
        };
        if (ring.cluster > 1 && team.warp == 0) {
            float sums[2];
            merge_warps(turn, sums);
            exchange.send({sums[0], sums[1], 0, 0}, turn, rank, ring.cluster, threadIdx.x);
        }
        if (by_segment && (a.o.dweight || a.o.dbias))
            for (uint32_t k = threadIdx.x; k < own_segments; k += blockDim.x) {
                uint32_t sample, channel;
                a.geometry.segment(group, first_segment + k, sample, channel);
                float2 total = {0, 0};
                for (uint32_t w = 0; w < segment_warps; ++w) {
                    const float2 part = partials_of(turn)[k * segment_warps + w];
                    total.x += part.x, total.y += part.y;
                }
                *reinterpret_cast<float2 *>(a.segment_sums + (a.geometry.row_of(sample, channel) * ring.cluster + rank) * 2) = total;
            }

        // 3. The gradients of a group's elements.
        float sums[2];
        if (ring.cluster > 1) {
            const float(*const blocks)[4] = exchange.wait(turn);
            sums[0] = team.lane < ring.cluster ? blocks[team.lane][0] : 0.0f, sums[1] = team.lane < ring.cluster ? blocks[team.lane][1] : 0.0f;
            warp_sum(sums, 32);
        } else {
            merge_warps(turn, sums);
        }
        open(group, rstd, again);
        if constexpr (!by_segment) {
            if (threadIdx.x == 0 && rank == 0) {
                store_parameter<T>(a.o.dbias, a.weight_is_wide, group, sums[0]);
                store_parameter<T>(a.o.dweight, a.weight_is_wide, group, sums[1]);
            }
            sums[0] *= weight, sums[1] *= weight;
        }
        const float mean_g = rstd * sums[0] * a.reciprocal_count, slope = rstd * rstd * sums[1] * a.reciprocal_count;
        walk_pointer<T> dx(ring, stride_of(a.p.dx)), dresidual(ring, stride_of(a.p.dresidual));
        start(dx, a.o.dx, a.p.dx, group, step);
        if constexpr (activated && !by_segment) start(dresidual, a.o.dresidual, a.p.dresidual, group, step);
        for (uint32_t i = 0, here; i < steps; i += here) {
            here = min((i < kept ? kept : steps) - i, uint32_t(batch));
            if (i >= kept) { // those that are read again
                if (i == kept) {
                    open(group, rstd, 0);
                    start(dx, a.o.dx, a.p.dx, group, step);
                    if constexpr (activated && !by_segment) start(dresidual, a.o.dresidual, a.p.dresidual, group, step);
                }
                wait_items(here);
                items += here;
                for (uint32_t j = 0; j < here; ++j) reading.next();
            }
            packed<16> dy_data[batch], x_data[batch], more[batch];
            load_batch(finishing, here, dy_data, x_data, more);
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                if (j >= here) break;
                if (step.is_mine(ring)) {
                    float dy[width], d[width];
                    make_dpre(dy_data[j], x_data[j], more[j], mean, dy, d);
                    if constexpr (activated && !by_segment)
                        if (a.o.dresidual) store<16, false>(dresidual.at, pack<T, 16>(dy));
#pragma unroll
                    for (int k = 0; k < width; ++k) dy[k] = fmaf(-d[k], slope, fmaf(dy[k], scale, -mean_g));
                    if (a.o.dx) store<16, false>(dx.at, pack<T, 16>(dy));
                }
                const bool is_other = step.next(ring);
                dx.next(is_other);
                if constexpr (activated && !by_segment) dresidual.next(is_other);
                if (by_segment && is_other) take_parameters(group, rstd);
                fetch();
            }
        }
    }
}

// The parameters' gradients from the sums of blocks' parts of segments: over the samples, in a fixed order. A block takes 32 channels.
template <typename T> __global__ void __launch_bounds__(32 * sample_sum_rows)
    channel_norm_sum_parts(const __grid_constant__ channel_backward_ring_arguments a) {
    __shared__ float slots[2][sample_sum_rows][33];
    follow_previous();
    const uint32_t channels = a.geometry.channels;
    for (uint32_t base = blockIdx.x * 32; base < channels; base += gridDim.x * 32) {
        const uint32_t channel = base + threadIdx.x, k = channel % a.geometry.segments;
        const uint32_t from = k / a.ring.multi * a.ring.chunks; // the segment's steps, and the blocks that take them
        const uint32_t low = from / a.ring.steps, high = (from + a.ring.chunks - 1) / a.ring.steps;
        cascade<float> sum, product;
        if (channel < channels)
            for (uint32_t n = threadIdx.y; n < a.p.batch; n += sample_sum_rows)
                for (uint32_t rank = low; rank <= high; ++rank) {
                    const float2 part =
                        *reinterpret_cast<const float2 *>(a.segment_sums + (a.geometry.row_of(n, channel) * a.ring.cluster + rank) * 2);
                    sum.add(part.x);
                    product.add(part.y);
                }
        slots[0][threadIdx.y][threadIdx.x] = sum.total();
        slots[1][threadIdx.y][threadIdx.x] = product.total();
        __syncthreads();
        if (threadIdx.y < 2 && channel < channels) {
            float value[sample_sum_rows];
#pragma unroll
            for (int i = 0; i < sample_sum_rows; ++i) value[i] = slots[threadIdx.y][i][threadIdx.x];
            store_parameter<T>(threadIdx.y ? a.o.dweight : a.o.dbias, a.weight_is_wide, channel, tree_sum(value));
        }
        __syncthreads();
    }
}

// Host: what the kernels that walk over groups take.
template <typename T> channel_backward_ring_arguments backward_ring_arguments(const bops_channel_norm_backward_params &p,
                                                                              const bops_channel_norm_choice &c, bops_dtype dtype,
                                                                              bops_dtype weight_dtype, const bops_channel_norm_backward_operands &o,
                                                                              void *workspace) {
    channel_backward_ring_arguments a = {};
    a.geometry.set(p.batch, p.channels, p.spatial, p.groups);
    a.ring.set(a.geometry, c, 16 / sizeof(T), p.spatial, p.groups != 0);
    a.p = p, a.o = o, a.reciprocal_count = float(1.0 / double(a.geometry.count));
    a.weight_is_wide = weight_dtype != dtype, a.overlaps = c.overlaps;
    a.segment_sums = static_cast<float *>(workspace);
    return a;
}

// Places, and slots for warps' sums: of each step at most one of every warp, twice.
inline uint32_t backward_ring_bytes(const bops_channel_norm_choice &c, bool by_segment) {
    return c.stages * c.threads * 32 + (by_segment ? (c.vectors + 1) * c.threads / 2 : 0);
}

// What follows where segments were summed apart.
template <typename T> bops_status sum_parts(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c,
                                            const channel_backward_ring_arguments &a, const kernel_call &call) {
    if (p.groups == 0 || (!call.prepares && !a.o.dweight && !a.o.dbias)) return 0;
    launch_shape shape;
    const uint64_t blocks = (p.channels + 31) / 32;
    shape.grid = dim3(uint32_t(blocks < 65535 ? blocks : 65535)), shape.block = dim3(32, sample_sum_rows);
    shape.overlaps_previous = c.cluster > 1 || c.overlaps;
    return call(channel_norm_sum_parts<T>, shape, a);
}

// Host: the RING variant.
template <typename T> bops_status channel_norm_backward_ring_kernels(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c,
                                                                     bops_dtype dtype, bops_dtype weight_dtype,
                                                                     const bops_channel_norm_backward_operands &o, void *workspace,
                                                                     const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        const bool by_segment = p.groups != 0;
        const channel_backward_ring_arguments a = backward_ring_arguments<T>(p, c, dtype, weight_dtype, o, workspace);
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = backward_ring_bytes(c, by_segment);
        const bool activated = p.activation != BOPS_IDENTITY || o.dresidual;
        bops_status status = 0;
        const auto run = [&](auto has_activation) {
            constexpr bool act = decltype(has_activation)::value;
            return by_segment ? call(channel_norm_backward_ring<T, act, true>, shape, a) : call(channel_norm_backward_ring<T, act, false>, shape, a);
        };
        if (activated || call.prepares) status = run(std::true_type());
        if (!status && (!activated || call.prepares)) status = run(std::false_type());
        return status ? status : sum_parts<T>(p, c, a, call);
    }
}

} // namespace bops
