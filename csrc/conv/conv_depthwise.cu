// conv_depthwise: depthwise convolutions, forward and the gradient of the data.
#include "depthwise.cuh"

namespace bops {
namespace conv {
namespace {

// The epilogue of a thread's rows, and their places in the output. light: as in bops_conv_depthwise_choice.
template <typename T, int channels, int columns, bool light> struct row_writer {
    T *next;             // light: address of the next row
    uint64_t out, other; // not light: offsets of the next row
    int count;           // columns that exist, from the strip's first one on

    __device__ __forceinline__ row_writer(const bops_conv_depthwise_params &params, const bops_conv_depthwise_operands &operands,
                                          const strip_place &at) {
        out = at.element_of(params.out), other = at.element_of(params.other), next = static_cast<T *>(operands.out) + out;
        count = int(min(uint32_t(columns), params.out_extents[1] - at.column));
    }
    // Goes on to the next sample, after the last row of a sample.
    __device__ __forceinline__ void advance(const bops_conv_depthwise_params &params) {
        const int64_t by = to_next_sample(params.out, params.out_extents[0]);
        next += by, out += by, other += to_next_sample(params.other, params.out_extents[0]);
    }
    __device__ __forceinline__ void write(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice,
                                          const bops_conv_depthwise_operands &operands, float (&sums)[columns][channels]) {
        if constexpr (light) {
            if (params.activation == BOPS_RELU)
#pragma unroll
                for (int q = 0; q < columns; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) sums[q][c] = sums[q][c] <= 0.0f ? 0.0f : sums[q][c];
            constexpr int most = 16 / int(sizeof(T));
            if constexpr (channels > 1) {
#pragma unroll
                for (int q = 0; q < columns; ++q)
                    if (q < count) store_row<channels>(next + q * params.out.axes[1], sums[q]);
            } else {
                float row[columns];
#pragma unroll
                for (int q = 0; q < columns; ++q) row[q] = sums[q][0];
                if (most > 4 && columns >= most && choice.out_run >= most) store_columns < columns<most ? columns : most>(row);
                else store_columns<4>(row);
            }
            next += params.out.axes[0];
        } else {
            // Four contiguous elements: channels of a column, or columns of a channel.
            constexpr int fours = channels > 1 ? columns : columns / 4;
#pragma unroll
            for (int i = 0; i < fours; ++i) {
                const int column = channels > 1 ? i : 4 * i, there = channels > 1 ? (i < count ? 4 : 0) : min(4, count - 4 * i);
                const uint64_t step = channels > 1 ? 1 : params.out.axes[1], other_step = channels > 1 ? 1 : params.other.axes[1];
                const uint64_t at = out + column * params.out.axes[1];
                const bool vector = channels > 1 || choice.out_run > 1;
                if (there <= 0) continue;
                float four[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) four[e] = channels > 1 ? sums[i][e % channels] : sums[(4 * i + e) % columns][0];
                if (params.beta != 0) {
                    float before[4];
                    gemm::load_four<T>(operands.out, params.out_dtype, at, step, there, vector, before);
#pragma unroll
                    for (int e = 0; e < 4; ++e) four[e] = fmaf(float(params.beta), before[e], four[e]);
                }
                if (operands.other != nullptr)
                    gemm::store_four<T>(operands.other, params.other_dtype, other + column * params.other.axes[1], other_step, there, vector, four);
                activate(params.activation, four);
                gemm::store_four<T>(operands.out, params.out_dtype, at, step, there, vector, four);
            }
            out += params.out.axes[0], other += params.other.axes[0];
        }
    }

  private:
    template <int each> static __device__ __forceinline__ void store_row(T *to, const float (&from)[each]) {
        constexpr int bytes = each * int(sizeof(T));
        store<bytes>(to, pack<T, bytes>(from));
    }
    template <int each> __device__ __forceinline__ void store_columns(const float (&row)[columns]) const {
#pragma unroll
        for (int q = 0; q < columns; q += each) {
            float values[each];
#pragma unroll
            for (int e = 0; e < each; ++e) values[e] = row[q + e];
            if (q < count) store_row<each>(next + q, values);
        }
    }
};

// A strip of outputs, whose windows slide down. Each row of the gathered factor is loaded once, and its elements are added to the sums of all windows that see
// them. With windows of 3 by 3 and four channels, four blocks per SM, for which the host divides the rows, leave a thread 128 registers.
template <typename T, int channels, int kernel, bool light> __global__ void __launch_bounds__(depthwise_threads, channels > 1 && kernel == 3 ? 4 : 1)
    walk(const __grid_constant__ bops_conv_depthwise_params params, const bops_conv_depthwise_choice choice,
         const bops_conv_depthwise_operands operands) {
    using rows_of = row_walk<T, channels, kernel>;
    using slot = typename rows_of::slot;
    constexpr int strip = strip_of<T, channels, kernel>, most = 32 * channels, slots = row_slots<T>; // most: channels of a block
    // Whether registers hold the whole weight of a thread's channels.
    constexpr bool is_small = kernel == 3 || channels == 1;
    // Sums of a window stay in the same registers, and after `phases` rows the registers have the same roles again; or, if it is 1, they move on by one
    // after each row.
    constexpr int phases = kernel == 3 && light ? kernel : 1;
    extern __shared__ __align__(16) char ring[];
    __shared__ __align__(16) float weight[kernel * kernel][most];
    const team threads(params, choice);
    part_of_strip fetched, part;
    const strip_place at = threads.strip<strip>(params, choice, fetched);
    // 1. Copies of the first rows start, and the weight is loaded meanwhile.
    rows_of rows(params, operands.gathered, at);
    fetched.start(params.out_extents[0] - at.row, kernel), part = fetched;
    const auto fetch = [&](char *to) {
        if (fetched.seen > 0) {
            rows.fetch(params, choice, to);
            if (--fetched.seen == 0) fetched.start(params.out_extents[0], kernel), rows.advance(params);
        }
        copy_commit();
    };
#pragma unroll
    for (int i = 0; i < slots - 1; ++i) fetch(ring + i * slot::bytes);
    const uint32_t first = threads.tile * choice.lanes * channels, of_block = min(choice.lanes * channels, params.channels - first);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < of_block * (kernel * kernel); i += depthwise_threads) {
        const uint32_t c = i / (kernel * kernel), tap = i - c * (kernel * kernel), r = tap / kernel, t = tap - r * kernel;
        const T *const from = static_cast<const T *>(operands.plain) + (first + c) * params.weight_channel + params.weight_first;
        weight[tap][c] = widen<T>(from[r * params.weight_axes[0] + t * params.weight_axes[1]]);
    }
    __syncthreads();
    if (part.seen == 0) return;
    const auto weight_of = [&](int r, int t, float(&to)[channels]) {
        const float *const from = &weight[r * kernel + t][threads.lane * channels];
        if constexpr (channels == 1) to[0] = *from;
        else {
            const float4 four = *reinterpret_cast<const float4 *>(from);
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        }
    };
    float kept[is_small ? kernel : 1][is_small ? kernel : 1][channels], bias[channels];
    if constexpr (is_small) {
#pragma unroll
        for (int r = 0; r < kernel; ++r)
#pragma unroll
            for (int t = 0; t < kernel; ++t) weight_of(r, t, kept[r][t]);
    }
#pragma unroll
    for (int c = 0; c < channels; ++c) {
        float four[4] = {0.0f};
        if (operands.bias != nullptr) gemm::load_four<T>(operands.bias, params.bias_dtype, (at.channel + c) * params.bias_stride, 0, 1, false, four);
        bias[c] = four[0];
    }
    row_writer<T, channels, strip, light> writer(params, operands, at);
    // 2. One row of the gathered factor at a time. It completes the last of the rows of sums that it adds to.
    float sums[kernel][strip][channels] = {};
    char *used = ring, *filled = ring + (slots - 1) * slot::bytes;
    const auto is_left = [&] { return part.seen > 0; };
    const auto add_row = [&](auto phase) {
        copy_wait_groups(slots - 2);
        float x[strip + kernel - 1][channels];
        slot::get(used, x);
        fetch(filled);
        used = used == ring + (slots - 1) * slot::bytes ? ring : used + slot::bytes;
        filled = filled == ring + (slots - 1) * slot::bytes ? ring : filled + slot::bytes;
        const auto below = [&](int r) { return phases == 1 ? kernel - 1 - r : (int(decltype(phase)::value) - r + kernel) % kernel; };
#pragma unroll
        for (int r = 0; r < kernel; ++r)
#pragma unroll
            for (int t = 0; t < kernel; ++t) {
                float w[channels];
                if constexpr (is_small) {
#pragma unroll
                    for (int c = 0; c < channels; ++c) w[c] = kept[r][t][c];
                } else weight_of(r, t, w);
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) {
                        float &sum = sums[below(r)][q][c];
                        sum = r + t == 0 ? w[c] * x[q + t][c] : fmaf(w[c], x[q + t][c], sum);
                    }
            }
        if (part.seen <= part.rows) {
            if (operands.bias != nullptr)
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) sums[below(kernel - 1)][q][c] += bias[c];
            writer.write(params, choice, operands, sums[below(kernel - 1)]);
        }
        if constexpr (phases == 1) {
#pragma unroll
            for (int i = 0; i + 1 < kernel; ++i)
#pragma unroll
                for (int q = 0; q < strip; ++q)
#pragma unroll
                    for (int c = 0; c < channels; ++c) sums[i][q][c] = sums[i + 1][q][c];
        }
        if (--part.seen == 0) part.start(params.out_extents[0], kernel), writer.advance(params);
    };
#pragma unroll 1
    while (is_left()) take_in_turn<phases>(is_left, add_row);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_conv_depthwise_params &params,
                                                   const bops_conv_depthwise_choice &choice, const bops_conv_depthwise_operands &operands, void *,
                                                   const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(depthwise_threads);
        return for_value<3, 5, 7>(choice.kernel, [&](auto kernel) {
            return for_value<1, 4>(choice.channels, [&](auto channels) {
                constexpr int c = decltype(channels)::value, k = decltype(kernel)::value;
                shape.shared_bytes = row_slots<T> * row_walk<T, c, k>::slot::bytes;
                return choice.light ? action(walk<T, c, k, true>, shape, params, choice, operands)
                                    : action(walk<T, c, k, false>, shape, params, choice, operands);
            });
        });
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_depthwise, bops_dtype, bops_conv_depthwise_params, bops_conv_depthwise_choice, bops_conv_depthwise_operands,
                 bops::conv::with_kernel)
