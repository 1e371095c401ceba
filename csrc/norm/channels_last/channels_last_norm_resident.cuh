// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `resident`, for one sample or samples whose rows count as one:
// one cooperative launch in which every block has one tile of channels in one chunk of the rows.
//
// A thread's rows pass through a ring in shared memory. The last rows stay there and in registers until the statistics are known; the rows before
// them are read again, as far as possible from the L2.
#pragma once
#include "channels_last_norm.cuh"

namespace bops {

constexpr uint32_t resident_warps = last_threads / 32; // 16
constexpr uint32_t resident_channels = 128;            // of a tile, at most
constexpr int resident_ahead = 3;                      // batches in flight on the first walk; with more, multiprocessors drift apart
// Batches in shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int resident_slots = 4;
#else
constexpr int resident_slots = 6;
#endif
// Waits until at most `pending` copies of a thread's batches are in flight.
template <int pending> __device__ __forceinline__ void copy_wait_batches() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }
constexpr uint32_t resident_span = 8; // batches that one accumulator takes

// Adds up the values of those lanes of a warp that have the same vector of a row: lanes at distances of `mask`, .. , 16. In each step two lanes share
// the channels between them, as long as there is more than one: at the end a lane has `left` channels from `first` on.
template <int half, int width> __device__ __forceinline__ void sum_rows(float (&value)[width], uint32_t mask, uint32_t &left, uint32_t &first) {
    if constexpr (half > 0) {
        if (mask < 32) {
            const bool is_upper = threadIdx.x & mask;
            first += is_upper ? half : 0, left = half;
#pragma unroll
            for (int i = 0; i < half; ++i) {
                const float other = is_upper ? value[i] : value[i + half], mine = is_upper ? value[i + half] : value[i];
                value[i] = mine + __shfl_xor_sync(~0u, other, mask);
            }
            sum_rows<half / 2>(value, mask * 2, left, first);
        }
    } else {
        for (; mask < 32; mask *= 2) value[0] += __shfl_xor_sync(~0u, value[0], mask);
    }
}

// Sums of channels over the warps of a block.
struct warp_columns {
    alignas(16) float values[resident_warps][resident_channels];

    // Called by all threads; vectors: of a row, a power of two. A barrier must lie between this and `total`.
    template <int width> __device__ __forceinline__ void put(float (&value)[width], uint32_t vectors) {
        uint32_t left = width, first = threadIdx.x % vectors * width;
        sum_rows<width / 2>(value, vectors, left, first);
        float *const to = &values[threadIdx.x / 32][first];
#pragma unroll
        for (int i = 0; i < width; ++i)
            if (i < left) to[i] = value[i];
    }
    __device__ __forceinline__ float total(uint32_t channel) const {
        float part[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) part[w] = values[w][channel] + values[w + 8][channel];
        return tree_sum(part);
    }
};

// Place of the moments of a chunk: [channel][chunk], so that the chunks that a team merges lie side by side.
template <typename A> __device__ __forceinline__ uint64_t resident_at(const channel_last_arguments<A> &a, uint32_t channel, uint32_t chunk) {
    return uint64_t(channel) * a.g.chunks + chunk;
}

__device__ __forceinline__ void merge_resident(const channel_last_arguments<float> &a, float (*slots)[team_slots]) {
    for_items(a.g.groups, [&](auto is_block, uint64_t item) {
        constexpr bool block = decltype(is_block)::value;
        const auto part = [&](uint32_t channel, uint32_t chunk, float &count) -> moments<float> {
            count = float(a.g.rows_of(chunk));
            const uint64_t at = resident_at(a, uint32_t(item) * a.g.group_channels + channel, chunk);
            return {__ldcg(a.shifts + at), __ldcg(a.sums + at), __ldcg(a.squares + at)};
        };
        moments<float> total = merge_parts<block>(a.g.group_channels, a.g.chunks, a.reciprocal_count, part, slots);
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        if (list_team<block>::lane() == 0) a.statistics[item] = finish_group(a, total, item, true);
    });
}

template <typename T, bool has_extras> __global__ void __launch_bounds__(last_threads, 1)
    channel_last_resident(const __grid_constant__ channel_last_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), batch = ring_batch, held = has_extras ? 1 : 2; // batches in registers
    __shared__ warp_columns columns;
    __shared__ __align__(16) float values[3][resident_channels];
    __shared__ __align__(16) float slots[3][team_slots];
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const channel_tile<width> t(g, blockIdx.x);
    const uint32_t rows = t.rows, vectors = g.tile_vectors, channels = vectors * width, mine = t.channel - t.begin;
    const uint32_t batches = (g.chunk_rows + g.lanes * batch - 1) / (g.lanes * batch);
    // Batches below `again` are read again, from `cached` on from the L2.
    const uint32_t again = batches - min(batches, uint32_t(resident_slots + held)), cached = again - min(again, a.cached);
    const uint64_t step = g.row_step, x_step = step * a.p.x.spatial, y_step = step * a.p.y.spatial, residual_step = step * a.p.residual.spatial;
    const T *const x = t.template at<T>(a.o.x, a.p.x), *const residual = t.template at<T>(a.o.residual, a.p.residual);
    T *const y = t.template at<T>(a.o.y, a.p.y);
    uint4 *const ring = reinterpret_cast<uint4 *>(dynamic_shared) + threadIdx.x;

    const auto fetch = [&](uint32_t b, uint32_t place, uint64_t policy) {
        const T *from = x + uint64_t(b) * batch * x_step;
#pragma unroll
        for (int u = 0; u < batch; ++u, from += x_step)
            if (b * batch + u < rows) copy_async_cached(ring + (place * batch + u) * last_threads, from, policy);
    };
    const auto fetch_first = [&](uint32_t b, uint32_t place) {
        if (b < batches) fetch(b, place, b >= cached && b < again ? evict_last() : evict_first());
        copy_commit();
    };
    const auto get = [&](uint32_t place, packed<16>(&to)[batch]) {
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            const uint4 v = ring[(place * batch + u) * last_threads];
            to[u] = {{v.x, v.y, v.z, v.w}};
        }
    };
    const auto advance = [&](uint32_t &place) {
        if (++place == resident_slots) place = 0;
    };
#pragma unroll
    for (uint32_t b = 0; b < resident_ahead; ++b) fetch_first(b, b);
    uint32_t next_place = resident_ahead % resident_slots;

    // 1. The shift of every channel: the mean of the block's first batch.
    float shift[width];
    {
        const uint32_t count = min(g.rows_of(t.chunk), g.lanes * batch); // rows of that batch
        copy_wait_batches<resident_ahead - 1>();
        packed<16> data[batch];
        get(0, data);
        float sum[width] = {};
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            if (u < rows) {
                float v[width];
                unpack<T>(data[u], v);
#pragma unroll
                for (int i = 0; i < width; ++i) sum[i] += v[i];
            }
        }
        columns.put(sum, vectors);
        __syncthreads();
        if (threadIdx.x < channels) values[0][threadIdx.x] = count ? columns.total(threadIdx.x) / float(count) : 0.0f;
        __syncthreads();
        get_values(&values[0][mine], shift);
    }

    // 2. Moments of the block's rows.
    float sum[width] = {}, square[width] = {}, sums[width] = {}, squares[width] = {};
    const auto flush = [&] {
#pragma unroll
        for (int i = 0; i < width; ++i) sums[i] += sum[i], sum[i] = 0, squares[i] += square[i], square[i] = 0;
    };
    uint32_t b = 0, place = 0;
    const auto take = [&](packed<16>(&data)[batch]) {
        copy_wait_batches<resident_ahead - 1>();
        get(place, data);
        fetch_first(b + resident_ahead, next_place);
        if (b % resident_span == 0) flush();
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            if (b * batch + u < rows) {
                float v[width];
                unpack<T>(data[u], v);
                add_moments(v, shift, sum, square);
            }
        }
        advance(place), advance(next_place), ++b;
    };
    while (b < again) {
        packed<16> data[batch];
        take(data);
    }
    packed<16> early[held][batch]; // the first batches that are not read again
#pragma unroll
    for (int h = 0; h < held; ++h)
        if (b + resident_slots < batches) take(early[h]);
    const uint32_t kept = b, kept_place = place; // the first batch that stays in the ring
    while (b < batches) {
        packed<16> data[batch];
        take(data);
    }
    moments<float> own = {}; // of channel number threadIdx.x
    const auto add_up = [&] {
        flush();
        columns.put(sums, vectors);
        __syncthreads();
        if (threadIdx.x < channels) own.sum = columns.total(threadIdx.x);
        __syncthreads();
        columns.put(squares, vectors);
        __syncthreads();
        if (threadIdx.x < channels) own.square = columns.total(threadIdx.x);
    };
    if (threadIdx.x < channels) own.shift = values[0][threadIdx.x];
    add_up();
    const bool is_far = recenter(own, 1.0f / float(g.rows_of(t.chunk))); // the first batch
    if (is_far) values[0][threadIdx.x] = own.shift;
    if (__syncthreads_or(is_far)) { // once more
        get_values(&values[0][mine], shift);
#pragma unroll
        for (int i = 0; i < width; ++i) sums[i] = squares[i] = 0;
#pragma unroll 1
        for (uint32_t j = 0; j < rows; ++j) {
            if (j % (resident_span * batch) == 0) flush();
            float v[width];
            unpack<T>(load<16, false>(x + j * x_step), v);
            add_moments(v, shift, sum, square);
        }
        add_up();
    }
    if (threadIdx.x < channels) {
        const uint64_t at = resident_at(a, t.begin + threadIdx.x, t.chunk);
        __stcg(a.shifts + at, own.shift), __stcg(a.sums + at, own.sum), __stcg(a.squares + at, own.square);
    }
    grid.sync();

    // 3. Statistics of the groups.
    merge_resident(a, slots);
    grid.sync();
    finish_running(a);
    if (threadIdx.x < channels) {
        const uint32_t channel = t.begin + threadIdx.x;
        const channel_statistics<float> s = statistics_of(a, 0, channel);
        const float weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f),
                    bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);
        values[0][threadIdx.x] = s.shift, values[1][threadIdx.x] = s.rstd * weight;
        values[2][threadIdx.x] = fmaf(-s.correction, s.rstd * weight, bias);
    }
    __syncthreads();
    float scale[width], offset[width];
    get_values(&values[0][mine], shift), get_values(&values[1][mine], scale), get_values(&values[2][mine], offset);

    // 4. Output: first of the rows in the ring, which makes room for those that are read again; then of those in registers; then of those read again.
    const auto finish = [&](const packed<16>(&data)[batch], uint32_t j) {
        packed<16> added[has_extras ? batch : 1];
        if (has_extras && a.o.residual) {
#pragma unroll
            for (int u = 0; u < batch; ++u)
                if (j + u < rows) added[has_extras ? u : 0] = load<16>(residual + (j + u) * residual_step);
        }
        T *to = y + uint64_t(j) * y_step;
#pragma unroll
        for (int u = 0; u < batch; ++u, to += y_step) {
            if (j + u < rows) {
                store(to, last_output<T, has_extras>(data[u], shift, scale, offset, a.o.residual, added[has_extras ? u : 0], a.p.activation));
            }
        }
    };
    uint32_t asked = again; // batches that are still to be fetched again
    const auto fetch_again = [&] {
        if (asked > 0) fetch(--asked, place, evict_first());
        copy_commit();
    };
    place = kept_place;
    for (b = kept; b < batches; ++b, advance(place)) {
        packed<16> data[batch];
        get(place, data);
        fetch_again();
        finish(data, b * batch);
    }
#pragma unroll
    for (int h = 0; h < held; ++h)
        if (again + h < kept) finish(early[h], (again + h) * batch);
    for (b = again; b-- > 0; advance(place)) {
        copy_wait_batches<resident_slots - 1>();
        packed<16> data[batch];
        get(place, data);
        fetch_again();
        finish(data, b * batch);
    }
}

// Host: the form `resident`.
template <typename T> bops_status channels_last_norm_resident_kernels(const bops_channel_norm_params &p,
                                                                      const bops_channels_last_norm_resident_choice &c, const form_types &types,
                                                                      const bops_channel_norm_operands &o, void *workspace, const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, types, o, workspace);
        a.slots = c.ring_batches, a.cached = c.cached_batches;
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.shared_bytes = c.ring_batches * ring_batch * c.threads * 16, shape.cooperative = true;
        return call(has_extras(p, types) ? channel_last_resident<T, true> : channel_last_resident<T, false>, shape, a);
    }
}

} // namespace bops
