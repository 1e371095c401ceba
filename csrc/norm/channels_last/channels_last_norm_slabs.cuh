// BatchNorm, GroupNorm and InstanceNorm forward over channels-last layouts, the form `slabs`, without activation and residual: one cooperative launch
// that takes slabs, which are some tiles of channels or some samples, one after another. In a slab every block has one tile in one chunk of the rows.
//
// A thread's rows pass through a ring in shared memory. The first rows stay in registers and the last in the ring until the statistics are known;
// those between, if any, are read again, as far as possible from the L2. Free places of the ring take the next slab's first rows during the exchange,
// and as soon as rows are written from registers, rows of the next slab go there.
#pragma once
#include "channels_last_norm_columns.cuh"

namespace bops {

constexpr int slabs_held = 10;      // batches in registers
constexpr uint32_t slabs_ahead = 9; // batches in flight
constexpr uint32_t slabs_early = 4; // of the next slab's, those that are asked for before the exchange; with more the exchange waits behind them
// Batches in shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr uint32_t slabs_slots = 9;
#else
constexpr uint32_t slabs_slots = 13;
#endif

__device__ __forceinline__ float middle(float a, float b, float c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }

// What most warps' values of a channel are near: it moves only if three or more of them are far off.
__device__ __forceinline__ float middle_of_warps(const float (&values)[slabs_warps][resident_channels], uint32_t channel) {
    float of_warp[slabs_warps];
#pragma unroll
    for (int w = 0; w < slabs_warps; ++w) of_warp[w] = values[w][channel];
    return middle(middle(of_warp[0], of_warp[1], of_warp[2]), middle(of_warp[3], of_warp[4], of_warp[5]), 0.5f * (of_warp[6] + of_warp[7]));
}

// The shift, rounded to a number of x's type: differences of two such numbers are exact, and long sums of them stay exact, while differences from
// another number are all rounded in the same direction.
template <typename T> __device__ __forceinline__ float representable(float shift) { return widen(narrow<T>(shift)); }

template <typename T> __global__ void __launch_bounds__(slabs_threads, 1)
    channel_last_slabs(const __grid_constant__ channel_last_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), batch = ring_batch, held = slabs_held;
    constexpr uint32_t slots = slabs_slots, ahead = slabs_ahead, threads = slabs_threads;
    __shared__ __align__(16) slabs_columns columns;
    __shared__ __align__(16) float values[4][resident_channels]; // shift, scale and offset of the slab that is written, shift of the one that is read
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const channel_last_shape &g = a.g;
    const uint32_t vectors = g.tile_vectors, channels = vectors * width, mine = threadIdx.x % vectors * width;
    const uint32_t batches = (g.chunk_rows + g.lanes * batch - 1) / (g.lanes * batch);
    // The last batch, which may lack rows, stays in the ring.
    const uint32_t in_registers = min(batches - 1, uint32_t(held)), in_ring = min(batches - in_registers, slots);
    const uint32_t again = batches - in_registers - in_ring, first_kept = in_registers + again; // batches between them are read again
    const uint32_t vacant = again > 0 ? 0 : slots - in_ring;                                    // places for the next slab during the exchange
    const uint32_t slab_chunks = gridDim.x >= g.chunks * g.tiles ? gridDim.x / g.tiles : g.chunks, slab_tiles = gridDim.x / slab_chunks;
    const uint32_t slabs_of_chunk = g.tiles / slab_tiles, slabs = g.samples * g.chunks / slab_chunks * slabs_of_chunk;
    const uint64_t x_step = uint64_t(g.row_step) * a.p.x.spatial, y_step = uint64_t(g.row_step) * a.p.y.spatial;
    uint4 *const ring = reinterpret_cast<uint4 *>(dynamic_shared) + threadIdx.x; // [batch][row][thread]
    uint4 *const sample = ring + slots * batch * threads;                        // of the slab that is read next: a vector of every thread
    const uint64_t passing = evict_first();

    const auto tile_of = [&](uint32_t slab) {
        return channel_tile<width>(g, slab / slabs_of_chunk * slab_chunks + blockIdx.x / slab_tiles,
                                   slab % slabs_of_chunk * slab_tiles + blockIdx.x % slab_tiles);
    };
    struct source {
        const T *x;
        int rows; // that are left
    };
    const auto source_of = [&](uint32_t slab) -> source {
        if (slab >= slabs) return {nullptr, 0};
        const channel_tile<width> t = tile_of(slab);
        return {t.template at<T>(a.o.x, a.p.x), int(t.rows)};
    };
    const auto advance = [&](uint32_t &place) {
        if (++place == slots) place = 0;
    };
    const auto get = [&](uint32_t place, packed<16>(&to)[batch]) {
        const uint4 *from = ring + place * (batch * threads);
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            const uint4 v = from[u * threads];
            to[u] = {{v.x, v.y, v.z, v.w}};
        }
    };
    const auto copy = [&](const source &from, uint32_t to_place, uint64_t policy) {
        const T *x = from.x;
        uint4 *to = ring + to_place * (batch * threads);
#pragma unroll
        for (int u = 0; u < batch; ++u, x += x_step, to += threads)
            if (u < from.rows) copy_async_cached(to, x, policy);
    };
    source coming = source_of(0); // what is fetched next
    uint32_t fetch_place = 0;
    const auto fetch = [&](uint64_t policy) {
        copy(coming, fetch_place, policy);
        coming.x += batch * x_step, coming.rows -= batch;
        advance(fetch_place);
    };
    // Every block makes the shift of a slab's groups from the same rows, one of every lane, scattered over the sample. Other blocks read them too:
    // the common cache policy.
    const auto fetch_sample = [&](uint32_t slab) {
        const channel_tile<width> t = tile_of(slab);
        const uint32_t of_lane = threadIdx.x / vectors, span = g.rows / g.lanes;
        const uint32_t row = uint32_t(uint64_t(of_lane) * g.rows / g.lanes) + (span ? (of_lane * 0x9e3779b1u >> 8) % span : 0);
        copy_async<16>(sample, static_cast<const T *>(a.o.x) + (t.sample * a.p.x.batch + row * a.p.x.spatial + t.channel));
    };
    const auto put_sample = [&] {
        const uint4 v = *sample;
        float value[width];
        unpack<T>(packed<16>{{v.x, v.y, v.z, v.w}}, value);
        put_column(columns[1], value, vectors, mine);
    };
    const float of_samples = float(slabs_warps) / float(g.lanes * g.group_channels);

    // Some of the first `ahead` batches of a slab.
    const auto fetch_first = [&](uint32_t from, uint32_t to) {
#pragma unroll 1
        for (uint32_t b = from; b < to; ++b) {
            if (b < batches) fetch(passing);
            copy_commit();
        }
    };
    if (a.overlaps) follow_previous();
    fetch_sample(0);
    copy_commit();
    fetch_first(0, ahead);
    copy_wait_batches<ahead>();
    put_sample();
    __syncthreads();
    float shift_read = 0; // of channel threadIdx.x of the tile
    {
        float value[1] = {threadIdx.x < channels ? middle_of_warps(columns[1], threadIdx.x) : 0.0f};
        if (g.group_channels > 1) sum_groups(value, g.group_channels, channels, columns);
        shift_read = representable<T>(value[0] * of_samples);
        if (threadIdx.x < channels) values[3][threadIdx.x] = shift_read;
    }
    __syncthreads();

    packed<16> early[held][batch]; // a slab's first batches
    uint32_t place = 0;            // of the batch that is taken next
    for (uint32_t slab = 0; slab <= slabs; ++slab) {
        // 1. Outputs of the slab before; sums of this one.
        const bool reads = slab < slabs, has_next = slab + 1 < slabs;
        if (has_next) fetch_sample(slab + 1);
        const channel_tile<width> t = tile_of(reads ? slab : 0), written = tile_of(slab > 0 ? slab - 1 : 0);
        const T *const x = written.template at<T>(a.o.x, a.p.x);
        T *const y = written.template at<T>(a.o.y, a.p.y);
        float sum[width] = {}, square[width] = {};
        const auto receive = [&](packed<16>(&data)[batch], uint32_t b) {
            copy_wait_batches<ahead - 1>();
            get(place, data);
            advance(place);
            const uint32_t next = b + ahead;
            if (next < batches) fetch(next < first_kept && next + a.cached >= first_kept ? evict_last() : passing);
            copy_commit();
        };
        const auto add = [&](const packed<16> &data, const float(&shift)[width]) {
            float v[width];
            unpack<T>(data, v);
            add_moments(v, shift, sum, square);
        };
        float shift[width], shift_written[width], scale[width], offset[width];
        get_values(&values[3][mine], shift), get_values(&values[0][mine], shift_written);
        get_values(&values[1][mine], scale), get_values(&values[2][mine], offset);
        // Of a thread's batches only the last may lack rows.
        const auto finish = [&](const packed<16>(&data)[batch], uint32_t b, auto is_last) {
            T *to = y + uint64_t(b) * batch * y_step;
#pragma unroll
            for (int u = 0; u < batch; ++u, to += y_step) {
                if (!decltype(is_last)::value || int(b) * batch + u < int(written.rows))
                    store(to, last_output<T, false>(data[u], shift_written, scale, offset, false, packed<16>(), BOPS_IDENTITY));
            }
        };
        if (slab > 0) {
            // What is in the ring, which makes room for what is read again, last to first, and then for this slab.
            packed<16> data[batch];
            uint32_t turn = 0; // batches that have left the ring
            const auto leave = [&] {
                get(place, data);
                advance(place);
                if (again > 0) {
                    if (turn < again) {
                        copy({x + uint64_t(first_kept - 1 - turn) * (batch * x_step), batch}, fetch_place, passing);
                        advance(fetch_place);
                    } else if (turn + ahead >= slots + again) {
                        fetch(passing);
                    }
                    copy_commit();
                }
                ++turn;
            };
#pragma unroll 1
            for (uint32_t b = first_kept; b + 1 < batches; ++b) {
                leave();
                finish(data, b, std::false_type());
            }
            leave();
            finish(data, batches - 1, std::true_type());
            if (again == 0 && reads) fetch_first(min(ahead, vacant), ahead);
#pragma unroll 1
            for (uint32_t b = first_kept; b-- > in_registers;) {
                copy_wait_batches<slots - 1>();
                leave();
                finish(data, b, std::false_type());
            }
        }
#pragma unroll
        for (int h = 0; h < held; ++h) {
            if (h < in_registers) {
                packed<16> data[batch];
                if (reads) receive(data, h);
                if (slab > 0) finish(early[h], h, std::false_type());
#pragma unroll
                for (int u = 0; u < batch; ++u) {
                    if (reads) add(data[u], shift);
                    early[h][u] = data[u];
                }
            }
        }
        if (!reads) break;
        packed<16> data[batch];
        float sums[width] = {}, squares[width] = {};
        const auto flush = [&] {
#pragma unroll
            for (int i = 0; i < width; ++i) sums[i] += sum[i], sum[i] = 0, squares[i] += square[i], square[i] = 0;
        };
#pragma unroll 1
        for (uint32_t b = in_registers; b + 1 < batches; ++b) {
            receive(data, b);
            if ((b - in_registers) % resident_span == 0) flush();
#pragma unroll
            for (int u = 0; u < batch; ++u) add(data[u], shift);
        }
        receive(data, batches - 1);
#pragma unroll
        for (int u = 0; u < batch; ++u)
            if (int(batches - 1) * batch + u < int(t.rows)) add(data[u], shift);
        flush();
        place = fetch_place >= in_ring ? fetch_place - in_ring : fetch_place + slots - in_ring; // of the first batch that stays
        put_column(columns[0], sums, vectors, mine), put_column(columns[1], squares, vectors, mine);
        __syncthreads();
        publish_columns(a.sums, a.squares, uint64_t(t.chunk) * g.channels + t.begin, channels, columns);
        auto arrival = grid.barrier_arrive();
        coming = source_of(slab + 1);
        if (has_next) {
            copy_wait_batches<0>();
            put_sample();
            fetch_first(0, min(slabs_early, vacant));
        }
        const uint32_t channel = t.begin + threadIdx.x;
        float weight = 1, bias = 0; // of channel threadIdx.x of the tile
        if (threadIdx.x < channels) {
            weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, 1.0f), bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, 0.0f);
        }
        grid.barrier_wait(std::move(arrival));

        // 2. Statistics of the tile's groups.
        const uint64_t first = uint64_t(t.sample) * g.chunks * g.channels + t.begin;
        const float2 both = gather_columns(a.sums, a.squares, first, g.chunks, g.channels, channels, columns);
        if (has_next) fetch_first(min(slabs_early, vacant), min(ahead, vacant));
        float value[3] = {both.x, both.y, has_next && threadIdx.x < channels ? middle_of_warps(columns[1], threadIdx.x) : 0.0f};
        if (g.group_channels > 1) sum_groups(value, g.group_channels, channels, columns);
        moments<float> total = {shift_read, value[0], value[1]};
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        shift_read = representable<T>(value[2] * of_samples);
        if (threadIdx.x < channels) {
            const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
            values[0][threadIdx.x] = s.shift, values[1][threadIdx.x] = s.rstd * weight;
            values[2][threadIdx.x] = fmaf(-s.correction, s.rstd * weight, bias), values[3][threadIdx.x] = shift_read;
        }
        __syncthreads();
        const uint32_t group = channel / g.group_channels;
        if (threadIdx.x < channels && t.chunk == t.sample * g.chunks && channel == group * g.group_channels)
            finish_group(a, total, uint64_t(t.sample) * g.groups + group, true);
    }
}

// Host: the form `slabs`.
template <typename T> bops_status channels_last_norm_slabs_kernels(const bops_channel_norm_params &p, const bops_channels_last_norm_slabs_choice &c,
                                                                   const form_types &types, const bops_channel_norm_operands &o, void *workspace,
                                                                   const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        auto a = last_arguments<T>(p, {c.tile_vectors, c.chunks, c.is_merged, c.threads, true}, types, o, workspace, c.overlaps);
        a.slots = c.ring_batches, a.cached = c.cached_batches;
        launch_shape shape = last_launch(c.blocks, c.threads);
        shape.cooperative = true, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = (c.ring_batches * ring_batch * c.threads + slabs_threads) * 16; // a place more, for the sample
        return call(channel_last_slabs<T>, shape, a);
    }
}

} // namespace bops
