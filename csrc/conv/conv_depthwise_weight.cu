// conv_depthwise_weight: the gradient of the weight of depthwise convolutions. Each block sums over its strips, and gemm_dbias adds up the blocks' sums.
#include "depthwise.cuh"

namespace bops {
namespace conv {
namespace {

// Adds up the sums of a block's threads for each channel, and stores them in the block's row of `parts`. scratch: room for the sums of every warp.
template <int channels, int kernel>
__device__ __forceinline__ void leave_sums(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice, const team &threads,
                                           float (&sums)[kernel][kernel][channels], float *scratch, float *parts) {
    constexpr int warps = depthwise_threads / 32, taps = kernel * kernel;
    const uint32_t count = choice.lanes * channels * taps, first = threads.tile * count, left = params.channels * taps - first;
#pragma unroll
    for (int r = 0; r < kernel; ++r)
#pragma unroll
        for (int t = 0; t < kernel; ++t)
#pragma unroll
            for (int c = 0; c < channels; ++c) {
                float value = sums[r][t][c];
                for (uint32_t step = 16; step >= choice.lanes; step /= 2) value += __shfl_xor_sync(~0u, value, step);
                if (threadIdx.x % 32 < choice.lanes)
                    scratch[threadIdx.x / 32 * count + (threads.lane * channels + c) * taps + r * kernel + t] = value;
            }
    __syncthreads();
    float *const to = parts + uint64_t(threads.group) * params.channels * taps + first;
    for (uint32_t i = threadIdx.x; i < min(count, left); i += depthwise_threads) {
        float value = scratch[i];
#pragma unroll
        for (int w = 1; w < warps; ++w) value += scratch[w * count + i];
        to[i] = value;
    }
}

// Windows slide down strips. Each row of x is loaded once and multiplied with the rows of dy whose windows see it. If a thread has four channels,
// three blocks per SM, for which the host divides the rows, leave it 168 registers.
template <typename T, int channels, int kernel> __global__ void __launch_bounds__(depthwise_threads, channels > 1 ? 3 : 1)
    walk_weight(const __grid_constant__ bops_conv_depthwise_params params, const bops_conv_depthwise_choice choice,
                const bops_conv_depthwise_operands operands) {
    using rows_of = row_walk<T, channels, kernel>;
    using slot = typename rows_of::slot;
    // phases: as in conv_depthwise, for the rows of dy in registers.
    constexpr int strip = strip_of<T, channels, kernel>, slots = row_slots<T>, phases = kernel == 3 ? kernel : 1;
    using dy_slot = row_slot<T, channels, strip, 0>;
    constexpr int bytes = slot::bytes + dy_slot::bytes;
    static_assert(slots * bytes >= depthwise_threads * channels * kernel * kernel * int(sizeof(float)), "room for the sums of all warps");
    extern __shared__ __align__(16) char ring[];
    allow_dependents();
    const team threads(params, choice);
    part_of_strip fetched, part;
    const strip_place at = threads.strip<strip>(params, choice, fetched);
    const uint32_t columns = min(uint32_t(strip), params.out_extents[1] - at.column);
    // 1. Copies of the first rows.
    rows_of rows(params, operands.gathered, at);
    const T *of_dy = static_cast<const T *>(operands.plain) + at.element_of(params.out);
    fetched.start(params.out_extents[0] - at.row, kernel), part = fetched;
    const auto fetch = [&](char *to) {
        if (fetched.seen > 0) {
            rows.fetch(params, choice, to);
            if (fetched.seen >= kernel) {
                dy_slot::fetch(to + slot::bytes, of_dy, params.out.axes[1], (1u << columns) - 1, choice.out_run);
                of_dy += params.out.axes[0];
            }
            if (--fetched.seen == 0) {
                fetched.start(params.out_extents[0], kernel), rows.advance(params);
                of_dy += to_next_sample(params.out, params.out_extents[0]);
            }
        }
        copy_commit();
    };
#pragma unroll
    for (int i = 0; i < slots - 1; ++i) fetch(ring + i * bytes);
    // 2. One row of x at a time, with as many rows of dy as the kernel has.
    float sums[kernel][kernel][channels] = {}, dy[kernel][strip][channels] = {};
    char *used = ring, *filled = ring + (slots - 1) * bytes;
    const auto is_left = [&] { return part.seen > 0; };
    const auto add_row = [&](auto phase) {
        copy_wait_groups(slots - 2);
        const auto above = [&](int r) { return phases == 1 ? r : (int(decltype(phase)::value) - r + kernel) % kernel; };
        float x[strip + kernel - 1][channels];
        if constexpr (phases == 1) {
#pragma unroll
            for (int r = kernel - 1; r > 0; --r)
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) dy[r][q][c] = dy[r - 1][q][c];
        }
        slot::get(used, x);
        dy_slot::get(used + slot::bytes, dy[above(0)]);
        // Keeps them unpacked, for all rows of x that they are multiplied with.
        if constexpr (sizeof(T) == 2)
#pragma unroll
            for (int q = 0; q < strip; ++q)
#pragma unroll
                for (int c = 0; c < channels; ++c) asm volatile("" : "+f"(dy[above(0)][q][c]));
        fetch(filled);
        used = used == ring + (slots - 1) * bytes ? ring : used + bytes;
        filled = filled == ring + (slots - 1) * bytes ? ring : filled + bytes;
        // Rows and columns outside dy are left out, not taken as 0: 0 times an infinite x would be NaN.
        if (columns == strip && part.seen >= kernel && part.seen <= part.rows) {
#pragma unroll
            for (int r = 0; r < kernel; ++r)
#pragma unroll
                for (int t = 0; t < kernel; ++t)
#pragma unroll
                    for (int q = 0; q < strip; ++q)
#pragma unroll
                        for (int c = 0; c < channels; ++c) sums[r][t][c] = fmaf(dy[above(r)][q][c], x[q + t][c], sums[r][t][c]);
        } else {
#pragma unroll
            for (int r = 0; r < kernel; ++r) {
                if (part.rows + (kernel - 1) - part.seen - r >= part.rows) continue;
#pragma unroll
                for (int q = 0; q < strip; ++q) {
                    if (q >= int(columns)) continue;
#pragma unroll
                    for (int t = 0; t < kernel; ++t)
#pragma unroll
                        for (int c = 0; c < channels; ++c) sums[r][t][c] = fmaf(dy[above(r)][q][c], x[q + t][c], sums[r][t][c]);
                }
            }
        }
        if (--part.seen == 0) part.start(params.out_extents[0], kernel);
    };
#pragma unroll 1
    while (is_left()) take_in_turn<phases>(is_left, add_row);
    __syncthreads();
    leave_sums(params, choice, threads, sums, reinterpret_cast<float *>(ring), static_cast<float *>(operands.out));
}

template <typename Action> bops_status with_weight(bops_dtype dtype, const bops_conv_depthwise_params &params,
                                                   const bops_conv_depthwise_choice &choice, const bops_conv_depthwise_operands &operands, void *,
                                                   const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(depthwise_threads);
        const auto of_form = [&](auto channels, auto kernel) {
            constexpr int c = decltype(channels)::value, k = decltype(kernel)::value;
            shape.shared_bytes = row_slots<T> * (row_walk<T, c, k>::slot::bytes + row_slot<T, c, strip_of<T, c, k>, 0>::bytes);
            return action(walk_weight<T, c, k>, shape, params, choice, operands);
        };
        if (choice.channels == 4) return for_value<3>(choice.kernel, [&](auto kernel) { return of_form(std::integral_constant<int, 4>{}, kernel); });
        return for_value<3, 5>(choice.kernel, [&](auto kernel) { return of_form(std::integral_constant<int, 1>{}, kernel); });
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_depthwise_weight, bops_dtype, bops_conv_depthwise_params, bops_conv_depthwise_choice, bops_conv_depthwise_operands,
                 bops::conv::with_weight)
