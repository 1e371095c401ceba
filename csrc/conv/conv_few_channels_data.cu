// conv_few_channels_data: the gradient of the data with few input channels, through mma.sync. f16 and bf16.
//
// A cell is stride[0] rows by stride[1] columns of dx: all its elements see the same positions of dy. The left factor of a tile is dy at these positions, row
// by row and filter by filter. The right factor has a column for each row of a cell, tap along the columns of dy, column of the cell and channel. In the
// product, the contributions of the taps to one cell are in neighbouring rows; they are added up in shared memory.
#include "few_channels.cuh"

namespace bops {
namespace conv {
namespace {

// Blocks of eight columns of the product, those of one instruction, at most; and pairs of them, which one ldmatrix reads.
constexpr int data_blocks = BOPS_CONV_FEW_CHANNELS_COLUMNS / 8, data_pairs = data_blocks / 2;

// Offsets in shared memory: the weights, a ring of rows of dy, and the product of a tile. Lines of a row of dy are positions, or filters with `across`. Lines,
// and columns of the weights, are an odd number of chunks apart, so that the rows of a matrix are in different banks.
struct data_places {
    int filters, depth;       // filters rounded up to what one instruction sums over; terms of a sum
    int of_row, blocks;       // columns of the product for one row of a cell, a multiple of eight; blocks of eight columns in all
    int line_pitch, lines;    // bytes of a line, and lines, of a row of dy
    int row_bytes, ring_rows; // bytes of a row of dy, and rows of the ring
    int weight_pitch;         // bytes of a column of the weights
    int stage_pitch;          // elements of a row of the product
    uint32_t ring, stage, bytes;
    __host__ __device__ __forceinline__ data_places(const bops_conv_few_channels_params &params, const bops_conv_few_channels_data_choice &choice) {
        filters = (int(params.filters) + 15) / 16 * 16, depth = filters * int(choice.taps[0]);
        of_row = (int(choice.taps[1] * params.stride[1] * params.channels) + 7) / 8 * 8, blocks = of_row / 8 * int(params.stride[0]);
        lines = choice.across ? filters : int(choice.positions), line_pitch = ((choice.across ? int(choice.positions) : filters) + 8) * 2;
        row_bytes = lines * line_pitch, ring_rows = int(choice.taps[0]) + 1;
        weight_pitch = (depth + 8) * 2, stage_pitch = blocks % 2 == 0 ? blocks * 8 + 8 : blocks * 8;
        ring = uint32_t((blocks + 1) / 2 * 16 * weight_pitch), stage = ring + uint32_t(ring_rows * row_bytes);
        bytes = stage + choice.positions * uint32_t(stage_pitch) * 4;
    }
};

// The kernel element through which a tap contributes to a row or column of a cell; negative if there is none.
__device__ __forceinline__ int kernel_of(const bops_conv_few_channels_params &params, const bops_conv_few_channels_data_choice &choice, int axis,
                                         int in_cell, int tap) {
    const int element = in_cell - params.first[axis] - int(params.stride[axis]) * (choice.lowest[axis] + tap);
    return element < int(params.kernel[axis]) ? element : -1;
}

// Stores the weights to shared memory; 0 where a tap contributes nothing.
__device__ __forceinline__ void lay_weights(const bops_conv_few_channels_params &params, const bops_conv_few_channels_data_choice &choice,
                                            const data_places &places, uint32_t to, const void *weight) {
    const int columns = (places.blocks + 1) / 2 * 16, channels = int(params.channels), of_cell = int(params.stride[1]);
    const auto *const from = static_cast<const uint16_t *>(weight);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < columns * places.depth; i += few_threads) {
        const int line = i / places.depth, term = i - line * places.depth, tap_row = term / places.filters, filter = term - tap_row * places.filters;
        const int row = line / places.of_row, in_row = line - row * places.of_row, channel = in_row % channels, column = in_row / channels % of_cell;
        const int tap_column = in_row / channels / of_cell;
        const int r = kernel_of(params, choice, 0, row, tap_row), s = kernel_of(params, choice, 1, column, tap_column);
        const bool is_there = row < int(params.stride[0]) && tap_column < int(choice.taps[1]) && filter < int(params.filters) && r >= 0 && s >= 0;
        const uint64_t at = uint64_t(filter) * params.weight_filter + uint64_t(channel) * params.weight_channel +
                            uint64_t(r) * params.weight_axes[0] + uint64_t(s) * params.weight_axes[1];
        const uint16_t value = is_there ? __ldg(from + at) : uint16_t(0);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + uint32_t(line * places.weight_pitch + term * 2)), "h"(value) : "memory");
    }
}

// A tile: its sample, its row of cells, its first cell in that row, and the first position that it sees in a row of dy.
struct data_tile {
    uint32_t sample, row, cell;
    int position;
    bool follows; // whether the next tile is the one below this one
};
struct data_tiles {
    uint32_t down, across, count;
    __device__ __forceinline__ data_tiles(const bops_conv_few_channels_params &params, const bops_conv_few_channels_data_choice &choice) {
        const uint32_t cells = (params.x_extents[1] + params.stride[1] - 1) / params.stride[1];
        down = (params.x_extents[0] + params.stride[0] - 1) / params.stride[0], across = (cells + choice.cells - 1) / choice.cells;
        count = down * across * params.samples;
    }
    __device__ __forceinline__ data_tile at(const bops_conv_few_channels_data_choice &choice, uint32_t index) const {
        const uint32_t strip = index / down, row = index - strip * down, sample = strip / across, cell = (strip - sample * across) * choice.cells;
        const int seen = int(cell) + choice.lowest[1];
        return {sample, row, cell, choice.across ? seen & ~7 : seen, row + 1 < down};
    }
};

// Starts the copies of a row of dy; 0 for positions and filters that do not exist.
__device__ __forceinline__ void fetch_row(const bops_conv_few_channels_params &params, const bops_conv_few_channels_data_choice &choice,
                                          const data_places &places, uint32_t to, const void *dy, const data_tile &tile, int row) {
    const bool across = choice.across != 0, has_row = uint32_t(row) < params.y_extents[0];
    const int chunks = (across ? int(choice.positions) : places.filters) / 8, columns = int(params.y_extents[1]), filters = int(params.filters);
    const uint16_t *const from = static_cast<const uint16_t *>(dy) + uint64_t(tile.sample) * params.y.sample;
    const uint64_t step = across ? params.y.axes[1] : params.y.channel;
    const divider by_chunks(chunks);
#pragma unroll 2
    for (int i = int(threadIdx.x); i < places.lines * chunks; i += few_threads) {
        const int line = by_chunks.quotient(i), chunk = i - line * chunks;
        const int column = tile.position + (across ? chunk * 8 : line), filter = across ? line : chunk * 8;
        const bool is_there = has_row && column >= 0 && column < columns && filter < filters;
        const int left = !is_there ? 0 : min(across ? columns - column : filters - filter, 8);
        const uint16_t *const at =
            from + (is_there ? uint64_t(row) * params.y.axes[0] + uint64_t(column) * params.y.axes[1] + uint64_t(filter) * params.y.channel : 0);
        fetch_chunk(to + uint32_t(line * places.line_pitch + chunk * 16), at, step, left, choice.eights != 0);
    }
}

// Writes the cells of a tile: each element of dx is the sum of the contributions of the taps along the columns of dy.
template <typename T> __device__ __forceinline__ void leave_cells(const bops_conv_few_channels_params &params,
                                                                  const bops_conv_few_channels_data_choice &choice, const data_places &places,
                                                                  const data_tile &tile, void *dx, const float *stage) {
    const int channels = int(params.channels), of_cell = int(params.stride[1]), columns = int(choice.cells) * of_cell, of_row = columns * channels;
    const int shift = int(tile.cell) + choice.lowest[1] - tile.position;
    const bool is_near = params.x.channel < params.x.axes[1] || params.x.axes[1] == 0; // whether neighbouring threads take neighbouring channels
    const divider by_row(of_row), by_inner(is_near ? channels : columns), by_cell(of_cell);
    const int next_tap = places.stage_pitch + of_cell * channels;
#pragma unroll 2
    for (int i = int(threadIdx.x); i < of_row * int(params.stride[0]); i += few_threads) {
        const int row = by_row.quotient(i), in_row = i - row * of_row, outer = by_inner.quotient(in_row), inner = in_row - outer * int(by_inner.by);
        const int channel = is_near ? inner : outer, column = is_near ? outer : inner;
        const int cell = by_cell.quotient(column), in_cell = column - cell * of_cell;
        const uint64_t x_row = uint64_t(tile.row) * params.stride[0] + uint64_t(row), x_column = uint64_t(tile.cell) * of_cell + uint64_t(column);
        if (x_row >= params.x_extents[0] || x_column >= params.x_extents[1]) continue;
        const float *at = stage + (cell + shift) * places.stage_pitch + row * places.of_row + in_cell * channels + channel;
        float sum = 0.0f;
#pragma unroll 4
        for (int tap = 0; tap < int(choice.taps[1]); ++tap, at += next_tap) {
            const float of_tap = *at;
            sum += kernel_of(params, choice, 1, in_cell, tap) >= 0 ? of_tap : 0.0f;
        }
        const uint64_t element =
            uint64_t(tile.sample) * params.x.sample + x_row * params.x.axes[0] + x_column * params.x.axes[1] + uint64_t(channel) * params.x.channel;
        float v[4] = {sum, 0.0f, 0.0f, 0.0f};
        if (params.beta != 0) {
            float before[4];
            gemm::load_four<T>(dx, params.out_dtype, element, 0, 1, false, before);
            v[0] = fmaf(float(params.beta), before[0], sum);
        }
        gemm::store_four<T>(dx, params.out_dtype, element, 0, 1, false, v);
    }
}

using data_sums = float[few_groups_of_warp][data_blocks][4];

// sums += the positions of a row of dy times the weights of its tap, for the blocks of columns that the row contributes to. seen: a bit for each of these
// blocks. pairs: pairs of blocks if the row contributes to all; else 0.
template <typename T, int pairs> __device__ __forceinline__ void multiply_row(data_sums &sums, const bops_conv_few_channels_data_choice &choice,
                                                                              const data_places &places, uint32_t row, uint32_t weights, int groups,
                                                                              uint32_t seen) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const bool across = choice.across != 0, has_second = warp + few_warps < groups;
    uint32_t left[few_groups_of_warp];
#pragma unroll
    for (int i = 0; i < few_groups_of_warp; ++i) {
        const int position = (i == 0 || has_second ? warp + i * few_warps : warp) * few_group;
        left[i] = row + (across ? uint32_t(gemm::left_across_k(lane, 0) * places.line_pitch + gemm::left_across_row(lane, position) * 2)
                                : uint32_t(gemm::left_row(lane, position) * places.line_pitch + gemm::left_chunk(lane, 0) * 16));
    }
    const uint32_t left_step = across ? uint32_t(16 * places.line_pitch) : 32u;
#pragma unroll 2
    for (int step = 0; step < places.filters / 16; ++step, weights += 32) {
        uint32_t a[few_groups_of_warp][4];
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i) {
            if (across) gemm::load_matrices_transposed(a[i], left[i]);
            else gemm::load_matrices(a[i], left[i]);
            left[i] += left_step;
        }
        if constexpr (pairs > 0) {
            uint32_t b[pairs][4];
#pragma unroll
            for (int p = 0; p < pairs; ++p) gemm::load_matrices(b[p], weights + uint32_t(16 * p * places.weight_pitch));
#pragma unroll
            for (int i = 0; i < few_groups_of_warp; ++i)
                if (i == 0 || has_second)
#pragma unroll
                    for (int j = 0; j < 2 * pairs; ++j) gemm::multiply<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        } else {
#pragma unroll
            for (int p = 0; p < data_pairs; ++p)
                if (seen >> (2 * p) & 3) {
                    uint32_t b[4];
                    gemm::load_matrices(b, weights + uint32_t(16 * p * places.weight_pitch));
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        if (seen >> (2 * p + half) & 1) {
                            gemm::multiply<T>(sums[0][2 * p + half], a[0], b[2 * half], b[2 * half + 1]);
                            if (has_second) gemm::multiply<T>(sums[1][2 * p + half], a[1], b[2 * half], b[2 * half + 1]);
                        }
                }
        }
    }
}

// Two blocks per SM, for which the host asks, leave a thread all of the 255 registers that it may have.
template <typename T> __global__ void __launch_bounds__(few_threads, 2)
    data(const __grid_constant__ bops_conv_few_channels_params params, const __grid_constant__ bops_conv_few_channels_data_choice choice,
         const bops_conv_few_channels_operands operands) {
    extern __shared__ __align__(16) unsigned char shared[];
    const data_places places(params, choice);
    const uint32_t weights = shared_address(shared), ring = weights + places.ring;
    float *const stage = reinterpret_cast<float *>(shared + places.stage);
    const data_tiles tiles(params, choice);
    const uint32_t first = uint32_t(uint64_t(tiles.count) * blockIdx.x / choice.parts);
    const uint32_t last = uint32_t(uint64_t(tiles.count) * (blockIdx.x + 1) / choice.parts);
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, groups = int(choice.positions) / few_group, taps = int(choice.taps[0]);

    // 1. What stays in shared memory: the weights.
    lay_weights(params, choice, places, weights, operands.weight);
    const uint32_t right = weights + uint32_t(gemm::right_column(lane, 0) * places.weight_pitch + gemm::right_chunk(lane, 0) * 16);
    int slot = 0; // place in the ring of the first row of dy that the tile sees
#pragma unroll 1
    for (uint32_t index = first; index < last; ++index) {
        // 2. The rows of dy that the tile sees, of which only the last one is new, and copies of the row that the next tile adds.
        const data_tile tile = tiles.at(choice, index);
        if (index == first || tile.row == 0) {
            slot = 0;
#pragma unroll 1
            for (int tap = 0; tap < taps; ++tap)
                fetch_row(params, choice, places, ring + uint32_t(tap * places.row_bytes), operands.y, tile, int(tile.row) + choice.lowest[0] + tap);
            copy_commit();
        }
        copy_wait(0);
        __syncthreads(); // The rows are there for all threads, and no thread reads rows above them, or the product of the previous tile.
        const auto place_of = [&](int row) { return slot + row >= places.ring_rows ? slot + row - places.ring_rows : slot + row; };
        if (tile.follows && index + 1 < last)
            fetch_row(params, choice, places, ring + uint32_t(place_of(taps) * places.row_bytes), operands.y, tile,
                      int(tile.row) + choice.lowest[0] + taps);
        copy_commit();

        // 3. The product, row of dy by row of dy.
        data_sums sums;
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i)
#pragma unroll
            for (int j = 0; j < data_blocks; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
        if (warp < groups) {
#pragma unroll 1
            for (int tap = 0; tap < taps; ++tap) {
                // Only blocks of columns to which the row of dy contributes: for others an infinite dy times a weight of 0 would be NaN.
                uint32_t seen = 0;
                const int row_blocks = places.of_row / 8;
#pragma unroll 1
                for (int in_cell = 0; in_cell < int(params.stride[0]); ++in_cell)
                    if (kernel_of(params, choice, 0, in_cell, tap) >= 0) seen |= ((1u << row_blocks) - 1u) << (in_cell * row_blocks);
                const uint32_t row = ring + uint32_t(place_of(tap) * places.row_bytes), of_tap = right + uint32_t(tap * places.filters * 2);
                if (seen != (1u << places.blocks) - 1u) multiply_row<T, 0>(sums, choice, places, row, of_tap, groups, seen);
                else if (places.blocks > 6) multiply_row<T, 4>(sums, choice, places, row, of_tap, groups, seen);
                else if (places.blocks > 4) multiply_row<T, 3>(sums, choice, places, row, of_tap, groups, seen);
                else if (places.blocks > 2) multiply_row<T, 2>(sums, choice, places, row, of_tap, groups, seen);
                else multiply_row<T, 1>(sums, choice, places, row, of_tap, groups, seen);
            }
        }

        // 4. The gradients of the cells.
#pragma unroll
        for (int i = 0; i < few_groups_of_warp; ++i)
            if (warp + i * few_warps < groups)
#pragma unroll
                for (int j = 0; j < data_blocks; ++j)
                    if (j < places.blocks)
#pragma unroll
                        for (int e = 0; e < 4; e += 2)
                            *reinterpret_cast<float2 *>(stage + ((warp + i * few_warps) * few_group + gemm::sum_row(lane, e)) * places.stage_pitch +
                                                        j * 8 + gemm::sum_column(lane, e)) = make_float2(sums[i][j][e], sums[i][j][e + 1]);
        __syncthreads(); // The product is there.
        leave_cells<T>(params, choice, places, tile, operands.x, stage);
        slot = place_of(1);
    }
}

template <typename Action> bops_status with_data(bops_dtype dtype, const bops_conv_few_channels_params &params,
                                                 const bops_conv_few_channels_data_choice &choice, const bops_conv_few_channels_operands &operands,
                                                 void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(choice.parts), shape.block = dim3(few_threads);
    shape.shared_bytes = data_places(params, choice).bytes;
    return for_types<__half, __nv_bfloat16>(dtype,
                                            [&](auto tag) { return action(data<typename decltype(tag)::type>, shape, params, choice, operands); });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_few_channels_data, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_data_choice,
                 bops_conv_few_channels_operands, bops::conv::with_data)
