// Gradients of BatchNorm, the form `relay`: the bulk copy engine fetches one channel after another into shared memory; some warps add up a channel
// while others write the gradients of the one before. Compute capability 9.0.
#pragma once
#include "channel_norm_backward_walk.cuh"
#include "channel_norm_relay.cuh"

namespace bops {

struct relay_sums {
    float2 of_warp[merge_lanes];
};

// A warp of the backward, whose warps have the roles of the forward's; a place holds a step of dy and one of x. cooperative: a team is any number of
// blocks, on whichever SMs they run; the activation is then identity or ReLU.
template <typename T, bool cooperative> struct relay_backward {
    static constexpr int width = 16 / int(sizeof(T));
    using block_type = relay_block<relay_sums, float2, cooperative>; // its results: rstd mean(g), rstd^2 mean(g xhat)
    const channel_backward_walk_arguments &a;
    const block_type &block;
    const walk_geometry &ring;

    __device__ __forceinline__ relay_backward(const channel_backward_walk_arguments &arguments, const block_type &own)
        : a(arguments), block(own), ring(own.ring) {}

    __device__ __forceinline__ float weight_of(uint32_t channel) const { return parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f); }
    __device__ __forceinline__ float rstd_of(uint32_t channel) const { return __ldg(static_cast<const float *>(a.o.rstd) + channel); }

    __device__ __forceinline__ void fetch() const {
        const T *const tensors[2] = {static_cast<const T *>(a.o.dy), static_cast<const T *>(a.o.x)};
        const bops_channel_strides *const strides[2] = {&a.p.dy, &a.p.x};
        block.template fetch<false>(ring.all_steps(), a.geometry, tensors, strides, ring.arriving, 0);
    }

    // Merges the sums of the block's warps, and in a cluster those of its blocks.
    __device__ __forceinline__ void merge() const {
        const uint32_t lane = block.lane;
        block.for_groups([&](uint32_t channel, uint32_t turn) {
            const float rstd = rstd_of(channel), weight = weight_of(channel);
            const relay_sums &from = block.shared.parts.take(turn);
            float2 part = make_float2(0, 0);
            if (lane < block.warps) part = from.of_warp[lane];
            block.shared.parts.taken(turn);
            float total[2] = {part.x, part.y * rstd};
            warp_sum(total, merge_lanes);
            if (cooperative) {
                if (lane == 0) block.shared.messages.send(a.messages, make_float3(total[0], total[1], 0), turn);
                return;
            }
            if (ring.team_blocks > 1) {
                block.shared.exchange.send({total[0], total[1], 0, 0}, turn, block.rank, ring.team_blocks, lane);
                receive_cluster_sums(block.shared.exchange, turn, ring.team_blocks, total);
            }
            finish(total, rstd, weight, channel, turn);
        });
    }
    // Receives the sums of all blocks of a grid's team.
    __device__ __forceinline__ void receive() const {
        block.for_groups([&](uint32_t channel, uint32_t turn) {
            const float rstd = rstd_of(channel), weight = weight_of(channel);
            float3 part[message_exchange::lane_messages];
            block.shared.messages.receive(a.messages, turn, ring.team_blocks, part);
            float total[2] = {};
#pragma unroll
            for (uint32_t i = 0; i < message_exchange::lane_messages; ++i) total[0] += part[i].x, total[1] += part[i].y;
            warp_sum(total, 32);
            finish(total, rstd, weight, channel, turn);
        });
    }
    // Passes the means of a channel on to the warps that write, and writes the gradients of its parameters.
    __device__ __forceinline__ void finish(const float (&total)[2], float rstd, float weight, uint32_t channel, uint32_t turn) const {
        if (block.lane == 0) {
            const float scale = rstd * weight * a.reciprocal_count;
            block.shared.results.make(turn) = make_float2(scale * total[0], scale * rstd * total[1]);
            block.shared.results.made(turn);
        }
        if (block.lane == 0 && block.rank == 0) {
            store_parameter<T>(a.o.dbias, a.weight_is_wide, channel, total[0]);
            store_parameter<T>(a.o.dweight, a.weight_is_wide, channel, total[1]);
        }
    }

    // Adds up or writes, as the warp's role is.
    __device__ __forceinline__ void add_or_write() const {
        const bool writes = block.warp < block.warps;
        const relay_walk<2> walk(ring, block.shared.bulk, block.rank, writes ? threadIdx.x : threadIdx.x - block.team, block.team);
        bulk_place place;
        block.for_groups([&](uint32_t channel, uint32_t turn) {
            const float mean = __ldg(static_cast<const float *>(a.o.mean) + channel), scale = rstd_of(channel) * weight_of(channel);
            const float bias = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f) : 0.0f;
            const auto make_dpre = [&](const packed<16>(&data)[2], float(&dy)[width], float(&d)[width]) {
                unpack<T>(data[0], dy);
                unpack_deviations<T>(data[1], mean, d);
                if (cooperative && a.p.activation == BOPS_SILU) __builtin_unreachable();
                differentiate_vector<T, 16, false>(a.p.activation, extra_operand::none, packed<16>{}, d, scale, bias, dy);
            };
            if (writes) write(walk, place, channel, turn, scale, make_dpre);
            else add(walk, place, turn, make_dpre);
        });
    }
    // Adds up dpre and dpre d of the warp's part of a channel.
    template <typename MakeDpre>
    __device__ __forceinline__ void add(const relay_walk<2> &walk, bulk_place &place, uint32_t turn, const MakeDpre &make_dpre) const {
        float sum[width] = {}, product[width] = {};
        const auto enter = [](uint32_t, uint32_t) {};
        walk.template pass<false>(ring, ring.all_steps(), place, block.team, enter, [&](int, const packed<16>(&data)[2], bool is_mine) {
            if (is_mine) {
                float dy[width], d[width];
                make_dpre(data, dy, d);
                add_products(dy, d, sum, product);
            }
        });
        float totals[2] = {tree_sum(sum), tree_sum(product)};
        warp_sum(totals, 32);
        if (block.lane == 0)
            block.shared.parts.make(turn).of_warp[block.warp - block.warps] = make_float2(totals[0], totals[1]), block.shared.parts.made(turn);
    }
    // Writes the gradients of a channel's elements.
    template <typename MakeDpre> __device__ __forceinline__ void write(const relay_walk<2> &walk, bulk_place &place, uint32_t channel, uint32_t turn,
                                                                       float scale, const MakeDpre &make_dpre) const {
        const float2 mean_g = block.shared.results.take_by_warp(turn);
        const uint64_t step_elements = uint64_t(ring.pitch) * width;
        T *dx[relay_vectors];
        const auto enter = [&](uint32_t segment, uint32_t chunk) {
#pragma unroll
            for (int j = 0; j < relay_vectors; ++j)
                dx[j] =
                    static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, segment + walk.sub[j], channel) + (chunk * ring.pitch + walk.lane[j]) * width;
        };
        walk.template pass<true>(ring, ring.all_steps(), place, block.team, enter, [&](int j, const packed<16>(&data)[2], bool is_mine) {
            if (is_mine) {
                float dy[width], d[width];
                make_dpre(data, dy, d);
                make_dx(d, scale, mean_g.x, mean_g.y, dy);
                if (a.o.dx) store<16, false>(dx[j], pack<T, 16>(dy));
            }
            dx[j] += step_elements;
        });
    }
};

template <typename T, bool cooperative> __global__ void __launch_bounds__(relay_threads, 1)
    channel_norm_backward_relay(const __grid_constant__ channel_backward_walk_arguments a) {
    if (!has_sm_90) return;
    __shared__ relay_slots<relay_sums> parts;
    __shared__ relay_slots<float2> means;
    __shared__ cluster_exchange exchange;
    __shared__ message_exchange messages;
    __shared__ bulk_ring bulk;
    const uint32_t team = (blockDim.x - relay_service(cooperative ? grid_team : cluster_team)) / 2;
    const relay_block<relay_sums, float2, cooperative> block(a.ring, a.geometry.groups, team, team, {parts, means, exchange, messages, bulk});
    block.start(a.overlaps, a.messages);
    const relay_backward<T, cooperative> relay(a, block);
    if (block.warp == block.fetcher) relay.fetch();
    else if (block.warp == block.fetcher + 1) relay.merge();
    else if (cooperative && block.warp > block.fetcher + 1) relay.receive();
    else relay.add_or_write();
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
