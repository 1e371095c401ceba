// Gradients of BatchNorm, the form `relay`: the bulk copy engine fetches one channel after another into shared memory; some warps add up a channel
// while others write the gradients of the one before. Compute capability 9.0.
#pragma once
#include "channel_norm_backward_walk.cuh"
#include "channel_norm_relay.cuh"

namespace bops {

struct relay_sums {
    float2 of_warp[merge_lanes];
};

// The warps of a block work as in the forward of this form; a place holds a step of dy and one of x. cooperative: a team is any number of blocks, on
// whichever SMs they run; the activation is then identity or ReLU.
template <typename T, bool cooperative> __global__ void __launch_bounds__(relay_threads, 1)
    channel_norm_backward_relay(const __grid_constant__ channel_backward_walk_arguments a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    __shared__ relay_slots<relay_sums> sums;
    __shared__ relay_slots<float2> means; // rstd mean(g), rstd^2 mean(g xhat)
    __shared__ cluster_exchange exchange;
    __shared__ message_exchange messages;
    __shared__ bulk_ring bulk;
    const walk_geometry &ring = a.ring;
    const uint32_t team = (blockDim.x - relay_service(cooperative ? grid_team : cluster_team)) / 2, warps = team / 32;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t teams = gridDim.x / ring.cluster, groups = uint32_t(a.geometry.groups), own_group = blockIdx.x / ring.cluster;
    const uint32_t rank = blockIdx.x - own_group * ring.cluster;
    bulk.initialize(ring.slots, team);
    if (threadIdx.x == 0) sums.initialize(warps, 32), means.initialize(1, warps);
    if (cooperative) messages.initialize();
    else if (ring.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
        cluster_wait();
    }
    __syncthreads();
    if (a.overlaps) follow_previous();
    if (cooperative) {
        messages.clear(a.messages);
        cooperative_groups::this_grid().sync();
    }
    if (warp == 2 * warps) {
        const T *const tensors[2] = {static_cast<const T *>(a.o.dy), static_cast<const T *>(a.o.x)};
        const bops_channel_strides *const strides[2] = {&a.p.dy, &a.p.x};
        bulk_place arriving; // the first whose bytes are not known to have come
        fetch_groups(bulk, ring, ring.all_steps(), a.geometry, tensors, strides, relay_vectors * team, [&](uint32_t number) {
            if (!cooperative || number < ring.arriving) return;
            bulk.wait_full(arriving);
            arriving.next(ring.slots);
        });
        return;
    }
    const auto weight_of = [&](uint32_t channel) { return parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f); };
    const auto rstd_of = [&](uint32_t channel) { return __ldg(static_cast<const float *>(a.o.rstd) + channel); };

    // 1. Merge the sums of the block and of its team.
    const auto finish = [&](const float(&total)[2], float rstd, float weight, uint32_t channel, uint32_t turn) {
        if (lane == 0) {
            const float scale = rstd * weight * a.reciprocal_count;
            means.make(turn) = make_float2(scale * total[0], scale * rstd * total[1]);
            means.made(turn);
        }
        if (lane == 0 && rank == 0) {
            store_parameter<T>(a.o.dbias, a.weight_is_wide, channel, total[0]);
            store_parameter<T>(a.o.dweight, a.weight_is_wide, channel, total[1]);
        }
    };
    if (warp == 2 * warps + 1) {
        for (uint32_t channel = own_group, turn = 0; channel < groups; channel += teams, ++turn) {
            const float rstd = rstd_of(channel), weight = weight_of(channel);
            const relay_sums &from = sums.take(turn);
            float2 part = make_float2(0, 0);
            if (lane < warps) part = from.of_warp[lane];
            sums.taken(turn);
            float total[2] = {part.x, part.y * rstd};
            warp_sum(total, merge_lanes);
            if (cooperative) {
                if (lane == 0) messages.send(a.messages, make_float3(total[0], total[1], 0), turn);
                continue;
            }
            if (ring.cluster > 1) {
                exchange.send({total[0], total[1], 0, 0}, turn, rank, ring.cluster, lane);
                const float(*const blocks)[4] = exchange.wait(turn);
                total[0] = lane < ring.cluster ? blocks[lane][0] : 0.0f, total[1] = lane < ring.cluster ? blocks[lane][1] : 0.0f;
                warp_sum(total, merge_lanes);
            }
            finish(total, rstd, weight, channel, turn);
        }
        return;
    }
    if (cooperative && warp > 2 * warps + 1) {
        for (uint32_t channel = own_group, turn = 0; channel < groups; channel += teams, ++turn) {
            const float rstd = rstd_of(channel), weight = weight_of(channel);
            float3 part[message_exchange::lane_messages];
            messages.receive(a.messages, turn, ring.cluster, part);
            float total[2] = {};
#pragma unroll
            for (uint32_t i = 0; i < message_exchange::lane_messages; ++i) total[0] += part[i].x, total[1] += part[i].y;
            warp_sum(total, 32);
            finish(total, rstd, weight, channel, turn);
        }
        return;
    }

    const bool writes = warp < warps;
    const uint64_t step_elements = uint64_t(ring.pitch) * width;
    const relay_walk<2> walk(ring, bulk, rank, writes ? threadIdx.x : threadIdx.x - team, team);
    bulk_place place;
    for (uint32_t channel = own_group, turn = 0; channel < groups; channel += teams, ++turn) {
        const float mean = __ldg(static_cast<const float *>(a.o.mean) + channel), scale = rstd_of(channel) * weight_of(channel);
        const float bias = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f) : 0.0f;
        const auto make_dpre = [&](const packed<16>(&data)[2], float(&dy)[width], float(&d)[width]) {
            unpack<T>(data[0], dy);
            unpack<T>(data[1], d);
#pragma unroll
            for (int k = 0; k < width; ++k) d[k] -= mean;
            if (cooperative && a.p.activation == BOPS_SILU) __builtin_unreachable();
            differentiate_vector<T, 16, false>(a.p.activation, extra_operand::none, packed<16>{}, d, scale, bias, dy);
        };

        // 2. Add up dpre and dpre d.
        if (!writes) {
            float sum[width] = {}, product[width] = {};
            walk.pass<false>(
                ring, ring.all_steps(), place, team, [](uint32_t, uint32_t) {},
                [&](int, const packed<16>(&data)[2], bool is_mine) {
                    if (is_mine) {
                        float dy[width], d[width];
                        make_dpre(data, dy, d);
#pragma unroll
                        for (int k = 0; k < width; ++k) {
                            sum[k] += dy[k];
                            product[k] = fmaf(dy[k], d[k], product[k]);
                        }
                    }
                });
            float totals[2] = {tree_sum(sum), tree_sum(product)};
            warp_sum(totals, 32);
            if (lane == 0) sums.make(turn).of_warp[warp - warps] = make_float2(totals[0], totals[1]), sums.made(turn);
            continue;
        }

        // 3. Write the gradients of the elements.
        const float2 mean_g = means.take_by_warp(turn);
        T *dx[relay_vectors];
        walk.pass<true>(
            ring, ring.all_steps(), place, team,
            [&](uint32_t segment, uint32_t chunk) {
#pragma unroll
                for (int j = 0; j < relay_vectors; ++j)
                    dx[j] = static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, segment + walk.sub[j], channel) +
                            (chunk * ring.pitch + walk.lane[j]) * width;
            },
            [&](int j, const packed<16>(&data)[2], bool is_mine) {
                if (is_mine) {
                    float dy[width], d[width];
                    make_dpre(data, dy, d);
#pragma unroll
                    for (int k = 0; k < width; ++k) dy[k] = fmaf(-d[k], mean_g.y, fmaf(dy[k], scale, -mean_g.x));
                    if (a.o.dx) store<16, false>(dx[j], pack<T, 16>(dy));
                }
                dx[j] += step_elements;
            });
    }
}

// Host: the form `relay`.
template <typename T> bops_status channel_norm_backward_relay_kernels(const backward_call<bops_channel_norm_backward_relay_choice> &f) {
    const auto &c = f.c;
    const bool is_grid = c.team == BOPS_NORM_GRID;
    const uint32_t step_vectors = c.threads * relay_vectors, service = relay_service(is_grid ? grid_team : cluster_team);
    const walk_choice walk = {c.team_blocks, c.steps, step_vectors, c.places, c.arriving_places};
    launch_shape shape = f.shape(c.threads * 2 + service, c.places * step_vectors * 32);
    shape.cooperative = is_grid, shape.cluster = is_grid ? 1 : c.team_blocks;
    return f.call(is_grid ? channel_norm_backward_relay<T, true> : channel_norm_backward_relay<T, false>, shape, backward_walk_arguments<T>(f, walk));
}

} // namespace bops
