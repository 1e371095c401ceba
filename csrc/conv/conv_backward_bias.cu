// conv_backward_bias: the gradient of the bias by sums along runs of contiguous elements; and conv_column_sums: by sums down columns of contiguous channels.
#include "conv.cuh"

namespace bops {
namespace conv {
namespace {

constexpr int sums_threads = BOPS_CONV_SUMS_THREADS; // of a block
constexpr int sums_loads = BOPS_CONV_SUMS_LOADS;     // accesses of a thread in a part of a channel

// The sum of some values, pair by pair.
template <int count, typename A> __device__ __forceinline__ A paired(A (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] += v[i + half];
    return v[0];
}

// Writes dbias of channel c.
template <typename A> __device__ __forceinline__ void leave(const bops_conv_backward_bias_params &params, void *dbias, uint64_t c, A total) {
    const auto as = [&](auto tag) {
        using T = typename decltype(tag)::type;
        T *const to = static_cast<T *>(dbias) + c * params.dbias_stride;
        if (params.beta != 0) total = fma(A(params.beta), A(widen<T>(*to)), total);
        *to = narrow<T>(accumulator_t<T>(total));
    };
    switch (params.dbias_dtype) {
    case BOPS_F64: as(type_tag<double>{}); break;
    case BOPS_F32: as(type_tag<float>{}); break;
    case BOPS_F16: as(type_tag<__half>{}); break;
    default: as(type_tag<__nv_bfloat16>{});
    }
}

template <typename T, int vector> __global__ void __launch_bounds__(sums_threads)
    sums_of_runs(const bops_conv_backward_bias_params params, const T *dy, void *out) {
    using A = accumulator_t<T>;
    constexpr int batch = 8, warps = sums_threads / 32;
    allow_dependents();
    __shared__ A scratch[warps];
    const uint64_t c = blockIdx.x % params.channels, part = blockIdx.x / params.channels;
    const uint64_t accesses = params.runs * (params.run / vector), of_run = params.run / vector;
    const T *const from = dy + c * params.channel_stride;
    // 1. The thread's accesses, `batch` of which are in flight at once.
    A total = A(0);
#pragma unroll 1
    for (int first = 0; first < sums_loads; first += batch) {
        packed<int(sizeof(T)) * vector> held[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            const uint64_t index = (part * sums_loads + first + i) * sums_threads + threadIdx.x;
#pragma unroll
            for (int w = 0; w < int(sizeof(held[i].word) / sizeof(held[i].word[0])); ++w) held[i].word[w] = 0;
            if (index < accesses) {
                const bool is_short = accesses >> 32 == 0;
                const uint64_t run = is_short ? uint32_t(index) / uint32_t(of_run) : index / of_run;
                held[i] = load<int(sizeof(T)) * vector>(from + run * params.run_stride + (index - run * of_run) * vector);
            }
        }
        A sums[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            A v[vector];
            unpack<T>(held[i], v);
            sums[i] = paired(v);
        }
        total += paired(sums);
    }
    // 2. The sums of the threads, pair by pair.
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        A v[warps];
#pragma unroll
        for (int i = 0; i < warps; ++i) v[i] = scratch[i];
        total = paired(v);
        if (gridDim.x > params.channels) static_cast<A *>(out)[part * params.channels + c] = total;
        else leave(params, out, c, total);
    }
}

template <typename T> __global__ void __launch_bounds__(sums_threads)
    sums_of_columns(const bops_conv_column_sums_params params, const T *dy, accumulator_t<T> *parts) {
    using A = accumulator_t<T>;
    constexpr int each = 16 / int(sizeof(T)), batch = 8, warps = sums_threads / 32; // batch: rows of a thread that are in flight at once
    __shared__ A scratch[warps][32 * each];
    allow_dependents();
    const uint32_t lane = threadIdx.x % params.lanes, workers = sums_threads / params.lanes, of_tile = params.lanes * each;
    const uint64_t tiles = (params.channels + of_tile - 1) / of_tile, part = blockIdx.x / tiles, first = (blockIdx.x - part * tiles) * of_tile;
    const uint64_t turn = uint64_t(params.parts) * workers, channel = first + lane * each;
    const uint64_t rows = channel < params.channels ? params.rows : 0;
    // 1. The thread's rows, which are equally spaced; `batch` of them are in flight at once.
    A total[each];
#pragma unroll
    for (int e = 0; e < each; ++e) total[e] = A(0);
    const T *from = dy + channel;
#pragma unroll 1
    for (uint64_t row = part * workers + threadIdx.x / params.lanes; row < rows; row += batch * turn) {
        packed<16> held[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            held[i] = {};
            if (row + i * turn < rows) held[i] = load<16>(from + (row + i * turn) * params.row_stride);
        }
        A sums[batch][each];
#pragma unroll
        for (int i = 0; i < batch; ++i) unpack<T>(held[i], sums[i]);
#pragma unroll
        for (int e = 0; e < each; ++e) {
            A v[batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) v[i] = sums[i][e];
            total[e] += paired(v);
        }
    }
    // 2. The sums of the threads that have the same channels.
#pragma unroll
    for (int e = 0; e < each; ++e) {
        for (uint32_t step = 16; step >= params.lanes; step /= 2) total[e] += __shfl_xor_sync(~0u, total[e], step);
        if (threadIdx.x % 32 < params.lanes) scratch[threadIdx.x / 32][lane * each + e] = total[e];
    }
    __syncthreads();
    if (threadIdx.x < of_tile && first + threadIdx.x < params.channels) {
        A v[warps];
#pragma unroll
        for (int i = 0; i < warps; ++i) v[i] = scratch[i][threadIdx.x];
        parts[part * params.channels + first + threadIdx.x] = paired(v);
    }
}

template <typename Action>
bops_status with_columns(const bops_conv_column_sums_params &params, bops_dtype dtype, const void *dy, void *parts, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const uint64_t of_tile = params.lanes * (16 / sizeof(T));
        launch_shape shape;
        shape.grid = dim3(uint32_t(params.parts * ((params.channels + of_tile - 1) / of_tile))), shape.block = dim3(sums_threads);
        return action(sums_of_columns<T>, shape, params, static_cast<const T *>(dy), static_cast<accumulator_t<T> *>(parts));
    });
}

template <typename Action>
bops_status with_kernel(const bops_conv_backward_bias_params &params, bops_dtype dtype, const void *dy, void *parts, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto *const from = static_cast<const T *>(dy);
        const uint64_t of_part = uint64_t(sums_threads) * sums_loads * params.vector;
        launch_shape shape;
        shape.grid = dim3(uint32_t((params.runs * params.run + of_part - 1) / of_part * params.channels)), shape.block = dim3(sums_threads);
        constexpr int most = 16 / int(sizeof(T));
        return for_value < most, most / 2, most == 8 ? 2 : 1,
               1 > (params.vector, [&](auto vector) { return action(sums_of_runs<T, decltype(vector)::value>, shape, params, from, parts); });
    });
}

} // namespace
} // namespace conv
} // namespace bops

bops_status bops_conv_backward_bias_prepare(const bops_conv_backward_bias_params *params, bops_dtype dtype) {
    return bops::conv::with_kernel(*params, dtype, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_conv_backward_bias_launch(const bops_conv_backward_bias_params *params, bops_dtype dtype, const void *dy, void *parts,
                                           bops_stream stream) {
    return bops::conv::with_kernel(*params, dtype, dy, parts, bops::launch_action{stream});
}

bops_status bops_conv_column_sums_prepare(const bops_conv_column_sums_params *params, bops_dtype dtype) {
    return bops::conv::with_columns(*params, dtype, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_conv_column_sums_launch(const bops_conv_column_sums_params *params, bops_dtype dtype, const void *dy, void *parts,
                                         bops_stream stream) {
    return bops::conv::with_columns(*params, dtype, dy, parts, bops::launch_action{stream});
}
