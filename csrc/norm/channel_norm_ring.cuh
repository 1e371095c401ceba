// BatchNorm, GroupNorm and InstanceNorm forward: teams, blocks or clusters, walk over groups staged through shared memory.
#pragma once
#include "channel_norm_split.cuh"

namespace bops {

constexpr int ring_threads = 512, ring_batch = 4; // threads of a block, at most; vectors of a thread that are under way from shared memory

// How the blocks of a team share a group's vectors of 16 bytes. In a step a block's threads take a part of one segment, or several whole
// segments of `pitch` threads each; a block has `steps` steps.
struct ring_geometry {
    uint32_t cluster, steps, slots; // blocks; steps of a block; vectors of a thread's ring
    uint32_t per_segment, segments; // vectors; of a group
    uint32_t chunks, pitch, multi;  // steps of a segment; threads and number of the segments in a step
    divisor by_chunks, by_pitch;

    // whole_warps: no warp takes two segments in a step.
    __host__ void set(const segment_geometry &geometry, const bops_channel_norm_choice &c, uint32_t width, uint64_t spatial, bool whole_warps) {
        per_segment = uint32_t(spatial / width), segments = geometry.segments;
        cluster = c.cluster, steps = c.vectors, slots = c.stages;
        pitch = whole_warps ? (per_segment + 31) / 32 * 32 : per_segment;
        multi = pitch < c.threads ? c.threads / pitch : 1;
        if (multi == 1) pitch = c.threads;
        chunks = multi > 1 ? 1 : (per_segment + c.threads - 1) / c.threads;
        by_chunks = divisor(chunks), by_pitch = divisor(pitch);
    }
    // Vectors in the first steps of a group.
    __device__ __forceinline__ uint32_t vectors_before(uint32_t step) const {
        const uint32_t whole = by_chunks.quotient(step), chunk = step - whole * chunks;
        return whole * multi >= segments ? segments * per_segment : whole * multi * per_segment + min(chunk * pitch, per_segment);
    }
    __device__ __forceinline__ uint32_t vectors_of(uint32_t rank) const { return vectors_before((rank + 1) * steps) - vectors_before(rank * steps); }
};

// A thread's way through the steps of a block.
struct step_walk {
    uint32_t lane, sub;            // of the segment's threads; which of a step's segments
    uint32_t chunk, left, segment; // left: vectors of the segment from this step on

    __device__ __forceinline__ explicit step_walk(const ring_geometry &ring) {
        sub = ring.by_pitch.quotient(threadIdx.x);
        lane = sub < ring.multi ? threadIdx.x - sub * ring.pitch : ~0u;
    }
    __device__ __forceinline__ void start(const ring_geometry &ring, uint32_t step) {
        const uint32_t whole = ring.by_chunks.quotient(step);
        chunk = step - whole * ring.chunks;
        left = ring.per_segment - chunk * ring.pitch;
        segment = whole * ring.multi + sub;
    }
    __device__ __forceinline__ bool is_mine(const ring_geometry &ring) const { return lane < left && segment < ring.segments; }
    // Offset of this step's vector from the group's first element.
    __device__ __forceinline__ uint64_t offset(const ring_geometry &ring, uint64_t segment_stride, uint32_t width) const {
        return segment * segment_stride + (chunk * ring.pitch + lane) * width;
    }
    // True where the next step is of another segment.
    __device__ __forceinline__ bool next(const ring_geometry &ring) {
        left -= ring.pitch;
        if (++chunk < ring.chunks) return false;
        chunk = 0, left = ring.per_segment, segment += ring.multi;
        return true;
    }
};

// A tensor's vectors along a walk.
template <typename T> struct walk_pointer {
    T *at;
    uint64_t step, jump; // elements to the next step of a segment, to that of the next segment

    __device__ __forceinline__ walk_pointer(const ring_geometry &ring, uint64_t segment_stride) {
        constexpr uint32_t width = 16 / sizeof(T);
        step = uint64_t(ring.pitch) * width;
        jump = ring.multi * segment_stride - (ring.chunks - 1) * step;
    }
    __device__ __forceinline__ void next(bool is_other_segment) { at += is_other_segment ? jump : step; }
};

// Places of `arrays` vectors in the dynamic shared memory, [slot][array][thread]. A thread fills and reads its own, so they need no barrier.
template <int arrays> struct item_ring {
    uint32_t offset, end, stride; // bytes

    __device__ __forceinline__ explicit item_ring(uint32_t slots) : offset(threadIdx.x * 16), stride(blockDim.x * 16) {
        end = offset + slots * arrays * stride;
    }
    __device__ __forceinline__ unsigned char *slot(int array) const { return dynamic_shared + offset + array * stride; }
    __device__ __forceinline__ packed<16> load(int array) const {
        const uint4 value = *reinterpret_cast<const uint4 *>(slot(array));
        return {{value.x, value.y, value.z, value.w}};
    }
    __device__ __forceinline__ void next() {
        offset += arrays * stride;
        if (offset == end) offset = threadIdx.x * 16;
    }
};

struct channel_ring_arguments {
    bops_channel_norm_params p;
    bops_channel_norm_operands o;
    segment_geometry geometry;
    ring_geometry ring;
    float eps, momentum, reciprocal_count, unbias;
    uint32_t weight_is_wide, overlaps;
    group_record<float> *records; // where samples have running statistics
};

// A thread's ring holds `slots` vectors: those of a group whose moments have been taken wait there for its statistics, and as each is
// written out a following one is fetched, of the next group at last. Of a group with more steps than slots the first are let go and fetched
// again at its end. A warp takes the mean of its first vectors as the shift of its moments.
template <typename T, bool has_residual> __global__ void __launch_bounds__(ring_threads, 1)
    channel_norm_ring(const __grid_constant__ channel_ring_arguments a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ moments<float> warp_moments[3][merge_lanes];
    __shared__ cluster_exchange exchange;
    if (a.overlaps) follow_previous();
    const row_team team;
    const ring_geometry &ring = a.ring;
    const uint32_t rank = ring.cluster > 1 ? cluster_rank() : 0, first = rank * ring.steps, steps = ring.steps, slots = ring.slots;
    const uint32_t teams = gridDim.x / ring.cluster, groups = uint32_t(a.geometry.groups), own_group = blockIdx.x / ring.cluster;
    const uint32_t again = steps > slots ? steps - slots : 0, kept = steps - again;
    item_ring<1> fetching(slots), reading(slots), finishing(slots);
    if (ring.cluster > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    const auto stride_of = [&](const bops_channel_strides &s) { return a.geometry.is_batch ? s.batch : s.channel; };

    // Fetches the next item: the steps of a group, then those that are read again, then the next group.
    uint32_t fetch_group = own_group, fetch_item = 0, fetched = 0;
    step_walk walk(ring);
    walk_pointer<const T> fetch_x(ring, stride_of(a.p.x));
    const auto start_fetch = [&] {
        uint32_t sample, channel;
        a.geometry.segment(fetch_group, 0, sample, channel);
        walk.start(ring, first);
        fetch_x.at = static_cast<const T *>(a.o.x) + segment_offset(a.p.x, sample, channel) + walk.offset(ring, stride_of(a.p.x), width);
    };
    start_fetch();
    const auto fetch = [&] {
        if (fetch_group < groups) {
            if (walk.is_mine(ring)) copy_async<16>(fetching.slot(0), fetch_x.at);
            fetch_x.next(walk.next(ring));
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

    step_walk step(ring);
    const auto lanes_of = [&](uint32_t warp) { // of a warp, that hold a vector in the current step
        const uint32_t segment = step.segment - step.sub, here = min(ring.segments - min(segment, ring.segments), ring.multi);
        const uint32_t before = warp * 32, have = min(step.left, ring.pitch) * here;
        return have > before ? min(have - before, 32u) : 0;
    };
    uint32_t warp_vectors = 0; // of the warp that has this thread's lane as its number
    step.start(ring, first);
    const uint32_t first_lanes = lanes_of(team.warp);
    for (uint32_t i = 0; i < steps; ++i, step.next(ring)) warp_vectors += lanes_of(team.lane);
    if (team.lane >= team.warps) warp_vectors = 0;
    step.start(ring, first + 1);
    // The step whose vectors give the shift: the first may be the rest of a segment, which some warps have no part in.
    const uint32_t shift_step = first_lanes == 0 && steps > 1 ? 1 : 0, shift_lanes = shift_step ? lanes_of(team.warp) : first_lanes;
    const float shift_scale = shift_lanes ? 1.0f / float(shift_lanes * width) : 0.0f;
    const float warp_count = float(warp_vectors * width);
    const uint32_t block_vectors = ring.vectors_of(rank);
    const float block_reciprocal = ring.cluster == 1 ? a.reciprocal_count : block_vectors ? 1.0f / (float(block_vectors) * width) : 0.0f;
    const float rank_count = team.lane < ring.cluster ? float(ring.vectors_of(team.lane)) * width : 0.0f;
    if (ring.cluster > 1) cluster_wait();

    uint32_t items = 0; // read so far
    const auto wait_items = [&](uint32_t more) { copy_wait_groups(int(fetched - items - more)); };
    for (uint32_t group = own_group, turn = 0; group < groups; group += teams, ++turn) {
        // 1. The moments of each warp's part.
        moments<float> own = {0, 0, 0};
        wait_items(1 + shift_step);
        {
            item_ring<1> ahead = reading;
            step.start(ring, first + shift_step);
            if (shift_step) ahead.next();
            float x[width] = {};
            if (step.is_mine(ring)) unpack<T>(ahead.load(0), x);
            float mean[1] = {tree_sum(x)};
            warp_sum(mean, 32);
            own.shift = mean[0] * shift_scale;
        }
        step.start(ring, first);
        float sum[width] = {}, square[width] = {};
        for (uint32_t i = 0; i < steps; i += ring_batch) {
            const uint32_t here = min(steps - i, uint32_t(ring_batch));
            wait_items(here);
            items += here;
            packed<16> data[ring_batch];
            bool is_mine[ring_batch];
#pragma unroll
            for (int j = 0; j < ring_batch; ++j) {
                is_mine[j] = j < here && step.is_mine(ring);
                if (is_mine[j]) data[j] = reading.load(0);
                if (j < here) {
                    reading.next();
                    step.next(ring);
                }
            }
#pragma unroll
            for (int j = 0; j < ring_batch; ++j)
                if (is_mine[j]) {
                    float x[width];
                    unpack<T>(data[j], x);
#pragma unroll
                    for (int k = 0; k < width; ++k) {
                        const float d = x[k] - own.shift;
                        sum[k] += d;
                        square[k] = fmaf(d, d, square[k]);
                    }
                }
            for (uint32_t j = i; j < min(i + ring_batch, again); ++j) {
                fetch();
                finishing.next();
            }
        }
        float sums[2] = {tree_sum(sum), tree_sum(square)};
        warp_sum(sums, 32);
        own.sum = sums[0], own.square = sums[1];
        if (team.lane == 0) warp_moments[turn % 3][team.warp] = own;
        __syncthreads();

        // 2. The blocks of a cluster tell each other theirs.
        const auto merge_warps = [&](uint32_t of_turn) {
            moments<float> part = {0, 0, 0};
            if (team.lane < team.warps) part = warp_moments[of_turn % 3][team.lane];
            return merge_across<true>(part, warp_count, block_reciprocal);
        };
        if (ring.cluster > 1 && team.warp == 0) {
            const moments<float> mine = merge_warps(turn);
            exchange.send({mine.shift, mine.sum, mine.square, 0}, turn, rank, ring.cluster, threadIdx.x);
        }

        // 3. A group's statistics and output.
        moments<float> total;
        if (ring.cluster > 1) {
            const float(*const blocks)[4] = exchange.wait(turn);
            moments<float> part = {0, 0, 0};
            if (team.lane < ring.cluster) part = {blocks[team.lane][0], blocks[team.lane][1], blocks[team.lane][2]};
            total = merge_across<true>(part, rank_count, a.reciprocal_count);
        } else {
            total = merge_warps(turn);
        }
        total.sum += total.sum - total.sum; // infinity becomes NaN, as it does about the mean itself
        const channel_statistics<float> s = finish_statistics(total, a.reciprocal_count, a.eps);
        uint32_t sample, channel;
        a.geometry.segment(group, 0, sample, channel);
        if (threadIdx.x == 0 && rank == 0) {
            save_statistics(s, a.o.mean, a.o.rstd, group);
            if (a.geometry.is_batch)
                update_running(a.o.running_mean, a.o.running_var, a.o.num_batches, a.momentum, group, s.mean(), s.variance * a.unbias);
            else if (a.records) a.records[group] = {s.shift, s.correction, s.rstd, s.variance * a.unbias};
        }
        walk_pointer<T> y(ring, stride_of(a.p.y));
        walk_pointer<const T> residual(ring, stride_of(a.p.residual));
        step_walk residual_step(ring);
        const auto start_output = [&](uint32_t from) {
            step.start(ring, first + from);
            residual_step.start(ring, first + from);
            y.at = static_cast<T *>(a.o.y) + segment_offset(a.p.y, sample, channel) + step.offset(ring, stride_of(a.p.y), width);
            residual.at = static_cast<const T *>(a.o.residual) + segment_offset(a.p.residual, sample, channel) +
                          step.offset(ring, stride_of(a.p.residual), width);
        };
        float scale, offset;
        const auto take_parameters = [&] {
            const uint32_t index = a.geometry.is_batch ? group : channel + min(step.segment, ring.segments - 1);
            scale = s.rstd * parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
            offset = fmaf(-s.correction, scale, parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f));
        };
        const auto finish = [&](uint32_t count) { // up to ring_batch steps
            packed<16> data[ring_batch], added[ring_batch];
#pragma unroll
            for (int j = 0; j < ring_batch; ++j) {
                data[j] = finishing.load(0), added[j] = {};
                if (j < count) {
                    finishing.next();
                    if constexpr (has_residual) {
                        if (residual_step.is_mine(ring)) added[j] = load<16>(residual.at);
                        residual.next(residual_step.next(ring));
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < ring_batch; ++j) {
                if (j >= count) break;
                if (step.is_mine(ring)) {
                    float d[width];
                    unpack<T>(data[j], d);
#pragma unroll
                    for (int k = 0; k < width; ++k) d[k] -= s.shift;
                    store<16, false>(y.at, channel_output<T, 16>(d, scale, offset, has_residual, added[j], a.p.activation));
                }
                const bool is_other = step.next(ring);
                y.next(is_other);
                if (is_other && !a.geometry.is_batch) take_parameters();
                fetch();
            }
        };
        start_output(again);
        take_parameters();
        for (uint32_t i = 0, here; i < steps; i += here) {
            here = min((i < kept ? kept : steps) - i, uint32_t(ring_batch));
            if (i >= kept) { // those that are read again
                if (i == kept) {
                    start_output(0);
                    take_parameters();
                }
                wait_items(here);
                items += here;
                for (uint32_t j = 0; j < here; ++j) reading.next();
            }
            finish(here);
        }
    }
}

// Host: what the kernels that walk over groups take.
template <typename T> channel_ring_arguments ring_arguments(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                                            bops_dtype weight_dtype, const bops_channel_norm_operands &o, void *workspace) {
    channel_ring_arguments a = {};
    a.geometry.set(p.batch, p.channels, p.spatial, p.groups);
    a.ring.set(a.geometry, c, 16 / sizeof(T), p.spatial, false);
    const double count = double(a.geometry.count);
    a.p = p, a.o = o, a.eps = float(p.eps), a.momentum = float(p.momentum);
    a.reciprocal_count = float(1.0 / count), a.unbias = float(count / (count - 1.0));
    a.weight_is_wide = weight_dtype != dtype, a.overlaps = c.overlaps;
    const bool keeps = p.groups && (o.running_mean || o.running_var);
    a.records = keeps ? static_cast<group_record<float> *>(workspace) : nullptr;
    return a;
}

// Host: the RING variant.
template <typename T> bops_status channel_norm_ring_kernels(const bops_channel_norm_params &p, const bops_channel_norm_choice &c, bops_dtype dtype,
                                                            bops_dtype weight_dtype, const bops_channel_norm_operands &o, void *workspace,
                                                            const kernel_call &call) {
    if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
    else {
        const channel_ring_arguments a = ring_arguments<T>(p, c, dtype, weight_dtype, o, workspace);
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.cluster = c.cluster, shape.overlaps_previous = c.overlaps != 0;
        shape.shared_bytes = c.stages * c.threads * 16;
        bops_status status = 0;
        if (o.residual || call.prepares) status = call(channel_norm_ring<T, true>, shape, a);
        if (!status && !o.residual) status = call(channel_norm_ring<T, false>, shape, a);
        return status ? status : finish_running(p, o, a.records, call);
    }
}

} // namespace bops
