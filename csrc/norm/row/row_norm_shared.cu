// LayerNorm and RMSNorm forward: a row of 16-bit elements in the shared memory of a block or a cluster.
#include "row_norm.cuh"

namespace bops {

constexpr int shared_threads = 256; // of a block
constexpr int shared_blocks = 6;    // blocks of an SM for which the compiler limits registers: 40 a thread, with which it spills none

// A block takes few registers, so that several blocks share an SM and some load while others store. A thread reads only vectors that it copied
// itself. The moments of a warp's part of the row are about the mean of its first vectors, a quarter of the part or more.
template <typename T, typename P, bool centered, bool clustered> __global__ void __launch_bounds__(shared_threads, shared_blocks)
    row_norm_shared(const __grid_constant__ row_norm_arguments<float> a) {
    if (clustered && !has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T)), batch = 4; // batch: vectors of a thread that are loaded from shared memory together
    __shared__ float4 warp_moments[shared_threads / 32];  // shift, sum, square, and elements
    __shared__ cluster_exchange exchange;
    wait_for_dependency();
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t rank = clustered ? cluster_rank() : 0, all = uint32_t(a.p.cols) / width, first = rank * a.slice_vectors;
    const uint32_t count = clustered ? slice_count(all, first, a.slice_vectors) : all;
    const uint32_t row = clustered ? blockIdx.x / a.cluster : blockIdx.x;
    uint4 *const data = reinterpret_cast<uint4 *>(dynamic_shared);
    if constexpr (clustered) {
        exchange.initialize<!centered>(threadIdx.x);
        cluster_arrive();
    }

    // 1. Copy the row to shared memory, and sum the moments of each warp's part.
    const uint64_t begin = uint64_t(first) * width;
    const T *const x = row_of<const T>(a, a.o.x, row, a.p.x) + begin;
    const T *const residual = row_of<const T>(a, a.o.residual, row, a.p.residual) + begin;
    T *const h = row_of<T>(a, a.o.h, row, a.p.h) + begin;
    int pending = 0; // groups of copies in flight
    for (uint32_t base = 0; base < count; base += batch * shared_threads, ++pending) {
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            const uint32_t k = base + j * shared_threads + threadIdx.x;
            if (k < count) copy_async<16>(data + k, x + k * width);
        }
        copy_commit();
    }
    const int quarter = int((count + batch * shared_threads - 1) / (batch * shared_threads)); // of a thread's vectors, rounded up
    float shift = 0, sum[4] = {}, square[4] = {}, elements = 0;
    for (uint32_t base = 0; base < count; base += batch * shared_threads) {
        copy_wait_groups(--pending);
        packed<16> part[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            const uint32_t k = base + j * shared_threads + threadIdx.x;
            if (k < count) {
                part[j] = shared_vector(k);
                if (a.o.residual) {
                    part[j] = add_residual<T>(part[j], bops::load<16>(residual + k * width), h + k * width);
                    data[k] = make_uint4(part[j].word[0], part[j].word[1], part[j].word[2], part[j].word[3]);
                }
            }
        }
        if (centered && base == 0) {
            float first[width] = {}, elements = 0;
#pragma unroll
            for (int j = 0; j < batch; ++j)
                if (j < quarter && j * shared_threads + threadIdx.x < count) {
                    float values[width];
                    unpack<T>(part[j], values);
#pragma unroll
                    for (int v = 0; v < width; ++v) first[v] += values[v];
                    elements += width;
                }
            float mean[2] = {tree_sum(first), elements};
            warp_sum(mean, 32);
            shift = mean[1] > 0 ? mean[0] / mean[1] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < batch; ++j)
            if (base + j * shared_threads + threadIdx.x < count) {
                float values[width];
                unpack<T>(part[j], values);
                if constexpr (centered) {
                    add_moments(values, shift, sum, square);
                } else {
#pragma unroll
                    for (int v = 0; v < width; ++v) square[v % 4] = fmaf(values[v], values[v], square[v % 4]);
                }
                elements += width;
            }
    }
    float sums[3] = {tree_sum(sum), tree_sum(square), elements};
    warp_sum(sums, 32);
    if (lane == 0) warp_moments[warp] = make_float4(shift, sums[0], sums[1], sums[2]);
    if constexpr (clustered) cluster_wait();
    __syncthreads();

    // 2. Merge the moments of the warps, and exchange them in the cluster.
    const float4 of_warp = lane < shared_threads / 32 ? warp_moments[lane] : make_float4(0, 0, 0, 0);
    moments<float> total = merge_across<centered>({of_warp.x, of_warp.y, of_warp.z}, of_warp.w,
                                                  !clustered ? a.reciprocal_cols
                                                  : count    ? 1.0f / (float(count) * width)
                                                             : 0.0f);
    if constexpr (clustered) {
        exchange.send({total.shift, total.sum, total.square, 0}, 0, rank, a.cluster, threadIdx.x);
        total = merge_blocks<centered>(exchange.wait(0), all, width, a);
    }

    if constexpr (centered) total.sum += total.sum - total.sum; // an infinity makes it NaN, as it does where the shift is the mean

    // 3. Write statistics and output.
    const row_statistics<float> s = finish_statistics<centered>(total, a);
    if (threadIdx.x == 0 && rank == 0) save_statistics<centered>(s, a, row);
    T *const y = row_of<T>(a, a.o.y, row, a.p.y) + begin;
    const P *const weight = static_cast<const P *>(a.o.weight), *const bias = static_cast<const P *>(a.o.bias);
#pragma unroll(sizeof(P) == sizeof(T) ? 2 : 1)
    for (uint32_t i = threadIdx.x; i < count; i += shared_threads) {
        parameter_vector<P, width> w, b;
        load_affine<centered>(weight, bias, (first + i) * width, true, w, b);
        float values[width];
        unpack<T>(shared_vector(i), values);
        if constexpr (centered)
#pragma unroll
            for (int j = 0; j < width; ++j) values[j] -= s.shift;
        normalize<T, P, centered, width>(values, s, w, b, a.weight_offset);
        store(y + i * width, pack<T, 16>(values));
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action> bops_status for_row_norm_shared(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                           const bops_row_norm_shared_choice &c, const bops_row_norm_operands &o, void *,
                                                           const Action &action) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        using T = typename decltype(element)::type;
        constexpr bool centered = is_centered;
        if constexpr (sizeof(T) != 2) return bops_status(cudaErrorInvalidValue);
        else
            return for_parameters<T>(of, [&](auto parameter) {
                using P = typename decltype(parameter)::type;
                auto a = row_norm_arguments_of<float>(p, o);
                a.cluster = c.cluster, a.overlaps = c.overlaps, a.slice_vectors = slice_vectors_of<T>(p.cols, c.cluster);
                launch_shape shape;
                shape.grid = dim3(c.grid), shape.block = dim3(shared_threads), shape.cluster = c.cluster;
                shape.shared_bytes = a.slice_vectors * 16, shape.overlaps_previous = c.overlaps;
                return for_flag(c.cluster > 1, [&](auto clustered) { return action(row_norm_shared<T, P, centered, clustered>, shape, a); });
            });
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(shared, )
