// Gradients of GroupNorm and InstanceNorm, the form `single`: every team, which is a block or a cluster, takes one group into its shared memory.
#pragma once
#include "channel_norm_backward_walk.cuh"
#include "channel_norm_single.cuh"

namespace bops {

constexpr int single_general_threads = 640; // of a block of the kernel for any activation, at most: 1024 threads leave each too few registers
constexpr float silu_bias_bound = 1e30f;    // beyond it the slope has its limit, and the pre-activation stays finite

// dy silu'(x) = dy (1 + r x) (1 - r) with r = 1 / (1 + exp(x)). Each element takes a reciprocal: other warps of the SM hide its latency.
// On entry x is multiplied by silu_unit and finite; on return dpre is multiplied by silu_unit. The error of 1 - r is absolute: a slope near 0 loses
// its last bits.
template <int count> __device__ __forceinline__ void multiply_silu_slope_alone(const float (&t)[count], float (&dy)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const float r = reciprocal_approximate(exp2_flushed(t[i]) + 1.0f), factor = fmaf(t[i], r, silu_unit);
        dy[i] *= fmaf(-factor, r, factor);
    }
}

struct channel_backward_single_arguments {
    channel_backward_walk_arguments of; // its ring: rows of 32 vectors, `steps` of a block, `chunks` of a segment
    uint32_t vectors;                   // of a thread
    uint32_t samples;                   // those whose blocks make one cluster: the whole batch, or 0
    uint32_t keeps;                     // SiLU: a place has room for dpre in place of dy
    uint32_t stagger_cycles, multiprocessors, residents;
};

// A block's part of its group. A place holds a vector of dy and one of x and, if dpre is kept, the second half of dpre. Segments are cut into rows of 32
// vectors, and a warp takes consecutive rows; its sums of a segment go to the slot of the last row that it has of the segment. With SiLU the numbers in
// registers stand for dpre silu_unit.
template <typename T, activation_form form> struct single_rows {
    static constexpr int width = 16 / int(sizeof(T)), batch = form == any_activation ? 1 : 2; // vectors that are under way from shared memory
    static constexpr float unit = form == silu_activation ? silu_unit : 1.0f, unit_inverse = 1 / unit;

    const channel_backward_single_arguments &single;
    const channel_backward_walk_arguments &a;
    const walk_geometry &ring;
    uint32_t lane, warp, vectors;                 // vectors: of a thread
    uint32_t blocks, block;                       // of the hardware cluster; the number in it
    uint32_t of_sample, rank, group;              // of_sample: of those of the hardware cluster; rank: of the block in its team
    uint32_t rows, first_row, own_row, own_rows;  // of the group; the block's first; the warp's first and how many it has
    bool keeps;                                   // dpre stays in shared memory
    uint32_t segment_end;                         // 32 vectors a row of a segment; a field, so that loops do not compute it again
    uint32_t array_bytes, place_bytes, own_place; // own_place: address of the thread's first place
    float2 *row_sums, *segment_sums;              // segment_sums: [block][segment], of the first block
    uint32_t sample, channel;                     // of the group's first segment
    uint32_t vector;                              // of the walk through the warp's rows: the number of this thread's vector in the segment
    float lane_weight, lane_bias, mean, rstd;     // lane: of row number `lane` of the warp
    float weight, bias;                           // of the walk's segment

    __device__ __forceinline__ explicit single_rows(const channel_backward_single_arguments &arguments)
        : single(arguments), a(arguments.of), ring(arguments.of.ring), lane(threadIdx.x % 32), warp(threadIdx.x / 32), vectors(arguments.vectors),
          blocks(ring.team_blocks * max(arguments.samples, 1)), block(blocks > 1 ? cluster_rank() : 0), of_sample(block / ring.team_blocks),
          rank(block - of_sample * ring.team_blocks), group(of_sample * a.geometry.inner + blockIdx.x / blocks), rows(ring.segments * ring.chunks),
          first_row(rank * ring.steps), own_row(first_row + warp * vectors), own_rows(rows > own_row ? min(rows - own_row, vectors) : 0),
          keeps(form == silu_activation && sizeof(T) == 2 && arguments.keeps), segment_end(ring.chunks * 32), array_bytes(blockDim.x * 16),
          place_bytes(array_bytes * (keeps ? 3 : 2)), row_sums(reinterpret_cast<float2 *>(dynamic_shared + vectors * place_bytes)),
          segment_sums(row_sums + ring.steps) {}

    __device__ __forceinline__ void find_segments() {
        uint32_t number = group;
        asm volatile("" : "+r"(number)); // without it, what follows from the number stays in registers
        a.geometry.segment(number, 0, sample, channel);
    }
    // Goes to the warp's first row; returns its segment.
    __device__ __forceinline__ uint32_t start() {
        uint32_t row = own_row;
        asm volatile("" : "+r"(row)); // without it, what follows from the row stays in registers
        const uint32_t segment = ring.by_chunks.quotient(row);
        vector = (row - segment * ring.chunks) * 32 + lane;
        return segment;
    }
    __device__ __forceinline__ bool is_mine() const { return vector < ring.per_segment; }
    // Goes to the next row; returns whether it is of another segment.
    __device__ __forceinline__ bool next() {
        vector += 32;
        if (vector < segment_end) return false;
        vector = lane;
        return true;
    }
    __device__ __forceinline__ uint64_t first_element(const bops_channel_strides &s, uint32_t segment) const {
        return segment_offset(s, sample, channel) + segment * s.channel + vector * width;
    }
    // Elements from the end of a segment's last row to the next segment.
    __device__ __forceinline__ uint64_t jump_of(const bops_channel_strides &s) const { return s.channel - uint64_t(segment_end) * width; }
    // Number of copies that are waited for first.
    __device__ __forceinline__ uint32_t half() const { return (vectors + 1) / 2; }

    // Starts the copies of the thread's vectors to shared memory, in two halves.
    __device__ __forceinline__ void copy() {
        own_place = kept_address(dynamic_shared + threadIdx.x * 16);
        const uint32_t own_segment = start();
        const T *dy_from = static_cast<const T *>(a.o.dy) + first_element(a.p.dy, own_segment);
        const T *x_from = static_cast<const T *>(a.o.x) + first_element(a.p.x, own_segment);
#pragma unroll 1
        for (uint32_t v = 0, place = own_place; v < vectors; ++v, place += place_bytes) {
            if (v == half()) copy_commit();
            if (v < own_rows && is_mine()) {
                copy_async<16>(place, dy_from);
                copy_async<16>(place + array_bytes, x_from);
            }
            dy_from += 32 * width, x_from += 32 * width;
            if (next()) dy_from += jump_of(a.p.dy), x_from += jump_of(a.p.x);
        }
        if (vectors == half()) copy_commit();
        copy_commit();
    }
    __device__ __forceinline__ void load_parameters() {
        const uint32_t index = channel + min(ring.by_chunks.quotient(own_row + lane), ring.segments - 1);
        lane_weight = parameter<T>(a.o.weight, a.weight_is_wide, index, 1.0f);
        lane_bias = a.p.activation ? unit * parameter<T>(a.o.bias, a.weight_is_wide, index, 0.0f) : 0.0f;
        if (form == silu_activation) lane_bias = between(lane_bias, -silu_bias_bound, silu_bias_bound);
        mean = __ldg(static_cast<const float *>(a.o.mean) + group), rstd = __ldg(static_cast<const float *>(a.o.rstd) + group);
    }
    // Takes the parameters of row v of the warp.
    __device__ __forceinline__ void take_parameters(uint32_t v) { weight = __shfl_sync(~0u, lane_weight, v), bias = __shfl_sync(~0u, lane_bias, v); }
    __device__ __forceinline__ void make_dpre(uint32_t place, float (&dy)[width], float (&d)[width]) const {
        unpack<T>(load_shared(place), dy);
        unpack_deviations<T>(load_shared(place + array_bytes), mean, d);
        keep(d);
        if constexpr (form == silu_activation) {
            float pre[width];
#pragma unroll
            for (int k = 0; k < width; ++k) pre[k] = fmaf(d[k], rstd * unit * weight, bias);
            multiply_silu_slope_alone(pre, dy);
        } else {
            differentiate_together<T, form>(a.p.activation, d, rstd * weight, bias, dy);
        }
    }
    // dpre as `add` has kept it.
    __device__ __forceinline__ void take_dpre(uint32_t place, float (&dy)[width], float (&d)[width]) const {
        unpack_deviations<T>(load_shared(place + array_bytes), mean, d);
#pragma unroll
        for (int h = 0; h < width / 4; ++h) {
            const packed<16> data = load_shared(place + h * 2 * array_bytes);
#pragma unroll
            for (int k = 0; k < 4; ++k) dy[h * 4 + k] = __uint_as_float(data.word[k]);
        }
    }

    // Adds up dpre and dpre xhat over segments, into row_sums, and their products with the weight over the warp's rows, into `weighted`.
    __device__ __forceinline__ void add(float (&weighted)[2]) {
        float sum[width] = {}, product[width] = {};
        if (lane < own_rows) row_sums[warp * vectors + lane] = make_float2(0, 0);
        __syncwarp();
        start();
        take_parameters(0);
        copy_wait(1);
#pragma unroll 1
        for (uint32_t v = 0, place = own_place; v < own_rows; ++v, place += place_bytes) {
            if (v == half()) copy_wait(0);
            if (is_mine()) {
                float dy[width], d[width];
                make_dpre(place, dy, d);
                add_products(dy, d, sum, product);
                if constexpr (width == 8)
                    if (keeps) store_shared(place, dy), store_shared(place + 2 * array_bytes, dy + 4);
            }
            if (next() || v + 1 == own_rows) {
                float sums[2] = {tree_sum(sum) * unit_inverse, tree_sum(product) * (rstd * unit_inverse)};
                warp_sum(sums, 32);
                if (lane == 0) row_sums[warp * vectors + v] = make_float2(sums[0], sums[1]);
                weighted[0] = fmaf(weight, sums[0], weighted[0]), weighted[1] = fmaf(weight, sums[1], weighted[1]);
#pragma unroll
                for (int k = 0; k < width; ++k) sum[k] = product[k] = 0;
                take_parameters(v + 1);
            }
        }
        copy_wait(0);
    }
    // Passes on the block's sums of each segment: to the first block of the cluster, or to the launch that adds them up.
    __device__ __forceinline__ void pass_segment_sums() const {
        const uint32_t end = min(first_row + ring.steps, rows), from = ring.by_chunks.quotient(first_row), to = ring.by_chunks.quotient(end - 1);
        for (uint32_t k = from + threadIdx.x; k <= to; k += blockDim.x) {
            cascade<float> dbias, dweight;
            for (uint32_t row = max(k * ring.chunks, first_row); row < min((k + 1) * ring.chunks, end); ++row) {
                dbias.add(row_sums[row - first_row].x);
                dweight.add(row_sums[row - first_row].y);
            }
            const float2 of_block = make_float2(dbias.total(), dweight.total());
            const uint64_t place = a.geometry.row_of(sample, channel + k) * ring.team_blocks + rank;
            if (!single.samples) *reinterpret_cast<float2 *>(a.segment_sums + place * 2) = of_block;
            else if (blocks == 1) segment_sums[k] = of_block;
            else store_remote(&segment_sums[block * ring.segments + k], 0, of_block);
        }
    }
    // Writes the gradients of the elements. take(place, dpre, d): computes them or takes them from shared memory.
    template <typename Take> __device__ __forceinline__ void write(float mean_g, float slope, T *dx, const Take &take) {
#pragma unroll batch
        for (uint32_t v = 0, place = own_place; v < own_rows; ++v, place += place_bytes) {
            if (is_mine()) {
                float dy[width], d[width];
                take(place, dy, d);
                make_dx(d, rstd * unit_inverse * weight, mean_g, slope, dy);
                if (a.o.dx) store<16, false>(dx, pack<T, 16>(dy));
            }
            dx += 32 * width;
            if (next()) {
                dx += jump_of(a.p.dx);
                take_parameters(v + 1);
            }
        }
    }
    // Called in the first block of a cluster of all samples: writes the gradients of the parameters.
    __device__ __forceinline__ void write_parameter_gradients() const {
        for (uint32_t k = threadIdx.x; k < ring.segments; k += blockDim.x) {
            const uint32_t low = k * ring.chunks / ring.steps, high = ((k + 1) * ring.chunks - 1) / ring.steps;
            cascade<float> dbias, dweight;
            for (uint32_t n = 0; n < single.samples; ++n)
                for (uint32_t from = low; from <= high; ++from) {
                    const float2 of_block = segment_sums[(n * ring.team_blocks + from) * ring.segments + k];
                    dbias.add(of_block.x);
                    dweight.add(of_block.y);
                }
            store_parameter<T>(a.o.dbias, a.weight_is_wide, channel + k, dbias.total());
            store_parameter<T>(a.o.dweight, a.weight_is_wide, channel + k, dweight.total());
        }
    }
};

// Every team takes one group. With `samples` the first block of a cluster receives all sums and writes the gradients of the parameters. apart: the
// first blocks of an SM start one after another.
template <typename T, activation_form form, bool apart>
__global__ void __launch_bounds__(form == any_activation ? single_general_threads : single_threads, 1)
    channel_norm_backward_single(const __grid_constant__ channel_backward_single_arguments single) {
    if (apart && !has_sm_90) return;
    using rows_type = single_rows<T, form>;
    __shared__ float2 warp_sums[merge_lanes];
    __shared__ cluster_exchange exchange;
    const channel_backward_walk_arguments &a = single.of;
    const uint32_t cluster = a.ring.team_blocks;
    rows_type own(single);
    if (own.blocks > 1) {
        exchange.initialize(threadIdx.x);
        cluster_arrive();
    }
    if (a.overlaps) follow_previous();
    if constexpr (apart) start_apart(single.stagger_cycles, single.multiprocessors, single.residents);
    own.find_segments();
    own.copy();
    own.load_parameters();

    // 1. The sums of each warp.
    float sums[2] = {};
    own.add(sums);
    if (own.lane == 0) warp_sums[own.warp] = make_float2(sums[0], sums[1]);
    __syncthreads();

    // 2. The sums of the block and of its cluster.
    own.find_segments();
    merge_warp_sums(warp_sums, blockDim.x / 32, merge_lanes, sums);
    if (own.blocks > 1) cluster_wait();
    if (cluster > 1 && own.warp == 0) exchange.send({sums[0], sums[1], 0, 0}, 0, own.rank, cluster, threadIdx.x, own.of_sample * cluster);
    if ((a.o.dweight || a.o.dbias) && own.first_row < own.rows) own.pass_segment_sums();
    if (single.samples && own.blocks > 1) cluster_arrive_release();
    if (cluster > 1) receive_cluster_sums(exchange, 0, cluster, sums);
    const float mean_g = own.rstd * sums[0] * a.reciprocal_count, slope = own.rstd * own.rstd * sums[1] * a.reciprocal_count;

    // 3. The gradients of the elements.
    constexpr int width = rows_type::width;
    T *const dx = static_cast<T *>(a.o.dx) + own.first_element(a.p.dx, own.start());
    own.take_parameters(0);
    if (own.keeps) own.write(mean_g, slope, dx, [&](uint32_t place, float(&dy)[width], float(&d)[width]) { own.take_dpre(place, dy, d); });
    else own.write(mean_g, slope, dx, [&](uint32_t place, float(&dy)[width], float(&d)[width]) { own.make_dpre(place, dy, d); });

    // 4. The gradients of the parameters.
    if (!single.samples || own.block > 0) return;
    if (own.blocks > 1) cluster_wait();
    else __syncthreads();
    own.write_parameter_gradients();
}

// Host: the form `single`.
template <typename T> bops_status channel_norm_backward_single_kernels(const backward_call<bops_channel_norm_backward_single_choice> &f) {
    const auto &c = f.c;
    channel_backward_single_arguments a = {};
    a.of = backward_walk_arguments<T>(f, {c.cluster_blocks, 0, c.threads});
    walk_geometry &ring = a.of.ring;
    ring.chunks = (ring.per_segment + 31) / 32, ring.by_chunks = divisor(ring.chunks), ring.multi = 1, ring.steps = c.threads / 32 * c.vectors;
    a.vectors = c.vectors, a.samples = c.merges_samples ? uint32_t(f.p.batch) : 0;
    a.keeps = c.keeps_dpre, a.stagger_cycles = c.stagger_cycles, a.multiprocessors = c.multiprocessors, a.residents = c.residents;
    const uint32_t blocks = c.cluster_blocks * (c.merges_samples ? a.samples : 1); // of the hardware cluster
    const uint32_t sums = ring.steps + (c.merges_samples ? blocks * ring.segments : 0);
    launch_shape shape = f.shape(c.threads, c.threads * c.vectors * (a.keeps ? 48 : 32) + sums * uint32_t(sizeof(float2)));
    shape.cluster = blocks;
    const auto run = [&](auto apart) {
        constexpr bool is_apart = decltype(apart)::value;
        return f.call.one_of(activation_form_of(f.p.activation),
                             specialised(channel_norm_backward_single<T, light_activation, is_apart>,
                                         channel_norm_backward_single<T, silu_activation, is_apart>,
                                         channel_norm_backward_single<T, any_activation, false>),
                             shape, a);
    };
    const bops_status status = c.stagger_cycles ? run(std::true_type()) : run(std::false_type());
    return status || c.merges_samples ? status : sum_parts<T>(a.of, c.cluster_blocks > 1 || c.overlaps, f.call);
}

} // namespace bops
