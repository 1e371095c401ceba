// conv_depthwise: every channel by itself, forward and the gradient of the data.
#include "depthwise.cuh"

namespace bops {
namespace conv {
namespace {

// What is done with `columns` sums of a thread's channels in a row, and where they go.
template <typename T, int channels, int columns> struct leave {
    uint64_t out, other; // the first
    float bias[channels];
    int count;     // of columns
    bool is_light; // all columns are there, in whole accesses; nothing but a bias and a ReLU is wanted

    __device__ __forceinline__ leave(const bops_conv_depthwise_params &params, const bops_conv_depthwise_operands &operands, const strip_place &at,
                                     bool whole) {
        const auto place = [&](const bops_conv_strides &strides) {
            return at.sample * strides.sample + at.channel * strides.channel + at.row * strides.axes[0] + at.column * strides.axes[1];
        };
        out = place(params.out), other = place(params.other), count = int(at.columns);
        is_light = count == columns && (channels > 1 || whole) && params.beta == 0 && operands.other == nullptr &&
                   (params.activation == BOPS_IDENTITY || params.activation == BOPS_RELU) && (sizeof(T) == 4 || params.out_dtype != BOPS_F32);
#pragma unroll
        for (int c = 0; c < channels; ++c) {
            float four[4] = {0.0f};
            if (operands.bias != nullptr)
                gemm::load_four<T>(operands.bias, params.bias_dtype, (at.channel + c) * params.bias_stride, 0, 1, false, four);
            bias[c] = four[0];
        }
    }
    __device__ __forceinline__ void operator()(const bops_conv_depthwise_params &params, const bops_conv_depthwise_operands &operands, bool whole,
                                               const float (&sums)[columns][channels]) {
        // Four neighbours: channels of a column, or columns of the channel.
        constexpr int fours = channels > 1 ? columns : (columns + 3) / 4;
        if (channels * columns % 4 == 0 && is_light) {
            T *to = static_cast<T *>(operands.out) + out;
#pragma unroll
            for (int i = 0; i < fours; ++i) {
                float four[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    four[e] = channels > 1 ? sums[i][e % channels] + bias[e % channels] : sums[(4 * i + e) % columns][0] + bias[0];
                    if (params.activation == BOPS_RELU) four[e] = four[e] <= 0.0f ? 0.0f : four[e];
                }
                store<4 * int(sizeof(T))>(to, pack<T, 4 * int(sizeof(T))>(four));
                to += channels > 1 ? params.out.axes[1] : 4;
            }
            out += params.out.axes[0], other += params.other.axes[0];
            return;
        }
#pragma unroll
        for (int i = 0; i < fours; ++i) {
            float four[4];
            const int there = channels > 1 ? (i < count ? 4 : 0) : min(4, count - 4 * i);
            const uint64_t step = channels > 1 ? 1 : params.out.axes[1], other_step = channels > 1 ? 1 : params.other.axes[1];
            const uint64_t at = out + (channels > 1 ? i : 4 * i) * params.out.axes[1];
            const bool vector = channels > 1 || whole;
            if (there <= 0) continue;
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if constexpr (channels > 1) four[e] = sums[i][e] + bias[e];
                else four[e] = 4 * i + e < columns ? sums[4 * i + e][0] + bias[0] : 0.0f;
            }
            if (params.beta != 0) {
                float before[4];
                gemm::load_four<T>(operands.out, params.out_dtype, at, step, there, vector, before);
#pragma unroll
                for (int e = 0; e < 4; ++e) four[e] = fmaf(float(params.beta), before[e], four[e]);
            }
            if (operands.other != nullptr)
                gemm::store_four<T>(operands.other, params.other_dtype, other + (channels > 1 ? i : 4 * i) * params.other.axes[1], other_step, there,
                                    vector, four);
            activate(params.activation, four);
            gemm::store_four<T>(operands.out, params.out_dtype, at, step, there, vector, four);
        }
        out += params.out.axes[0], other += params.other.axes[0];
    }
};

// The strip of this thread.
template <int columns>
__device__ __forceinline__ bool place_of_thread(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice, strip_place &at) {
    const team threads(params, choice);
    const uint64_t index = threads.group * threads.workers + threads.worker;
    const uint32_t channel = threads.channel(choice);
    at = place_of_strip<columns>(params, choice.rows, uint32_t(index), channel);
    return channel < params.channels && index < strips_of(params, choice);
}

// A strip of outputs whose windows slide down: each row of the gathered factor is read once, and each element adds to the outputs of all windows that
// see it.
template <typename T, int channels, int kernel> __global__ void __launch_bounds__(depthwise_threads)
    walk(const __grid_constant__ bops_conv_depthwise_params params, const bops_conv_depthwise_choice choice,
         const bops_conv_depthwise_operands operands) {
    constexpr int strip = strip_of<channels, kernel>, most = 32 * channels; // channels of a block
    __shared__ __align__(16) float weight[kernel * kernel][most];
    strip_place at;
    const bool is_there = place_of_thread<strip>(params, choice, at);
    const int steps = is_there ? int(at.rows) + kernel - 1 : 0;
    // 1. The first rows are on their way while the weight comes.
    row_walk<T, channels, kernel> rows(params, choice, static_cast<const T *>(operands.gathered), at);
    typename row_walk<T, channels, kernel>::row held;
    rows.fetch(params, held, 0 < steps);
    const team threads(params, choice);
    const uint32_t first = threads.tile * choice.lanes * channels, of_block = min(choice.lanes * channels, params.channels - first);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < of_block * (kernel * kernel); i += depthwise_threads) {
        const uint32_t channel = i / (kernel * kernel), tap = i - channel * (kernel * kernel), r = tap / kernel, t = tap - r * kernel;
        const T *const from = static_cast<const T *>(operands.plain) + (first + channel) * params.weight_channel + params.weight_first;
        weight[tap][channel] = widen<T>(from[r * params.weight_axes[0] + t * params.weight_axes[1]]);
    }
    __syncthreads();
    if (!is_there) return;
    const auto weight_of = [&](int r, int t, float(&to)[channels]) {
#pragma unroll
        for (int c = 0; c < channels; c += 4) {
            const float *const from = &weight[r * kernel + t][threads.lane * channels + c];
            if constexpr (channels == 1) to[0] = *from;
            else {
                const float4 four = *reinterpret_cast<const float4 *>(from);
                to[c] = four.x, to[c + 1] = four.y, to[c + 2] = four.z, to[c + 3] = four.w;
            }
        }
    };
    // Registers hold the weight of one channel.
    float kept[channels == 1 ? kernel : 1][channels == 1 ? kernel : 1][1];
    if constexpr (channels == 1) {
#pragma unroll
        for (int r = 0; r < kernel; ++r)
#pragma unroll
            for (int t = 0; t < kernel; ++t) weight_of(r, t, kept[r][t]);
    }
    leave<T, channels, strip> leave_row(params, operands, at, choice.out_whole != 0);
    // 2. A row of the gathered factor at a time. sums[i]: of the output i rows below the one that it is the last row of.
    float sums[kernel][strip][channels] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        float x[strip + kernel - 1][channels];
        held.get(x);
        rows.fetch(params, held, step + 1 < steps);
#pragma unroll
        for (int r = 0; r < kernel; ++r)
#pragma unroll
            for (int t = 0; t < kernel; ++t) {
                float w[channels];
                if constexpr (channels == 1) w[0] = kept[r][t][0];
                else weight_of(r, t, w);
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) sums[kernel - 1 - r][q][c] = fmaf(w[c], x[q + t][c], sums[kernel - 1 - r][q][c]);
            }
        if (step >= kernel - 1) leave_row(params, operands, choice.out_whole != 0, sums[0]);
#pragma unroll
        for (int i = 0; i < kernel; ++i)
#pragma unroll
            for (int q = 0; q < strip; ++q)
#pragma unroll
                for (int c = 0; c < channels; ++c) sums[i][q][c] = i + 1 < kernel ? sums[i + 1 < kernel ? i + 1 : 0][q][c] : 0.0f;
    }
}

template <typename Action> bops_status with_kernel(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice,
                                                   bops_dtype dtype, const bops_conv_depthwise_operands &operands, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
        else {
            const uint32_t workers = depthwise_threads / choice.lanes;
            launch_shape shape;
            shape.grid =
                dim3(uint32_t((strips_of(params, choice) + workers - 1) / workers * shares(params.channels, choice.channels * choice.lanes)));
            shape.block = dim3(depthwise_threads);
            const bool four = choice.channels == 4;
            switch (choice.kernel) {
            case 3: return four ? action(walk<T, 4, 3>, shape, params, choice, operands) : action(walk<T, 1, 3>, shape, params, choice, operands);
            case 5: return four ? action(walk<T, 4, 5>, shape, params, choice, operands) : action(walk<T, 1, 5>, shape, params, choice, operands);
            case 7: return four ? action(walk<T, 4, 7>, shape, params, choice, operands) : action(walk<T, 1, 7>, shape, params, choice, operands);
            default: return bops_status(cudaErrorInvalidValue);
            }
        }
    });
}

} // namespace
} // namespace conv
} // namespace bops

bops_status bops_conv_depthwise_prepare(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype) {
    return bops::conv::with_kernel(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_conv_depthwise_launch(const bops_conv_depthwise_params *params, const bops_conv_depthwise_choice *choice, bops_dtype dtype,
                                       const bops_conv_depthwise_operands *operands, bops_stream stream) {
    return bops::conv::with_kernel(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
