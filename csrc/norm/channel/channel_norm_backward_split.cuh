// Gradients of BatchNorm, GroupNorm and InstanceNorm, the form `split`: a launch for the sums of parts of segments, one that merges them, one for the
// gradients of elements. Any alignment and dtype.
//
// dpre = dy act'(pre), g = dpre weight, xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)), dresidual = dpre,
// dweight = sum(dpre xhat), dbias = sum(dpre). With running statistics dx = rstd g.
#pragma once
#include "channel_norm_contiguous.cuh"
#include "channel_norm_split.cuh"

namespace bops {

template <typename A> struct channel_backward_arguments {
    bops_channel_norm_backward_params p;
    bops_channel_norm_backward_operands o;
    segment_geometry geometry;
    A eps, reciprocal_count;
    uint32_t weight_is_wide, chunks, accesses; // accesses: of a thread in a part, a multiple of split_accesses
    uint32_t keeps_dpre;                       // the first pass stores dresidual
    uint64_t vectors;
    divisor by_vectors, by_chunks;
    A *part_sums;    // [batch * channels][chunks][2]: of dpre, of dpre xhat
    A *segment_sums; // [batch * channels][2]
    A *group_means;  // [groups][2]: of g, of g xhat
};

// What the gradient of a vector needs to know of its channel and group.
template <typename A> struct gradient_terms {
    A mean, rstd, scale, bias; // scale: rstd weight
};

template <typename T, typename A>
__device__ __forceinline__ gradient_terms<A> load_terms(const channel_backward_arguments<A> &a, uint32_t sample, uint32_t channel) {
    gradient_terms<A> t;
    if (a.p.uses_running) {
        const channel_statistics<A> s = running_statistics<A>(a.o.running_mean, a.o.running_var, channel, a.eps);
        t.mean = s.shift, t.rstd = s.rstd;
    } else {
        const uint32_t group = a.geometry.group_of(sample, channel);
        t.mean = __ldg(static_cast<const A *>(a.o.mean) + group), t.rstd = __ldg(static_cast<const A *>(a.o.rstd) + group);
    }
    t.scale = t.rstd * parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1));
    t.bias = a.p.activation ? parameter<T>(a.o.bias, a.weight_is_wide, channel, A(0)) : A(0);
    return t;
}

// What the derivative of the activation reads beside x: nothing, a residual, or y in place of the pre-activation.
enum class extra_operand { none, residual, y };

// Keeps deviations in registers that are needed after the activation, too: otherwise the compiler would compute them from x again.
template <typename A, int width> __device__ __forceinline__ void keep(A (&d)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i)
        if constexpr (sizeof(A) == 4) asm volatile("" : "+f"(d[i]));
}

// Adds the dpre of a vector and their products with d = x - mean to sums, of which each is a chain of additions.
template <typename A, int width, int chains>
__device__ __forceinline__ void add_products(const A (&dpre)[width], const A (&d)[width], A (&sum)[chains], A (&product)[chains]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
        sum[i % chains] += dpre[i];
        product[i % chains] = fma(dpre[i], d[i], product[i % chains]);
    }
}

// Replaces dpre by dx; d is x - mean, mean_g is rstd mean(g) and slope is rstd^2 mean(g xhat).
template <typename A, int width> __device__ __forceinline__ void make_dx(const A (&d)[width], A scale, A mean_g, A slope, A (&dpre)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) dpre[i] = fma(-d[i], slope, fma(dpre[i], scale, -mean_g));
}

// Replaces dy by dpre; d is x - mean.
template <typename T, int vec_bytes, bool all = true, typename A, int width>
__device__ __forceinline__ void differentiate_vector(bops_activation kind, extra_operand which, const packed<vec_bytes> &extra, const A (&d)[width],
                                                     A scale, A bias, A (&dy)[width]) {
    if (kind == BOPS_IDENTITY) return;
    A pre[width];
    unpack<T>(extra, pre);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const A affine = fma(d[i], scale, bias);
        pre[i] = which == extra_operand::none ? affine : which == extra_operand::y ? pre[i] : affine + pre[i];
    }
    differentiate<all>(kind, pre, dy);
}

template <typename O> __host__ __device__ __forceinline__ extra_operand extra_of(const O &o, bops_activation kind) {
    return kind == BOPS_IDENTITY ? extra_operand::none : o.y ? extra_operand::y : o.residual ? extra_operand::residual : extra_operand::none;
}

// The forms of the last launch: a short activation without dresidual, residual and y; a short activation; any activation.
enum gradient_form { bare_gradient, short_gradient, any_gradient };

template <typename O> __host__ gradient_form gradient_form_of(const O &o, bops_activation kind) {
    return !is_unrolled(kind) ? any_gradient : o.dresidual || o.residual || o.y ? short_gradient : bare_gradient;
}

template <typename T, int vec_bytes, gradient_form form>
__global__ void __launch_bounds__(split_block, form == any_gradient || sizeof(T) == 8 ? 1 : 3)
    channel_norm_backward_split_sums(const __grid_constant__ channel_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), batch = width * (form == bare_gradient ? 1 : 2) >= 8 ? 2 : split_accesses; // under way at once
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    const uint64_t items = a.geometry.rows * a.chunks;
    const extra_operand which = form == bare_gradient ? extra_operand::none : extra_of(a.o, a.p.activation);
    const void *const extra = which == extra_operand::y ? a.o.y : a.o.residual;
    const bops_channel_strides &extra_strides = which == extra_operand::y ? a.p.y : a.p.residual;
    uint32_t turn = 0;
    allow_dependents();
    for (uint64_t base = uint64_t(blockIdx.x) * blockDim.y; base < items; base += uint64_t(gridDim.x) * blockDim.y, turn ^= 2) {
        const uint64_t item = base + threadIdx.y;
        uint64_t row, chunk;
        split_item(a, items, item, row, chunk);
        const uint64_t first = chunk * (uint64_t(blockDim.x) * a.accesses), left = item < items ? a.vectors - first : 0;
        A sum[width] = {}, product[width] = {};
        A rstd = 0;
        if (left) {
            uint32_t sample, channel;
            a.geometry.split(uint32_t(row), sample, channel);
            const T *const dy_segment = static_cast<const T *>(a.o.dy) + segment_offset(a.p.dy, sample, channel);
            const T *const x_segment = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel);
            const T *const extra_segment = static_cast<const T *>(extra) + segment_offset(extra_strides, sample, channel);
            const gradient_terms<A> t = load_terms<T>(a, sample, channel);
            rstd = t.rstd;
            for (uint32_t done = 0; done < a.accesses && done * blockDim.x < left; done += batch) {
                const auto is_valid = [&](int v) { return (done + v) * blockDim.x + threadIdx.x < left; };
                const auto at = [&](int v) { return (first + (done + v) * blockDim.x + threadIdx.x) * width; };
                packed<vec_bytes> dy_data[batch], x_data[batch], extra_data[batch];
#pragma unroll
                for (int v = 0; v < batch; ++v) {
                    dy_data[v] = x_data[v] = extra_data[v] = {};
                    if (is_valid(v)) {
                        dy_data[v] = load<vec_bytes, false>(dy_segment + at(v));
                        x_data[v] = load<vec_bytes, false>(x_segment + at(v));
                        if (which != extra_operand::none) extra_data[v] = load<vec_bytes, false>(extra_segment + at(v));
                    }
                }
#pragma unroll
                for (int v = 0; v < batch; ++v) {
                    if (!is_valid(v)) continue;
                    A dy[width], d[width];
                    unpack<T>(dy_data[v], dy);
                    unpack_deviations<T>(x_data[v], t.mean, d);
                    keep(d);
                    differentiate_vector<T, vec_bytes, form == any_gradient>(a.p.activation, which, extra_data[v], d, t.scale, t.bias, dy);
                    add_products(dy, d, sum, product);
                    if (a.keeps_dpre && a.o.dresidual)
                        store(static_cast<T *>(a.o.dresidual) + segment_offset(a.p.dresidual, sample, channel) + at(v), pack<T, vec_bytes>(dy));
                    if (a.p.uses_running && a.o.dx) {
#pragma unroll
                        for (int i = 0; i < width; ++i) dy[i] *= t.scale;
                        store(static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + at(v), pack<T, vec_bytes>(dy));
                    }
                }
            }
        }
        if (!a.part_sums) continue;
        A sums[2] = {tree_sum(sum), tree_sum(product) * rstd};
        team_sum<false, true>(sums, team, slots + turn);
        if (threadIdx.x == 0 && item < items) a.part_sums[item * 2] = sums[0], a.part_sums[item * 2 + 1] = sums[1];
    }
}

// The sums of a group, and of its segments if the gradients of the parameters are summed over the samples. A warp takes one segment at a time if
// these are wanted or weights differ; else a team takes all parts.
template <typename T> __global__ void __launch_bounds__(split_merge_block)
    channel_norm_backward_split_merge(const __grid_constant__ channel_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    __shared__ __align__(16) A slots[4][team_slots];
    const row_team team;
    uint32_t turn = 0;
    allow_dependents();
    wait_for_dependency();
    for (uint64_t group = blockIdx.x; group < a.geometry.groups; group += gridDim.x, turn ^= 2) {
        A sums[2];
        uint32_t sample, channel;
        if (a.geometry.is_batch) {
            const uint64_t parts = uint64_t(a.geometry.segments) * a.chunks;
            cascade<A> sum, product;
            for (uint64_t j = threadIdx.x; j < parts; j += split_merge_block) {
                const uint64_t k = j / a.chunks;
                a.geometry.segment(uint32_t(group), uint32_t(k), sample, channel);
                const A *const part = a.part_sums + (a.geometry.row_of(sample, channel) * a.chunks + (j - k * a.chunks)) * 2;
                sum.add(part[0]);
                product.add(part[1]);
            }
            sums[0] = sum.total(), sums[1] = product.total();
            team_sum<false, false>(sums, team, slots + turn);
            if (threadIdx.x == 0) {
                store_parameter<T>(a.o.dbias, a.weight_is_wide, group, sums[0]);
                store_parameter<T>(a.o.dweight, a.weight_is_wide, group, sums[1]);
                const A weight = parameter<T>(a.o.weight, a.weight_is_wide, group, A(1));
                sums[0] *= weight, sums[1] *= weight;
            }
        } else {
            cascade<A> sum, product;
            for (uint32_t k = team.warp; k < a.geometry.segments; k += team.warps) {
                a.geometry.segment(uint32_t(group), k, sample, channel);
                const uint64_t row = a.geometry.row_of(sample, channel);
                cascade<A> segment_sum, segment_product;
                for (uint32_t chunk = team.lane; chunk < a.chunks; chunk += 32) {
                    const A *const part = a.part_sums + (row * a.chunks + chunk) * 2;
                    segment_sum.add(part[0]);
                    segment_product.add(part[1]);
                }
                A totals[2] = {segment_sum.total(), segment_product.total()};
                warp_sum(totals, 32);
                if (team.lane == 0) {
                    a.segment_sums[row * 2] = totals[0], a.segment_sums[row * 2 + 1] = totals[1];
                    const A weight = parameter<T>(a.o.weight, a.weight_is_wide, channel, A(1));
                    sum.add(weight * totals[0]);
                    product.add(weight * totals[1]);
                }
            }
            sums[0] = sum.total(), sums[1] = product.total();
            team_sum<false, false>(sums, team, slots + turn);
        }
        if (threadIdx.x == 0) {
            a.group_means[group * 2] = sums[0] * a.reciprocal_count;
            a.group_means[group * 2 + 1] = sums[1] * a.reciprocal_count;
        }
    }
}

template <typename T, int vec_bytes, gradient_form form>
__global__ void __launch_bounds__(split_block, form == any_gradient || sizeof(T) == 8 ? 1 : 6)
    channel_norm_backward_apply(const __grid_constant__ channel_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    const uint64_t all = a.geometry.rows * a.vectors, blocks = (all + split_block - 1) / split_block;
    if (a.keeps_dpre) wait_for_dependency(); // dy is what the first pass made of it
    for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const uint64_t at = (blocks - 1 - block) * split_block + threadIdx.x;
        if (at >= all) continue;
        const uint64_t row = all >> 32 ? at / a.vectors : a.by_vectors.quotient(uint32_t(at)), within = (at - row * a.vectors) * width;
        uint32_t sample, channel;
        a.geometry.split(uint32_t(row), sample, channel);
        const packed<vec_bytes> dy_data = load<vec_bytes>(static_cast<const T *>(a.o.dy) + segment_offset(a.p.dy, sample, channel) + within);
        const packed<vec_bytes> x_data = load<vec_bytes>(static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + within);
        packed<vec_bytes> extra = {};
        const extra_operand which = form == bare_gradient ? extra_operand::none : extra_of(a.o, a.p.activation);
        if (which != extra_operand::none)
            extra = which == extra_operand::y
                        ? load<vec_bytes>(static_cast<const T *>(a.o.y) + segment_offset(a.p.y, sample, channel) + within)
                        : load<vec_bytes>(static_cast<const T *>(a.o.residual) + segment_offset(a.p.residual, sample, channel) + within);
        const gradient_terms<A> t = load_terms<T>(a, sample, channel);
        wait_for_dependency();
        const A *const means = a.group_means + uint64_t(a.geometry.group_of(sample, channel)) * 2;
        const A mean_g = t.rstd * means[0], slope = t.rstd * t.rstd * means[1];
        A dy[width], d[width];
        unpack<T>(dy_data, dy);
        unpack_deviations<T>(x_data, t.mean, d);
        differentiate_vector<T, vec_bytes, form == any_gradient>(a.p.activation, which, extra, d, t.scale, t.bias, dy);
        if (a.o.dresidual) store(static_cast<T *>(a.o.dresidual) + segment_offset(a.p.dresidual, sample, channel) + within, pack<T, vec_bytes>(dy));
        if (a.o.dx) {
            make_dx(d, t.scale, mean_g, slope, dy);
            store(static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + within, pack<T, vec_bytes>(dy));
        }
    }
}

constexpr int apply_accesses_backward = 2; // of a thread of channel_norm_backward_apply_parts to dy and to x each: as many registers as forward

// The gradients of elements, a part of a segment in each block: for 16-bit elements through SiLU, without dresidual, residual and y.
template <typename T, int vec_bytes> __global__ void __launch_bounds__(split_block, 4)
    channel_norm_backward_apply_parts(const __grid_constant__ channel_backward_arguments<accumulator_t<T>> a,
                                      const __grid_constant__ divisor by_parts) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    const uint32_t item = gridDim.x - 1 - blockIdx.x, row = by_parts.quotient(item);
    const uint32_t first = (item - row * by_parts.value) * (split_block * apply_accesses_backward), left = uint32_t(a.vectors) - first;
    uint32_t sample, channel;
    a.geometry.split(row, sample, channel);
    const uint64_t within = uint64_t(first + threadIdx.x) * width;
    const T *const dy_own = static_cast<const T *>(a.o.dy) + segment_offset(a.p.dy, sample, channel) + within;
    const T *const x_own = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + within;
    T *const dx_own = static_cast<T *>(a.o.dx) + segment_offset(a.p.dx, sample, channel) + within;
    const auto is_valid = [&](int v) { return v * split_block + threadIdx.x < left; };
    packed<vec_bytes> dy_data[apply_accesses_backward], x_data[apply_accesses_backward];
#pragma unroll
    for (int v = 0; v < apply_accesses_backward; ++v)
        if (is_valid(v)) {
            dy_data[v] = load<vec_bytes>(dy_own + v * split_block * width);
            x_data[v] = load<vec_bytes>(x_own + v * split_block * width);
        }
    const gradient_terms<A> t = load_terms<T>(a, sample, channel);
    wait_for_dependency();
    const A *const means = a.group_means + uint64_t(a.geometry.group_of(sample, channel)) * 2;
    const A mean_g = t.rstd * means[0], slope = t.rstd * t.rstd * means[1];
#pragma unroll
    for (int v = 0; v < apply_accesses_backward; ++v)
        if (is_valid(v)) {
            A dy[width], d[width];
            unpack<T>(dy_data[v], dy);
            unpack_deviations<T>(x_data[v], t.mean, d);
            keep(d);
            differentiate_vector<T, vec_bytes, false>(a.p.activation, extra_operand::none, packed<vec_bytes>{}, d, t.scale, t.bias, dy);
            make_dx(d, t.scale, mean_g, slope, dy);
            store(dx_own + v * split_block * width, pack<T, vec_bytes>(dy));
        }
}

// The gradients of the parameters from the sums of segments: over the samples, in a fixed order. A block takes 32 channels, one in each column of its
// threads.
constexpr int sample_sum_rows = 8;       // rows of 32 threads of such a block, which has 256: each takes every 8th sample
constexpr int sample_sum_pitch = 32 + 1; // columns of a row in shared memory; the one too many keeps rows in different banks

// Called by all threads: the gradients of the parameters of `channel`, one in each column of threads, from what the rows of threads have added up.
template <typename T, typename A> __device__ __forceinline__ void store_sample_sums(A (&slots)[2][sample_sum_rows][sample_sum_pitch],
                                                                                    const cascade<A> &sum, const cascade<A> &product, void *dweight,
                                                                                    void *dbias, bool is_wide, uint64_t channel, uint64_t channels) {
    slots[0][threadIdx.y][threadIdx.x] = sum.total();
    slots[1][threadIdx.y][threadIdx.x] = product.total();
    __syncthreads();
    if (threadIdx.y < 2 && channel < channels) {
        A value[sample_sum_rows];
#pragma unroll
        for (int i = 0; i < sample_sum_rows; ++i) value[i] = slots[threadIdx.y][i][threadIdx.x];
        store_parameter<T>(threadIdx.y ? dweight : dbias, is_wide, channel, tree_sum(value));
    }
    __syncthreads();
}

// Host: the launch of a kernel that sums over samples.
inline launch_shape sample_sum_shape(uint64_t channels, bool overlaps) {
    launch_shape shape;
    const uint64_t blocks = (channels + 31) / 32;
    shape.grid = dim3(uint32_t(blocks < split_small_grid ? blocks : split_small_grid)), shape.block = dim3(32, sample_sum_rows),
    shape.overlaps_previous = overlaps;
    return shape;
}

template <typename T> __global__ void __launch_bounds__(32 * sample_sum_rows)
    channel_norm_sum_samples(const accumulator_t<T> *segment_sums, void *dweight, void *dbias, bool is_wide, uint64_t batch, uint64_t channels,
                             bool overlaps) {
    using A = accumulator_t<T>;
    __shared__ A slots[2][sample_sum_rows][sample_sum_pitch];
    if (overlaps) follow_previous();
    for (uint64_t base = uint64_t(blockIdx.x) * 32; base < channels; base += uint64_t(gridDim.x) * 32) {
        const uint64_t channel = base + threadIdx.x;
        cascade<A> sum, product;
        if (channel < channels)
            for (uint64_t n = threadIdx.y; n < batch; n += sample_sum_rows) {
                const A *const part = segment_sums + (n * channels + channel) * 2;
                sum.add(part[0]);
                product.add(part[1]);
            }
        store_sample_sums<T>(slots, sum, product, dweight, dbias, is_wide, channel, channels);
    }
}

// Host: the form `split`.
template <typename T> bops_status channel_norm_backward_split_kernels(const backward_call<bops_channel_norm_split_choice> &f) {
    using A = accumulator_t<T>;
    const auto &p = f.p;
    const auto &c = f.c;
    const auto &o = f.o;
    channel_backward_arguments<A> a = {};
    a.p = p, a.o = o;
    a.geometry.set(p.batch, p.channels, p.spatial, p.groups);
    a.eps = A(p.eps), a.reciprocal_count = a.geometry.count ? A(1.0 / double(a.geometry.count)) : A(0);
    a.weight_is_wide = f.types.weight_is_wide, a.chunks = c.parts, a.by_chunks = divisor(c.parts);
    const bool wants_sums = f.call.prepares || !p.uses_running || o.dweight || o.dbias;
    a.group_means = static_cast<A *>(f.workspace);
    a.segment_sums = a.group_means + a.geometry.groups * 2;
    a.part_sums = wants_sums ? a.segment_sums + (p.groups ? a.geometry.rows * 2 : 0) : nullptr;
    return for_access<T>(c.access_bytes, [&](auto bytes) -> bops_status {
        constexpr int vec_bytes = decltype(bytes)::value, width = vec_bytes / int(sizeof(T));
        a.vectors = p.spatial / width, a.by_vectors = divisor(a.vectors), a.accesses = c.accesses;
        launch_shape shape;
        bops_status status = 0;
        const bool has_elements = f.call.prepares || a.geometry.rows * a.vectors > 0;
        const uint32_t teams = split_block / c.threads;
        shape.block = dim3(c.threads, teams), shape.grid = split_grid((a.geometry.rows * c.parts + teams - 1) / teams);
        const gradient_form form = gradient_form_of(o, p.activation);
        // Through a ReLU dpre is dy or 0, which no rounding changes: the last pass may read it in place of dy and what it is made of.
        a.keeps_dpre = p.uses_running || (o.dresidual && p.activation == BOPS_RELU);
        if (has_elements)
            status = f.call.one_of(form,
                                   specialised(channel_norm_backward_split_sums<T, vec_bytes, bare_gradient>,
                                               channel_norm_backward_split_sums<T, vec_bytes, short_gradient>,
                                               channel_norm_backward_split_sums<T, vec_bytes, any_gradient>),
                                   shape, a);
        if (status || !wants_sums) return status;
        if (a.geometry.groups) {
            shape.block = dim3(split_merge_block), shape.grid = split_grid(a.geometry.groups), shape.overlaps_previous = c.later_overlaps != 0;
            status = f.call(channel_norm_backward_split_merge<T>, shape, a);
            if (status) return status;
        }
        if (has_elements && !p.uses_running && (f.call.prepares || o.dx || (o.dresidual && !a.keeps_dpre))) {
            shape.block = dim3(split_block), shape.grid = split_grid((a.geometry.rows * a.vectors + split_block - 1) / split_block);
            channel_backward_arguments<A> last = a;
            if (a.keeps_dpre) {
                last.p.dy = p.dresidual, last.p.activation = BOPS_IDENTITY;
                last.o.dy = o.dresidual, last.o.residual = last.o.y = nullptr, last.o.dresidual = nullptr;
            }
            uint32_t parts = 0;
            if constexpr (sizeof(T) == 2) {
                const bool serves = p.activation == BOPS_SILU && (f.call.prepares || (form == bare_gradient && o.dx));
                parts = serves ? parts_of(a.geometry.rows, a.vectors, apply_accesses_backward) : 0;
                launch_shape by_parts = shape;
                by_parts.grid = dim3(uint32_t(a.geometry.rows * parts));
                if (parts) status = f.call(channel_norm_backward_apply_parts<T, vec_bytes>, by_parts, a, divisor(parts));
                if (status) return status;
            }
            if (!parts || f.call.prepares)
                status = f.call.one_of(a.keeps_dpre ? bare_gradient : form,
                                       specialised(channel_norm_backward_apply<T, vec_bytes, bare_gradient>,
                                                   channel_norm_backward_apply<T, vec_bytes, short_gradient>,
                                                   channel_norm_backward_apply<T, vec_bytes, any_gradient>),
                                       shape, last);
            if (status) return status;
        }
        if (p.groups == 0 || p.channels == 0 || (!f.call.prepares && !o.dweight && !o.dbias)) return 0;
        const bool overlaps = c.later_overlaps != 0;
        return f.call(channel_norm_sum_samples<T>, sample_sum_shape(p.channels, overlaps), a.segment_sums, o.dweight, o.dbias, a.weight_is_wide,
                      p.batch, p.channels, overlaps);
    });
}

} // namespace bops
