// conv_few_channels: forward with few input channels, through mma.sync. Factors are f16, bf16, or f32 rounded to tf32.
//
// The left factor of a tile is the patch of x that its positions see, the right one the weights of 64 filters, which stay in shared memory.
#include "few_channels.cuh"

namespace bops {
namespace conv {
namespace {

// The filter of a column of block number `block` of eight columns. Columns are permuted so that a lane's sums of neighbouring blocks belong to neighbouring
// filters, as many as 16 bytes have elements.
template <typename T> __device__ __forceinline__ int filter_of(int block, int column) {
    constexpr int each = 16 / int(sizeof(T)), blocks = each / 2;
    return block / blocks * 4 * each + column / 2 * each + block % blocks * 2 + column % 2;
}

// Offsets in shared memory: a chunk of zeros, the bias, the weights, the ring, and the sums of a tile unless they are stored from registers. staged,
// staged_across: bytes of these sums, whose rows are positions, or filters.
template <typename T> struct forward_places {
    static constexpr uint32_t bias = 16, weights = bias + few_filters * 4;
    static constexpr int staged = few_positions * (few_filters + 4) * 4, staged_across = few_filters * (few_positions + 4) * 4;
    int weight_pitch; // bytes of a filter: an odd number of chunks, so that those of eight filters are in different banks
    uint32_t ring, stage, bytes;
    __host__ __device__ __forceinline__ forward_places(const patch_shape &shape, const bops_conv_few_channels_choice &choice) {
        weight_pitch = ((shape.chunks + 1) / 2 * 2 + 1) * 16;
        ring = weights + uint32_t(few_filters * weight_pitch), stage = ring + uint32_t(shape.ring_bytes());
        bytes = stage + uint32_t(choice.light ? 0 : choice.across ? staged_across : staged);
    }
};

// Stores the weights of a block's filters, from `first` on, to shared memory; 0 for filters, channels, pixels and chunks that do not exist.
template <typename T> __device__ __forceinline__ void lay_weights(const bops_conv_few_channels_params &params,
                                                                  const bops_conv_few_channels_choice &choice, const patch_shape &shape,
                                                                  const forward_places<T> &places, uint32_t to, const void *weight, int first) {
    constexpr int elements = 16 / int(sizeof(T));
    const int chunks = places.weight_pitch / 16, padded = int(choice.padded);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < few_filters * chunks; i += few_threads) {
        const int line = i / chunks, index = i - line * chunks, filter = first + filter_of<T>(line / 8, line % 8);
        const chunk_place place(shape, index);
        typename unit<T>::raw v[elements];
#pragma unroll
        for (int e = 0; e < elements; ++e) {
            const int element = place.chunk * elements + e, column = element / padded, channel = element % padded;
            const bool is_there =
                filter < int(params.filters) && place.row < int(params.kernel[0]) && column < int(params.kernel[1]) && channel < int(params.channels);
            const uint64_t at = uint64_t(filter) * params.weight_filter + uint64_t(channel) * params.weight_channel +
                                uint64_t(place.row) * params.weight_axes[0] + uint64_t(column) * params.weight_axes[1];
            v[e] = is_there ? __ldg(static_cast<const typename unit<T>::raw *>(weight) + at) : 0;
        }
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w)
            if constexpr (sizeof(T) == 2) words[w] = uint32_t(v[2 * w]) | uint32_t(v[2 * w + 1]) << 16;
            else words[w] = v[w];
        gemm::round_factors<T>(words);
        gemm::store_chunk(to + uint32_t(line * places.weight_pitch + index * 16), words);
    }
}

using few_sums = float[few_groups_of_warp][few_filters / 8][4];

// A walk through the left factor of a group of positions, row of the kernel by row. A lane gives ldmatrix the address of one position's chunk.
struct group_walk {
    uint32_t column; // address of the lane's position in the first row of the ring
    int slot;        // row of the ring
};

// sums += the patch under a warp's groups of positions times the weights. pairs: pairs of blocks of eight filters to multiply. has_rest: chunks reach beyond
// the window.
template <typename T, int pairs> __device__ __forceinline__ void multiply_tile(few_sums &sums, const patch_ring<T> &ring, const patch_shape &shape,
                                                                               const bops_conv_few_channels_choice &choice, uint32_t zeros,
                                                                               uint32_t weights, int weight_pitch, int groups, bool has_rest) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int of_row = int(choice.columns) / few_group;
    const int down = int(ring.params.stride[0]), kernel_rows = int(ring.params.kernel[0]);
    chunk_place place(shape, lane / 16);
    group_walk walks[few_groups_of_warp];
#pragma unroll
    for (int i = 0; i < few_groups_of_warp; ++i) {
        const int group = min(warp + i * few_warps, groups - 1), row = group / of_row, column = (group - row * of_row) * few_group;
        walks[i].column = ring.ring + uint32_t((column + lane % 16) * shape.position_bytes);
        walks[i].slot = ring.place_of(row * down + place.row);
    }
    uint32_t right = weights + uint32_t(gemm::right_column(lane, 0) * weight_pitch + gemm::right_chunk(lane, 0) * 16);
    const bool has_second = warp + few_warps < groups, is_beyond = has_rest && lane % 4 >= 2;
    int rest = 0; // number, in its row of the kernel, of the first of the two chunks of a step
#pragma unroll 2
    for (int index = 0; index < shape.chunks; index += 2, right += 32) {
        uint32_t a[few_groups_of_warp][4];
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i) {
            const uint32_t at = walks[i].column + uint32_t(walks[i].slot * shape.pitch + place.chunk * 16);
            gemm::load_matrices(a[i], place.row < kernel_rows ? at : zeros);
        }
        // Elements beyond the window belong to other pixels, which may be infinite, and infinity times a weight of 0 is NaN.
        if (has_rest) {
            const int second = rest + 1 == shape.row_chunks ? 0 : rest + 1;
            const bool first_ends = rest + 1 == shape.row_chunks, second_ends = second + 1 == shape.row_chunks;
#pragma unroll
            for (int i = 0; i < few_groups_of_warp; ++i)
#pragma unroll
                for (int w = 0; w < 4; ++w)
                    if (is_beyond && (w < 2 ? first_ends : second_ends)) a[i][w] = 0;
            rest = second_ends ? 0 : second + 1;
        }
        uint32_t b[pairs][4];
#pragma unroll
        for (int j = 0; j < pairs; ++j) gemm::load_matrices(b[j], right + uint32_t(16 * j * weight_pitch));
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i)
            if (i == 0 || has_second)
#pragma unroll
                for (int j = 0; j < 2 * pairs; ++j) gemm::multiply<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        place.chunk += 2;
#pragma unroll 1
        while (place.chunk >= shape.row_chunks) {
            place.chunk -= shape.row_chunks, ++place.row;
#pragma unroll
            for (int i = 0; i < few_groups_of_warp; ++i) walks[i].slot = walks[i].slot + 1 == shape.ring_rows ? 0 : walks[i].slot + 1;
        }
    }
}

// The row and the first column of a group of positions in y.
struct group_place {
    uint32_t row, column;
    __device__ __forceinline__ group_place(const bops_conv_few_channels_choice &choice, const few_tile &tile, int group) {
        const int of_row = int(choice.columns) / few_group, in_tile = group / of_row;
        row = tile.row + uint32_t(in_tile), column = tile.column + uint32_t((group - in_tile * of_row) * few_group);
    }
};

__device__ __forceinline__ uint64_t element_of(const bops_conv_strides &strides, uint32_t sample, uint32_t row, uint32_t column, uint32_t filter) {
    return uint64_t(sample) * strides.sample + uint64_t(row) * strides.axes[0] + uint64_t(column) * strides.axes[1] +
           uint64_t(filter) * strides.channel;
}

// Adds the bias of each filter to the sums of its products. Sums that started at the bias would be rounded at its magnitude in every step.
template <typename T> __device__ __forceinline__ void add_bias(few_sums &sums, const float *bias) {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < few_filters / 8; j += 2) {
        // A lane's filters of two neighbouring blocks are four neighbours.
        const float4 four = *reinterpret_cast<const float4 *>(bias + filter_of<T>(j, gemm::sum_column(lane, 0)));
        const float of_filter[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i)
#pragma unroll
            for (int e = 0; e < 8; ++e) sums[i][j + e / 4][e % 4] += of_filter[e / 4 * 2 + e % 2];
    }
}

// Writes a tile from registers, if the choice is light. Every sum already has its bias.
template <typename T> __device__ __forceinline__ void leave_light(const bops_conv_few_channels_params &params,
                                                                  const bops_conv_few_channels_choice &choice, const few_tile &tile, void *out,
                                                                  int first_filter, int groups, few_sums &sums) {
    constexpr int each = 16 / int(sizeof(T)), blocks = each / 2;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int filters = int(params.filters) - first_filter;
    T *const to = static_cast<T *>(out);
#pragma unroll
    for (int i = 0; i < few_groups_of_warp; ++i) {
        const int group = warp + i * few_warps;
        if (group >= groups) break;
        const group_place place(choice, tile, group);
        const int columns = int(params.y_extents[1]) - int(place.column);
        if (place.row >= params.y_extents[0] || columns <= 0) continue;
        if (params.activation == BOPS_RELU)
#pragma unroll
            for (int j = 0; j < few_filters / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] = sums[i][j][e] <= 0.0f ? 0.0f : sums[i][j][e];
        T *const line = to + element_of(params.y, tile.sample, place.row, place.column, uint32_t(first_filter));
        if (!choice.across) {
            // 16 bytes of neighbouring filters are one store.
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int position = lane / 4 + half * 8;
                T *const at = line + uint64_t(position) * params.y.axes[1];
#pragma unroll
                for (int j = 0; j < few_filters / 8; j += blocks) {
                    const int filter = filter_of<T>(j, lane % 4 * 2);
                    float v[each];
#pragma unroll
                    for (int e = 0; e < each; ++e) v[e] = sums[i][j + e / 2][half * 2 + e % 2];
                    if (position < columns && filter < filters) store<16, false>(at + filter, pack<T, 16>(v));
                }
            }
        } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int j = 0; j < few_filters / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int position = gemm::sum_row(lane, e), filter = filter_of<T>(j, gemm::sum_column(lane, e));
                    if (position < columns && filter < filters) line[uint64_t(filter) * params.y.channel + position] = sums[i][j][e];
                }
        } else {
            // Four neighbouring positions of a filter are one store: lanes exchange filters for a second position, then pairs of positions.
            const bool second = lane / 4 % 2, upper = lane / 8 % 2;
            const int position = (upper ? 8 : 0) + lane / 16 * 4;
#pragma unroll
            for (int j = 0; j < few_filters / 8; ++j) {
                const int filter = filter_of<T>(j, lane % 4 * 2 + (second ? 1 : 0));
                uint32_t word[2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float pair[2] = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
                    const uint32_t own = pack<T, 4>(pair).word[0], other = __shfl_xor_sync(0xffffffffu, own, 4);
                    word[half] = second ? __byte_perm(other, own, 0x7632) : __byte_perm(own, other, 0x5410);
                }
                const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? word[0] : word[1], 8);
                packed<8> four;
                four.word[0] = upper ? other : word[0], four.word[1] = upper ? word[1] : other;
                if (position < columns && filter < filters) store<8, false>(line + uint64_t(filter) * params.y.channel + position, four);
            }
        }
    }
}

// Writes a tile from shared memory, four elements at a time.
template <typename T> __device__ __forceinline__ void leave_staged(const bops_conv_few_channels_params &params,
                                                                   const bops_conv_few_channels_choice &choice, const few_tile &tile,
                                                                   const bops_conv_few_channels_operands &operands, int first_filter, int groups,
                                                                   const float *stage) {
    const bool across = choice.across != 0;
    const int fast = across ? few_positions : few_filters, slow = across ? few_filters : groups * few_group, per_line = fast / 4;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < slow * per_line; i += few_threads) {
        const int line = i / per_line, at = (i - line * per_line) * 4, position = across ? at : line, filter = across ? line : at;
        if (position >= groups * few_group) continue;
        const group_place group(choice, tile, position / few_group);
        const uint32_t column = group.column + uint32_t(position % few_group);
        const int left = across ? int(params.y_extents[1]) - int(column) : int(params.filters) - first_filter - filter, count = min(left, 4);
        if (count <= 0 || group.row >= params.y_extents[0] || column >= params.y_extents[1] || first_filter + filter >= int(params.filters)) continue;
        const float4 four = *reinterpret_cast<const float4 *>(stage + line * (fast + 4) + at);
        float v[4] = {four.x, four.y, four.z, four.w};
        const uint32_t number = uint32_t(first_filter + filter);
        if (operands.other != nullptr)
            gemm::store_four<T>(operands.other, params.other_dtype, element_of(params.other, tile.sample, group.row, column, number),
                                across ? params.other.axes[1] : params.other.channel, count, choice.quads != 0, v);
        activate(params.activation, v);
        gemm::store_four<T>(operands.y, params.out_dtype, element_of(params.y, tile.sample, group.row, column, number),
                            across ? params.y.axes[1] : params.y.channel, count, choice.quads != 0, v);
    }
}

// Three blocks per SM, for which the host asks, leave a thread 168 registers.
template <typename T> __global__ void __launch_bounds__(few_threads, 3)
    forward(const __grid_constant__ bops_conv_few_channels_params params, const __grid_constant__ bops_conv_few_channels_choice choice,
            const bops_conv_few_channels_operands operands) {
    extern __shared__ __align__(16) unsigned char shared[];
    const patch_shape shape(params, choice, int(sizeof(T)));
    const forward_places<T> places(shape, choice);
    const uint32_t base = shared_address(shared), weights = base + places.weights;
    float *const bias = reinterpret_cast<float *>(shared + places.bias), *const stage = reinterpret_cast<float *>(shared + places.stage);
    const uint32_t part = blockIdx.x % choice.parts;
    const int first_filter = int(blockIdx.x / choice.parts) * few_filters, filters = int(params.filters) - first_filter;
    const few_tiles tiles(params, choice);
    const uint32_t last = tiles.first(part + 1, choice.parts);

    // 1. What stays in shared memory: the chunk of zeros, and the weights and bias of the block's filters.
    if (threadIdx.x < 4) reinterpret_cast<uint32_t *>(shared)[threadIdx.x] = 0;
    if (int(threadIdx.x) < few_filters) {
        float b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (operands.bias != nullptr && int(threadIdx.x) < filters)
            gemm::load_four<T>(operands.bias, params.bias_dtype, uint64_t(first_filter + int(threadIdx.x)) * params.bias_stride, 0, 1, false, b);
        bias[threadIdx.x] = b[0];
    }
    lay_weights<T>(params, choice, shape, places, weights, operands.weight, first_filter);
    patch_ring<T> ring{params, choice, shape, operands.x, base + places.ring, 0};
    const bool has_rest = int(params.kernel[1]) * shape.pixel_bytes % 16 != 0;
    const int groups = int(choice.rows * choice.columns) / few_group, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;

#pragma unroll 1
    for (uint32_t index = tiles.first(part, choice.parts), is_first = 1; index < last; ++index) {
        // 2. The rows of x that the tile sees, unless they are there already, and loads of those that the next tile adds.
        const few_tile tile = tiles.at(choice, index);
        if (is_first || tile.row == 0) {
            ring.fill(tile);
            __syncthreads();
        }
        is_first = 0;
        const bool goes_on = tile.follows && index + 1 < last;
        const patch_rows<T> below = ring.below(tile);
        unit<T> ahead[units_ahead];
        if (goes_on) below.load_ahead(ahead);

        // 3. The sums.
        few_sums sums = {};
        if (warp < groups) {
            if (filters > few_filters / 2) multiply_tile<T, 4>(sums, ring, shape, choice, base, weights, places.weight_pitch, groups, has_rest);
            else multiply_tile<T, 2>(sums, ring, shape, choice, base, weights, places.weight_pitch, groups, has_rest);
        }
        if (goes_on) below.store_ahead(ahead);
        if (operands.bias != nullptr) add_bias<T>(sums, bias);

        // 4. The output.
        if (choice.light) leave_light<T>(params, choice, tile, operands.y, first_filter, groups, sums);
        else {
            const bool across = choice.across != 0;
            const int position_step = across ? 1 : few_filters + 4, filter_step = across ? few_positions + 4 : 1;
#pragma unroll
            for (int i = 0; i < few_groups_of_warp; ++i)
#pragma unroll
                for (int j = 0; j < few_filters / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int position = (warp + i * few_warps) * few_group + gemm::sum_row(lane, e);
                        stage[position * position_step + filter_of<T>(j, gemm::sum_column(lane, e)) * filter_step] = sums[i][j][e];
                    }
            __syncthreads();
            leave_staged<T>(params, choice, tile, operands, first_filter, groups, stage);
        }
        ring.descend();
        __syncthreads(); // The rows of the next tile are there, and no thread reads rows that will be replaced, or the staged sums.
    }
}

template <typename Action> bops_status with_forward(bops_dtype dtype, const bops_conv_few_channels_params &params,
                                                    const bops_conv_few_channels_choice &choice, const bops_conv_few_channels_operands &operands,
                                                    void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid = dim3(choice.parts * uint32_t(gemm::tiles_of(params.filters, few_filters))), shape.block = dim3(few_threads);
        shape.shared_bytes = forward_places<T>(patch_shape(params, choice, int(sizeof(T))), choice).bytes;
        return action(forward<T>, shape, params, choice, operands);
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_few_channels, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice, bops_conv_few_channels_operands,
                 bops::conv::with_forward)
