// Gradients of GroupNorm and InstanceNorm: every team, a block or a cluster, takes one group, which stays in shared memory.
#pragma once
#include "channel_norm_backward_walk.cuh"
#include "channel_norm_single.cuh"

namespace bops {

constexpr int single_general_threads = 640; // of a block that needs more registers, at most

struct channel_backward_single_arguments {
    channel_backward_walk_arguments of; // its ring: rows of 32 vectors, `steps` of a block, `chunks` of a segment
    uint32_t vectors;                   // of a thread
    uint32_t samples;                   // those whose blocks make one cluster: the whole batch, or 0
};

// As in forward; a place holds a vector of dy and one of x. Segments are cut into rows of 32 vectors, and a warp takes rows that follow each other;
// its sums of a segment go to the place of the last row that it has of it. With `samples` the first block of a cluster gets all sums and writes the
// parameters' gradients. general: with an activation that takes many instructions.
template <typename T, bool general> __global__ void __launch_bounds__(general ? single_general_threads : single_threads, 1)
    channel_norm_backward_single(const __grid_constant__ channel_backward_single_arguments single) {
    constexpr int width = 16 / int(sizeof(T)), batch = general ? 1 : 2; // vectors that are under way from shared memory
    __shared__ float2 warp_sums[merge_lanes];
    __shared__ cluster_exchange exchange;
    const channel_backward_walk_arguments &a = single.of;
    const walk_geometry &ring = a.ring;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, vectors = single.vectors;
    const uint32_t blocks = ring.cluster * max(single.samples, 1), block = blocks > 1 ? cluster_rank() : 0; // of the hardware cluster
    const uint32_t of_sample = block / ring.cluster, rank = block - of_sample * ring.cluster;
    const uint32_t group = of_sample * a.geometry.inner + blockIdx.x / blocks;
    const uint32_t rows = ring.segments * ring.chunks, first_row = rank * ring.steps, own_row = first_row + warp * vectors;
    const uint32_t own_rows = rows > own_row ? min(rows - own_row, vectors) : 0; // of the warp
    float2 *const row_sums = reinterpret_cast<float2 *>(dynamic_shared + blockDim.x * vectors * 32);
    float2 *const segment_sums = row_sums + ring.steps; // [block][segment], of the first block
    if (blocks > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    if (a.overlaps) follow_previous();
    uint32_t sample, channel;
    a.geometry.segment(group, 0, sample, channel);

    // The warp's way through its rows.
    uint32_t segment, chunk;
    const auto start = [&] {
        segment = ring.by_chunks.quotient(own_row);
        chunk = own_row - segment * ring.chunks;
    };
    const auto is_mine = [&] { return chunk * 32 + lane < ring.per_segment; };
    const auto next = [&] { // true where the next row is of another segment
        if (++chunk < ring.chunks) return false;
        chunk = 0, ++segment;
        return true;
    };
    const auto offset = [&](const bops_channel_strides &s) {
        return segment_offset(s, sample, channel) + segment * s.channel + (chunk * 32 + lane) * width;
    };
    const auto place_of = [&](uint32_t v, uint32_t array) { return (v * 2 + array) * blockDim.x + threadIdx.x; };
    start();
    for (uint32_t v = 0; v < vectors; ++v) {
        if (v < own_rows && is_mine()) {
            copy_async<16>(dynamic_shared + place_of(v, 0) * 16, static_cast<const T *>(a.o.dy) + offset(a.p.dy));
            copy_async<16>(dynamic_shared + place_of(v, 1) * 16, static_cast<const T *>(a.o.x) + offset(a.p.x));
        }
        next();
        copy_commit();
    }
    // Of row number `lane` of the warp.
    const uint32_t index = channel + min(ring.by_chunks.quotient(own_row + lane), ring.segments - 1);
    const float lane_weight = parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
    const float lane_bias = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f) : 0.0f;
    const float mean = __ldg(static_cast<const float *>(a.o.mean) + group), rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    float weight, bias;
    const auto take_parameters = [&](uint32_t v) { weight = __shfl_sync(~0u, lane_weight, v), bias = __shfl_sync(~0u, lane_bias, v); };
    const uint32_t own_place = kept_address(dynamic_shared + threadIdx.x * 16), array_bytes = blockDim.x * 16;
    const auto make_dpre = [&](uint32_t place, float(&dy)[width], float(&d)[width]) {
        unpack<T>(load_shared(place), dy);
        unpack<T>(load_shared(place + array_bytes), d);
#pragma unroll
        for (int k = 0; k < width; ++k) d[k] -= mean;
        keep(d);
        differentiate_vector<T, 16, general>(a.p.activation, extra_operand::none, packed<16>{}, d, rstd * weight, bias, dy);
    };

    // 1. Sums of dpre and dpre d over segments, and of their products with the weight.
    float sum[width] = {}, product[width] = {}, weighted[2] = {};
    const uint32_t half = (vectors + 1) / 2; // of the copies, after which the first ones are looked at
    if (lane < own_rows) row_sums[warp * vectors + lane] = make_float2(0, 0);
    __syncwarp();
    start();
    take_parameters(0);
    copy_wait_groups(int(vectors - half));
#pragma unroll 1
    for (uint32_t v = 0, place = own_place; v < own_rows; ++v, place += 2 * array_bytes) {
        if (v == half) copy_wait_groups(0);
        if (is_mine()) {
            float dy[width], d[width];
            make_dpre(place, dy, d);
#pragma unroll
            for (int k = 0; k < width; ++k) {
                sum[k] += dy[k];
                product[k] = fmaf(dy[k], d[k], product[k]);
            }
        }
        if (next() || v + 1 == own_rows) {
            float sums[2] = {tree_sum(sum), tree_sum(product) * rstd};
            warp_sum(sums, 32);
            if (lane == 0) row_sums[warp * vectors + v] = make_float2(sums[0], sums[1]);
            weighted[0] = fmaf(weight, sums[0], weighted[0]), weighted[1] = fmaf(weight, sums[1], weighted[1]);
#pragma unroll
            for (int k = 0; k < width; ++k) sum[k] = product[k] = 0;
            take_parameters(v + 1);
        }
    }
    copy_wait_groups(0);
    if (lane == 0) warp_sums[warp] = make_float2(weighted[0], weighted[1]);
    __syncthreads();

    // 2. Those of the block, and of its cluster.
    const float2 part = lane < warps ? warp_sums[lane] : make_float2(0, 0);
    float sums[2] = {part.x, part.y};
    warp_sum(sums, merge_lanes);
    if (blocks > 1) cluster_wait();
    if (ring.cluster > 1 && warp == 0) exchange.send({sums[0], sums[1], 0, 0}, 0, rank, ring.cluster, threadIdx.x, of_sample * ring.cluster);
    if ((a.o.dweight || a.o.dbias) && first_row < rows) {
        const uint32_t end = min(first_row + ring.steps, rows), from = ring.by_chunks.quotient(first_row), to = ring.by_chunks.quotient(end - 1);
        for (uint32_t k = from + threadIdx.x; k <= to; k += blockDim.x) {
            cascade<float> dbias, dweight;
            for (uint32_t row = max(k * ring.chunks, first_row); row < min((k + 1) * ring.chunks, end); ++row) {
                dbias.add(row_sums[row - first_row].x);
                dweight.add(row_sums[row - first_row].y);
            }
            const float2 of_block = make_float2(dbias.total(), dweight.total());
            const uint64_t place = a.geometry.row_of(sample, channel + k) * ring.cluster + rank;
            if (!single.samples) *reinterpret_cast<float2 *>(a.segment_sums + place * 2) = of_block;
            else if (blocks == 1) segment_sums[k] = of_block;
            else store_remote(&segment_sums[block * ring.segments + k], 0, of_block);
        }
    }
    if (single.samples && blocks > 1) cluster_arrive_release();
    if (ring.cluster > 1) {
        const float(*const parts)[4] = exchange.wait(0);
        sums[0] = lane < ring.cluster ? parts[lane][0] : 0.0f, sums[1] = lane < ring.cluster ? parts[lane][1] : 0.0f;
        warp_sum(sums, 32);
    }
    const float mean_g = rstd * sums[0] * a.reciprocal_count, slope = rstd * rstd * sums[1] * a.reciprocal_count;

    // 3. The gradients of the elements.
    start();
    take_parameters(0);
    T *dx = static_cast<T *>(a.o.dx) + offset(a.p.dx);
    const uint64_t jump = a.p.dx.channel - uint64_t(ring.chunks - 1) * (32 * width); // from the last row of a segment to the next
#pragma unroll batch
    for (uint32_t v = 0, place = own_place; v < own_rows; ++v, place += 2 * array_bytes) {
        if (is_mine()) {
            float dy[width], d[width];
            make_dpre(place, dy, d);
            const float scale = rstd * weight;
#pragma unroll
            for (int k = 0; k < width; ++k) dy[k] = fmaf(-d[k], slope, fmaf(dy[k], scale, -mean_g));
            if (a.o.dx) store<16, false>(dx, pack<T, 16>(dy));
        }
        const bool is_other = next();
        dx += is_other ? jump : 32 * width;
        if (is_other) take_parameters(v + 1);
    }

    // 4. Those of the parameters.
    if (!single.samples || block > 0) return;
    if (blocks > 1) cluster_wait();
    else __syncthreads();
    for (uint32_t k = threadIdx.x; k < ring.segments; k += blockDim.x) {
        const uint32_t low = k * ring.chunks / ring.steps, high = ((k + 1) * ring.chunks - 1) / ring.steps;
        cascade<float> dbias, dweight;
        for (uint32_t n = 0; n < single.samples; ++n)
            for (uint32_t from = low; from <= high; ++from) {
                const float2 of_block = segment_sums[(n * ring.cluster + from) * ring.segments + k];
                dbias.add(of_block.x);
                dweight.add(of_block.y);
            }
        store_parameter<T>(a.o.dbias, a.weight_is_wide, channel + k, dbias.total());
        store_parameter<T>(a.o.dweight, a.weight_is_wide, channel + k, dweight.total());
    }
}

// Host: the SINGLE variant.
template <typename T> bops_status channel_norm_backward_single_kernels(const bops_channel_norm_backward_params &p, const bops_channel_norm_choice &c,
                                                                       bops_dtype dtype, bops_dtype weight_dtype,
                                                                       const bops_channel_norm_backward_operands &o, void *workspace,
                                                                       const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        channel_backward_single_arguments a = {};
        a.of = backward_walk_arguments<T>(p, c, dtype, weight_dtype, o, workspace);
        walk_geometry &ring = a.of.ring;
        ring.chunks = (ring.per_segment + 31) / 32, ring.by_chunks = divisor(ring.chunks), ring.multi = 1, ring.steps = c.threads / 32 * c.vectors;
        a.vectors = c.vectors, a.samples = c.is_merged ? uint32_t(p.batch) : 0;
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster * (c.is_merged ? a.samples : 1);
        shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = c.threads * c.vectors * 32 + (ring.steps + (c.is_merged ? shape.cluster * ring.segments : 0)) * uint32_t(sizeof(float2));
        const bops_status status =
            call.one_of(!is_short(p.activation), forms_of(channel_norm_backward_single<T, false>, channel_norm_backward_single<T, true>), shape, a);
        return status || c.is_merged ? status : sum_parts<T>(p, c, a.of, call);
    }
}

} // namespace bops
