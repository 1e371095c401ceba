// BatchNorm, GroupNorm and InstanceNorm forward, the form `split`: a launch for the moments of parts of segments, one that merges them, one for the
// output. Any alignment and dtype.
#pragma once
#include "channel_norm_contiguous.cuh"

namespace bops {

// Blocks of a grid whose blocks come back for more, at most: thousands of waves, so that the last one takes little of the time.
constexpr uint64_t split_most_blocks = 1 << 22;

// Host: a grid of `blocks` blocks that take what there is to do in turn, or of fewer.
inline dim3 split_grid(uint64_t blocks) { return dim3(uint32_t(blocks < 1 ? 1 : blocks < split_most_blocks ? blocks : split_most_blocks)); }

constexpr uint32_t split_small_grid = 65535; // blocks of a launch over channels, at most: they come back for more
constexpr int split_block = 256;             // threads of a block of the form `split`
constexpr int split_accesses = 4; // of a thread that are under way at once: of 16 bytes they take 16 of the 64 registers that 4 blocks leave

// What the output launch needs of a group, and the unbiased variance for running statistics of samples.
template <typename A> struct group_record { A shift, correction, rstd, unbiased_variance; };

template <typename A> struct channel_split_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    segment_geometry geometry;
    A eps, momentum, reciprocal_count, unbias; // n / (n - 1)
    uint32_t weight_is_wide, chunks, part;     // parts of a segment; elements of one
    uint32_t accesses;                         // of a thread in a part, a multiple of split_accesses
    uint64_t vectors;                          // of a segment
    divisor by_vectors, by_chunks;
    moments<A> *part_moments; // [batch * channels][chunks]
    group_record<A> *records; // [groups]
};

// Stores what is kept of a group: its record (if `records` is not null), the saved statistics, the running statistics of a channel.
template <typename Arguments, typename A>
__device__ __forceinline__ void save_group(const Arguments &a, uint64_t group, const channel_statistics<A> &s) {
    const A unbiased_variance = s.variance * a.unbias;
    if (a.records) a.records[group] = {s.shift, s.correction, s.rstd, unbiased_variance};
    save_statistics(s, a.o.mean, a.o.rstd, group);
    if (a.geometry.is_batch) update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, group, s.mean(), unbiased_variance);
}

// Row and chunk of a part. Where there are fewer than 2^32 parts this needs no division.
template <typename Arguments>
__device__ __forceinline__ void split_item(const Arguments &a, uint64_t items, uint64_t item, uint64_t &row, uint64_t &chunk) {
    row = items >> 32 ? item / a.chunks : a.by_chunks.quotient(uint32_t(item));
    chunk = item - row * a.chunks;
}

// Teams of blockDim.x threads (a power of two up to 32, or the block) take one part after another. A warp, or a team within a warp, uses the mean of
// the first accesses of its lanes, which are a quarter of its part or more, as the shift of its moments.
template <typename T, int vec_bytes> __global__ void __launch_bounds__(split_block, sizeof(T) < 8 ? 4 : 1)
    channel_norm_split_moments(const __grid_constant__ channel_split_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), warps = split_block / 32;
    __shared__ moments<A> warp_moments[2][warps];
    __shared__ A warp_counts[2][warps];
    const uint32_t lanes = min(blockDim.x, 32u), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t items = a.geometry.rows * a.chunks;
    uint32_t turn = 0;
    allow_dependents();
    for (uint64_t base = uint64_t(blockIdx.x) * blockDim.y; base < items; base += uint64_t(gridDim.x) * blockDim.y, turn ^= 1) {
        const uint64_t item = base + threadIdx.y;
        uint64_t row, chunk;
        split_item(a, items, item, row, chunk);
        const uint64_t first = chunk * (uint64_t(blockDim.x) * a.accesses), left = item < items ? a.vectors - first : 0;
        uint32_t sample, channel;
        a.geometry.split(uint32_t(row), sample, channel);
        const T *const x = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + first * width;
        moments<A> own = {0, 0, 0};
        A sum[width] = {}, square[width] = {}, count = 0;
        for (uint32_t done = 0; done < a.accesses; done += split_accesses) {
            packed<vec_bytes> data[split_accesses];
            A value[width];
            const auto at = [&](int v) { return (done + v) * blockDim.x + threadIdx.x; };
#pragma unroll
            for (int v = 0; v < split_accesses; ++v)
                data[v] = at(v) < left ? load<vec_bytes, false>(x + uint64_t(at(v)) * width) : packed<vec_bytes>{};
            if (done == 0) {
                A early[width] = {}, elements = 0;
#pragma unroll
                for (int v = 0; v < split_accesses; ++v) {
                    unpack<T>(data[v], value); // zeros where there is nothing
#pragma unroll
                    for (int i = 0; i < width; ++i) early[i] += value[i];
                    elements += at(v) < left ? A(width) : A(0);
                }
                A mean[2] = {tree_sum(early), elements};
                warp_sum(mean, lanes);
                own.shift = mean[1] > 0 ? mean[0] / mean[1] : A(0);
            }
#pragma unroll
            for (int v = 0; v < split_accesses; ++v)
                if (at(v) < left) {
                    unpack<T>(data[v], value);
                    add_moments(value, own.shift, sum, square);
                    count += A(width);
                }
        }
        A sums[3] = {tree_sum(sum), tree_sum(square), count};
        warp_sum(sums, lanes);
        own.sum = sums[0], own.square = sums[1];
        if (blockDim.x > 32) {
            if (lane == 0) warp_moments[turn][warp] = own, warp_counts[turn][warp] = sums[2];
            __syncthreads();
            if (warp == 0) {
                moments<A> part = {0, 0, 0};
                A part_count = 0;
                if (lane < warps) part = warp_moments[turn][lane], part_count = warp_counts[turn][lane];
                own = merge_across<true>(part, part_count, A(1) / A(min(left, uint64_t(blockDim.x) * a.accesses) * width));
            }
        }
        if (threadIdx.x == 0 && item < items) a.part_moments[item] = own;
    }
}

constexpr int split_merge_block = 128; // threads of a block that merges parts

// Teams merge the parts of a group in a fixed order, and store its statistics and the running statistics of a channel.
template <typename A> __global__ void __launch_bounds__(split_merge_block)
    channel_norm_split_merge(const __grid_constant__ channel_split_arguments<A> a) {
    __shared__ __align__(16) A slots[3][team_slots];
    const row_team team;
    const uint64_t parts = uint64_t(a.geometry.segments) * a.chunks;
    allow_dependents();
    wait_for_dependency();
    for (uint64_t base = uint64_t(blockIdx.x) * blockDim.y; base < a.geometry.groups; base += uint64_t(gridDim.x) * blockDim.y) {
        const uint64_t group = base + threadIdx.y;
        const uint64_t mine = group < a.geometry.groups && a.geometry.count ? parts : 0;
        const auto part = [&](uint64_t j, A &count) {
            const uint64_t k = j / a.chunks, chunk = j - k * a.chunks;
            uint32_t sample, channel;
            a.geometry.segment(uint32_t(group), uint32_t(k), sample, channel);
            count = A(min(a.p.spatial - chunk * a.part, uint64_t(a.part)));
            return a.part_moments[a.geometry.row_of(sample, channel) * a.chunks + chunk];
        };
        cascade<A> means, sum, square;
        for (uint64_t j = threadIdx.x; j < mine; j += blockDim.x) {
            A count;
            const moments<A> m = part(j, count);
            means.add(m.shift * count);
        }
        A mean[1] = {means.total()};
        team_sum<false, true>(mean, team, slots);
        const A shift = rounded_product(mean[0], a.reciprocal_count);
        for (uint64_t j = threadIdx.x; j < mine; j += blockDim.x) {
            A count;
            const moments<A> m = part(j, count);
            moments<A> about = {shift, A(0), A(0)};
            merge(about, m, count);
            sum.add(about.sum);
            square.add(about.square);
        }
        A sums[2] = {sum.total(), square.total()};
        team_sum<false, true>(sums, team, slots + 1);
        sums[0] += sums[0] - sums[0]; // an infinite sum becomes NaN: deviations from the mean itself, which is infinite then, would be NaN
        if (threadIdx.x == 0 && group < a.geometry.groups) {
            const channel_statistics<A> s = finish_statistics(moments<A>{shift, sums[0], sums[1]}, a.reciprocal_count, a.eps);
            save_group(a, group, s);
        }
    }
}

// y of one vector, from d = x - shift: act((d - correction) rstd weight + bias + residual).
template <typename T, int vec_bytes, bool all = true, typename A, int width>
__device__ __forceinline__ packed<vec_bytes> channel_output(A (&d)[width], A scale, A offset, bool has_residual, const packed<vec_bytes> &residual,
                                                            bops_activation kind) {
#pragma unroll
    for (int i = 0; i < width; ++i) d[i] = fma(d[i], scale, offset);
    if (has_residual) {
        A r[width];
        unpack<T>(residual, r);
#pragma unroll
        for (int i = 0; i < width; ++i) d[i] += r[i];
    }
    if (kind != BOPS_IDENTITY) activate<all>(kind, d);
    return pack<T, vec_bytes>(d);
}

// The output of a segment before the activation is (x - shift) scale + offset.
template <typename A> struct output_terms { A shift, scale, offset; };

template <typename T, typename A>
__device__ __forceinline__ output_terms<A> load_output_terms(const channel_split_arguments<A> &a, uint32_t sample, uint32_t channel) {
    const A weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1)), bias = parameter<T>(a.o.bias, a.weight_is_wide, channel, A(0));
    if (a.p.uses_running) {
        const channel_statistics<A> s = running_statistics<A>(a.o.running_mean, a.o.running_var, channel, a.eps);
        return {s.shift, s.rstd * weight, bias};
    }
    const group_record<A> s = a.records[a.geometry.group_of(sample, channel)];
    return {s.shift, s.rstd * weight, fma(-s.correction, s.rstd * weight, bias)};
}

// The output of `accesses` accesses of a thread to a segment: from element `within` on, split_block accesses apart. has(v): whether access v is
// inside. streamed: the tensors leave the cache at once. general: with a residual, or an activation that takes many instructions.
template <typename T, int vec_bytes, int accesses, bool streamed, bool general, typename Has>
__device__ __forceinline__ void apply_accesses(const channel_split_arguments<accumulator_t<T>> &a, uint32_t row, uint64_t within, const Has &has) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), step = split_block * width;
    uint32_t sample, channel;
    a.geometry.split(row, sample, channel);
    const T *const x = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + within;
    const auto find_y = [&] { return static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel) + within; };
    T *y = accesses > 1 ? find_y() : nullptr; // while x is on its way; for one access it would take registers of others
    packed<vec_bytes> data[accesses], added[accesses] = {};
#pragma unroll
    for (int v = 0; v < accesses; ++v)
        if (has(v)) data[v] = load<vec_bytes, streamed>(x + v * step);
    if (general && a.o.residual) {
        const T *const residual = static_cast<const T *>(a.o.residual) + segment_offset(a.p.residual, sample, channel) + within;
#pragma unroll
        for (int v = 0; v < accesses; ++v)
            if (has(v)) added[v] = load<vec_bytes, streamed>(residual + v * step);
    }
    wait_for_dependency(); // for the records: x was there before
    const output_terms<A> t = load_output_terms<T>(a, sample, channel);
    if (accesses == 1) y = find_y();
#pragma unroll
    for (int v = 0; v < accesses; ++v)
        if (has(v)) {
            A d[width];
            unpack_deviations<T>(data[v], t.shift, d);
            store<vec_bytes, streamed>(y + v * step, channel_output<T, vec_bytes, general>(d, t.scale, t.offset, general && a.o.residual != nullptr,
                                                                                           added[v], a.p.activation));
        }
}

// The output of access number `at`.
template <typename T, int vec_bytes, bool streamed>
__device__ __forceinline__ void apply_access(const channel_split_arguments<accumulator_t<T>> &a, uint64_t at) {
    const uint64_t all = a.geometry.rows * a.vectors;
    if (at >= all) return;
    const uint64_t row = all >> 32 ? at / a.vectors : a.by_vectors.quotient(uint32_t(at));
    const uint64_t within = (at - row * a.vectors) * (vec_bytes / sizeof(T));
    apply_accesses<T, vec_bytes, 1, streamed, true>(a, uint32_t(row), within, [](int) { return true; });
}

// The output, one access a thread. The blocks go in the opposite order of the launch for moments, which left its last elements in the cache.
template <typename T, int vec_bytes> __global__ void __launch_bounds__(split_block, sizeof(T) < 8 ? 8 : 1)
    channel_norm_apply(const __grid_constant__ channel_split_arguments<accumulator_t<T>> a) {
    const uint64_t blocks = (a.geometry.rows * a.vectors + split_block - 1) / split_block;
    for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x)
        apply_access<T, vec_bytes, true>(a, (blocks - 1 - block) * split_block + threadIdx.x);
}

constexpr int apply_part_accesses = 4; // of a thread of channel_norm_apply_parts: 16 of its 64 registers

// The output, a part of a segment in each block: what depends on the segment is computed once for all accesses of a thread. This serves 16-bit
// elements, whose instructions take longer than the memory, without a residual and with a short activation.
template <typename T, int vec_bytes> __global__ void __launch_bounds__(split_block, 4)
    channel_norm_apply_parts(const __grid_constant__ channel_split_arguments<accumulator_t<T>> a, const __grid_constant__ divisor by_parts) {
    const uint32_t item = gridDim.x - 1 - blockIdx.x, row = by_parts.quotient(item);
    const uint32_t first = (item - row * by_parts.value) * (split_block * apply_part_accesses), left = uint32_t(a.vectors) - first;
    const uint64_t within = uint64_t(first + threadIdx.x) * (vec_bytes / sizeof(T));
    apply_accesses<T, vec_bytes, apply_part_accesses, true, false>(a, row, within, [&](int v) { return v * split_block + threadIdx.x < left; });
}

// Host: number of parts of a segment of `vectors` accesses, for blocks whose threads have `accesses` each; 0 if the last part would leave more than an
// eighth of all accesses without work, or there are more parts than a grid has blocks.
inline uint32_t parts_of(uint64_t rows, uint64_t vectors, int accesses) {
    const uint64_t part = uint64_t(split_block * accesses), parts = (vectors + part - 1) / part;
    return vectors < uint64_t(1) << 31 && vectors * 8 >= parts * part * 7 && rows * parts < uint64_t(1) << 31 ? uint32_t(parts) : 0;
}

constexpr int apply_known_block = 128; // threads of a block of channel_norm_apply_known: 16 blocks are all threads that an SM has

// The output in inference, where it is the only launch. It does little more than a copy does, so it has the blocks that serve a copy best.
template <typename T, int vec_bytes> __global__ void __launch_bounds__(apply_known_block, sizeof(T) < 8 ? 16 : 1)
    channel_norm_apply_known(const __grid_constant__ channel_split_arguments<accumulator_t<T>> a) {
    apply_access<T, vec_bytes, false>(a, uint64_t(blockIdx.x) * apply_known_block + threadIdx.x);
}

// The output in accesses of 16 bytes where segments allow only narrower ones: the channels of a sample follow each other without a gap, and an access
// spans at most two of them.
template <typename T> __global__ void __launch_bounds__(split_block)
    channel_norm_apply_gapless(const __grid_constant__ channel_split_arguments<accumulator_t<T>> a, const __grid_constant__ divisor by_spatial,
                               uint32_t sample_vectors, const __grid_constant__ divisor by_sample) {
    using A = accumulator_t<T>;
    constexpr int width = 16 / int(sizeof(T));
    const uint32_t all = uint32_t(a.p.batch) * sample_vectors, spatial = uint32_t(a.p.spatial), blocks = gridDim.x;
    const uint32_t at = (a.p.uses_running ? blockIdx.x : blocks - 1 - blockIdx.x) * split_block + threadIdx.x;
    if (at >= all) return;
    const uint32_t sample = by_sample.quotient(at), within = (at - sample * sample_vectors) * width;
    const uint32_t channel = by_spatial.quotient(within), left = (channel + 1) * spatial - within;
    const packed<16> x = load<16, false>(static_cast<const T *>(a.o.x) + sample * a.p.x.batch + within);
    packed<16> residual = {};
    if (a.o.residual) residual = load<16, false>(static_cast<const T *>(a.o.residual) + sample * a.p.residual.batch + within);
    wait_for_dependency();
    const output_terms<A> near = load_output_terms<T>(a, sample, channel);
    const output_terms<A> far = load_output_terms<T>(a, sample, min(channel + 1, a.geometry.channels - 1));
    A d[width], r[width];
    unpack<T>(x, d);
    unpack<T>(residual, r); // zeros where there is none
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const bool is_near = i < left;
        d[i] = fma(d[i] - (is_near ? near.shift : far.shift), is_near ? near.scale : far.scale, is_near ? near.offset : far.offset);
        if (a.o.residual) d[i] += r[i];
    }
    if (a.p.activation != BOPS_IDENTITY) activate(a.p.activation, d);
    store<16, false>(static_cast<T *>(a.o.y) + sample * a.p.y.batch + within, pack<T, 16>(d));
}

// Running statistics where every sample has statistics of its own: they take the mean over the samples of the means and of the unbiased variances.
template <typename A> __global__ void __launch_bounds__(split_block)
    channel_norm_running_over_samples(const __grid_constant__ bops_channel_norm_operands o, const group_record<A> *records, uint64_t batch,
                                      uint64_t channels, A momentum) {
    for (uint64_t c = uint64_t(blockIdx.x) * split_block + threadIdx.x; c < channels; c += uint64_t(gridDim.x) * split_block) {
        cascade<A> mean, variance;
        for (uint64_t n = 0; n < batch; ++n) {
            const group_record<A> s = records[n * channels + c];
            mean.add(s.shift + s.correction);
            variance.add(s.unbiased_variance);
        }
        update_running(o.running_mean, o.running_var, nullptr, momentum, c, mean.total() / A(batch), variance.total() / A(batch));
    }
}

__global__ void channel_norm_count_batch(int64_t *num_batches);

// Host: launches what follows a training kernel: the running statistics that no block can write alone, and the count of batches.
template <typename A, typename Choice> bops_status finish_running(const forward_call<Choice> &f, const group_record<A> *records) {
    if (f.p.uses_running) return 0;
    launch_shape shape;
    if (f.p.groups == 0) {
        if (!f.p.is_cumulative) return 0;
        shape.grid = dim3(1), shape.block = dim3(1);
        return f.call(channel_norm_count_batch, shape, static_cast<int64_t *>(f.o.num_batches));
    }
    if (!f.call.prepares && !f.o.running_mean && !f.o.running_var) return 0;
    const uint64_t blocks = (f.p.channels + split_block - 1) / split_block;
    shape.grid = dim3(uint32_t(blocks < split_small_grid ? blocks : split_small_grid)), shape.block = dim3(split_block);
    return f.call(channel_norm_running_over_samples<A>, shape, f.o, records, f.p.batch, f.p.channels, running_weight<A>(f.p.momentum));
}

// Host: the form `split`.
template <typename T> bops_status channel_norm_split_kernels(const forward_call<bops_channel_norm_split_choice> &f) {
    using A = accumulator_t<T>;
    channel_split_arguments<A> a = {};
    const auto &p = f.p;
    const auto &c = f.c;
    bops_channel_norm_operands o = f.o;
    a.geometry.set(p.batch, p.channels, p.spatial, p.groups);
    const uint64_t count = a.geometry.count;
    if (count == 0 && !p.uses_running) o.running_mean = o.running_var = o.num_batches = nullptr;
    a.p = p, a.o = o;
    a.eps = count ? A(p.eps) : A(NAN), a.momentum = running_weight<A>(p.momentum);
    a.reciprocal_count = count ? A(1.0 / double(count)) : A(0);
    a.unbias = count > 1 ? A(double(count) / double(count - 1)) : A(0);
    a.weight_is_wide = f.types.weight_is_wide, a.chunks = c.parts, a.by_chunks = divisor(c.parts);
    return for_access<T>(c.access_bytes, [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value, width = vec_bytes / int(sizeof(T));
        a.vectors = p.spatial / width, a.by_vectors = divisor(a.vectors);
        a.part = c.threads * c.accesses * width, a.accesses = c.accesses;
        a.records = static_cast<group_record<A> *>(f.workspace);
        a.part_moments = reinterpret_cast<moments<A> *>(a.records + a.geometry.groups);
        launch_shape shape;
        bops_status status = 0;
        if (!p.uses_running) {
            const uint32_t teams = split_block / c.threads;
            shape.block = dim3(c.threads, teams), shape.grid = split_grid((a.geometry.rows * c.parts + teams - 1) / teams);
            if (a.geometry.rows * a.vectors > 0 || f.call.prepares) status = f.call(channel_norm_split_moments<T, vec_bytes>, shape, a);
            if (status) return status;
            const uint32_t team = team_for(uint64_t(a.geometry.segments) * c.parts, split_merge_block);
            shape.overlaps_previous = c.later_overlaps != 0;
            shape.block = dim3(team, split_merge_block / team);
            shape.grid = split_grid((a.geometry.groups + shape.block.y - 1) / shape.block.y);
            status = f.call(channel_norm_split_merge<A>, shape, a);
            if (status) return status;
        }
        shape.block = dim3(split_block), shape.grid = split_grid((a.geometry.rows * a.vectors + split_block - 1) / split_block);
        if constexpr (sizeof(T) < 8 && vec_bytes < 16)
            if (c.writes_gapless) { // the output in wider accesses
                const uint64_t vectors = p.channels * p.spatial / (16 / sizeof(T));
                shape.grid = dim3(uint32_t((p.batch * vectors + split_block - 1) / split_block));
                status = f.call(channel_norm_apply_gapless<T>, shape, a, divisor(p.spatial), uint32_t(vectors), divisor(vectors));
                return status ? status : finish_running(f, a.records);
            }
        const uint64_t accesses = a.geometry.rows * a.vectors;
        if constexpr (sizeof(T) == 2)
            if (const uint32_t parts = parts_of(a.geometry.rows, a.vectors, apply_part_accesses))
                if (accesses > 0 && !p.uses_running && is_unrolled(p.activation) && (f.call.prepares || !o.residual)) {
                    launch_shape by_parts = shape;
                    by_parts.grid = dim3(uint32_t(a.geometry.rows * parts));
                    status = f.call(channel_norm_apply_parts<T, vec_bytes>, by_parts, a, divisor(parts));
                    if (!f.call.prepares || status) return status ? status : finish_running(f, a.records);
                }
        if (p.uses_running && accesses < uint64_t(apply_known_block) << 31) {
            shape.block = dim3(apply_known_block), shape.grid = dim3(uint32_t((accesses + apply_known_block - 1) / apply_known_block));
            if (accesses > 0 || f.call.prepares) status = f.call(channel_norm_apply_known<T, vec_bytes>, shape, a);
        } else if (accesses > 0 || f.call.prepares) {
            status = f.call(channel_norm_apply<T, vec_bytes>, shape, a);
        }
        return status || (count == 0 && !f.call.prepares) ? status : finish_running(f, a.records);
    });
}

} // namespace bops
