// conv_depthwise, the gradient of the weight: sums over the strips of each block, which gemm_dbias adds up.
#include "depthwise.cuh"

namespace bops {
namespace conv {
namespace {

// Adds up what the threads of a block have for each channel, and leaves it in the block's row of the sums.
template <int channels, int kernel> __device__ __forceinline__ void leave_sums(const bops_conv_depthwise_params &params,
                                                                               const bops_conv_depthwise_choice &choice, const team &threads,
                                                                               float (&sums)[kernel][kernel][channels], float *parts) {
    constexpr int warps = depthwise_threads / 32, most = 32 * channels;
    __shared__ float scratch[warps][most];
    const uint32_t count = choice.lanes * channels, first = threads.tile * count;
    float *const to = parts + threads.group * params.channels * params.kernel[0] * params.kernel[1];
#pragma unroll
    for (int r = 0; r < kernel; ++r)
#pragma unroll
        for (int t = 0; t < kernel; ++t) {
            if (uint32_t(r) >= params.kernel[0] || uint32_t(t) >= params.kernel[1]) continue;
            __syncthreads();
#pragma unroll
            for (int c = 0; c < channels; ++c) {
                float value = sums[r][t][c];
                for (uint32_t step = 16; step >= choice.lanes; step /= 2) value += __shfl_xor_sync(~0u, value, step);
                if (threadIdx.x % 32 < choice.lanes) scratch[threadIdx.x / 32][threads.lane * channels + c] = value;
            }
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < count && first + i < params.channels; i += depthwise_threads) {
                float value = scratch[0][i];
#pragma unroll
                for (int w = 1; w < warps; ++w) value += scratch[w][i];
                to[((first + i) * params.kernel[0] + r) * params.kernel[1] + t] = value;
            }
        }
}

// Windows slide down strips: each row of x is read once, and meets the rows of dy whose windows see it.
template <typename T, int channels, int kernel> __global__ void __launch_bounds__(depthwise_threads)
    walk_weight(const __grid_constant__ bops_conv_depthwise_params params, const bops_conv_depthwise_choice choice,
                const bops_conv_depthwise_operands operands) {
    constexpr int strip = strip_of<channels, kernel>;
    using row = typename row_walk<T, channels, kernel>::row;
    using dy_row = neighbours<T, channels, strip, 0>;
    allow_dependents();
    const team threads(params, choice);
    const uint32_t channel = threads.channel(choice);
    const uint64_t strips = channel < params.channels ? strips_of(params, choice) : 0, turn = uint64_t(choice.parts) * threads.workers;
    float sums[kernel][kernel][channels] = {};
#pragma unroll 1
    for (uint64_t index = threads.group * threads.workers + threads.worker; index < strips; index += turn) {
        const strip_place at = place_of_strip<strip>(params, choice.rows, uint32_t(index), channel);
        row_walk<T, channels, kernel> rows(params, choice, static_cast<const T *>(operands.gathered), at);
        const T *of_dy = static_cast<const T *>(operands.plain) + (at.sample * params.out.sample + at.channel * params.out.channel +
                                                                   at.row * params.out.axes[0] + at.column * params.out.axes[1]);
        const uint32_t there = (1u << at.columns) - 1;
        const int steps = int(at.rows) + kernel - 1;
        row held;
        dy_row dy_held;
        const auto fetch = [&](int step) {
            rows.fetch(params, held, step < steps);
            dy_held.load_from(of_dy, params.out.axes[1], step < int(at.rows) ? there : 0u, choice.out_whole != 0);
            of_dy += params.out.axes[0];
        };
        fetch(0);
        float dy[kernel][strip][channels] = {}; // [r]: the row that r of the kernel brings to the current one of x
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            float x[strip + kernel - 1][channels];
            held.get(x);
#pragma unroll
            for (int r = kernel - 1; r > 0; --r)
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) dy[r][q][c] = dy[r - 1][q][c];
            dy_held.get(dy[0]);
            fetch(step + 1);
            // What is beside dy has no terms: not even NaN, which zero times an infinite x is.
            if (at.columns == strip && step >= kernel - 1 && step < int(at.rows)) {
#pragma unroll
                for (int r = 0; r < kernel; ++r)
#pragma unroll
                    for (int t = 0; t < kernel; ++t)
#pragma unroll
                        for (int q = 0; q < strip; ++q)
#pragma unroll
                            for (int c = 0; c < channels; ++c) sums[r][t][c] = fmaf(dy[r][q][c], x[q + t][c], sums[r][t][c]);
            } else {
#pragma unroll
                for (int r = 0; r < kernel; ++r) {
                    if (uint32_t(step - r) >= at.rows) continue;
#pragma unroll
                    for (int q = 0; q < strip; ++q) {
                        if (q >= int(at.columns)) continue;
#pragma unroll
                        for (int t = 0; t < kernel; ++t)
#pragma unroll
                            for (int c = 0; c < channels; ++c) sums[r][t][c] = fmaf(dy[r][q][c], x[q + t][c], sums[r][t][c]);
                    }
                }
            }
        }
    }
    leave_sums(params, choice, threads, sums, static_cast<float *>(operands.out));
}

template <typename Action> bops_status with_weight(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice,
                                                   bops_dtype dtype, const bops_conv_depthwise_operands &operands, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
        else {
            launch_shape shape;
            shape.grid = dim3(choice.parts * shares(params.channels, choice.channels * choice.lanes)), shape.block = dim3(depthwise_threads);
            switch (choice.kernel) {
            case 3:
                return choice.channels == 4 ? action(walk_weight<T, 4, 3>, shape, params, choice, operands)
                                            : action(walk_weight<T, 1, 3>, shape, params, choice, operands);
            case 5: return action(walk_weight<T, 1, 5>, shape, params, choice, operands);
            default: return bops_status(cudaErrorInvalidValue);
            }
        }
    });
}

} // namespace
} // namespace conv
} // namespace bops

bops_status bops_conv_depthwise_weight_prepare(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype) {
    return bops::conv::with_weight(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_conv_depthwise_weight_launch(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype,
                                              const bops_conv_depthwise_operands *operands, bops_stream stream) {
    return bops::conv::with_weight(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
