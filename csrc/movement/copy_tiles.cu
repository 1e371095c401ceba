// Copies of which neighbours in y are far apart in x and the other way round: tiles of which rows of x are read, and columns, which are rows of y, are
// written.
#include "movement.cuh"

namespace bops {
namespace {

// Units on both sides of a tile: a line of 128 bytes.
template <int unit_bytes> constexpr int tile_side = 128 / unit_bytes;

template <int unit_bytes, int access_bytes> __global__ void __launch_bounds__(movement_threads)
    copy_tiles(const __grid_constant__ bops_copy_tiles_params params, const __grid_constant__ bops_movement_operands operands) {
    using unit = unit_t<unit_bytes>;
    constexpr int side = tile_side<unit_bytes>, width = access_bytes / unit_bytes;
    constexpr int lanes = side / width;                  // threads of a line
    constexpr int step = movement_threads / lanes;       // lines of a block at once
    constexpr int turns = side < step ? 1 : side / step; // lines of a thread
    constexpr int ahead = turns < 8 ? turns : 8;         // that it loads before it keeps the first
    // One unit more than a line, so that the units of a column, `width` rows apart from lane to lane, lie in other banks.
    __shared__ unit held[side][side + 1];
    // 1. The tile.
    const split_number by_columns(params.column_tiles, false, blockIdx.x), by_rows(params.row_tiles, false, by_columns.quotient);
    const uint64_t column = uint64_t(by_columns.rest) * side, row = uint64_t(by_rows.rest) * side;
    uint64_t rest = by_rows.quotient;
    const unit *from = static_cast<const unit *>(operands.x) + params.from + int64_t(row) * params.row.from + int64_t(column) * params.column.from;
    unit *to = static_cast<unit *>(operands.y) + params.to + row * params.row.to + column * params.column.to;
#pragma unroll
    for (int k = 0; k < BOPS_MOVEMENT_EXTENTS - 2; ++k) {
        if (k >= params.rank) break;
        const split_number split(params.outer[k], false, rest);
        rest = split.quotient;
        to += split.rest * params.strides[k].to;
        from += int64_t(split.rest) * params.strides[k].from;
    }
    const uint64_t rows = params.rows - row, columns = params.columns - column;
    const int first = int(threadIdx.x) / lanes, lane = int(threadIdx.x) % lanes * width;
    // 2. Rows of x.
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += ahead) {
        part<unit_bytes, width> loaded[ahead];
#pragma unroll
        for (int t = 0; t < ahead; ++t) {
            const int i = first + (turn + t) * step;
            if (i < side && i < columns && lane < rows)
                loaded[t].whole = *reinterpret_cast<const unit_t<access_bytes> *>(from + i * params.column.from + lane * params.row.from);
        }
#pragma unroll
        for (int t = 0; t < ahead; ++t) {
            const int i = first + (turn + t) * step;
            if (i >= side) break;
#pragma unroll
            for (int v = 0; v < width; ++v) held[i][lane + v] = loaded[t].unit[v];
        }
    }
    __syncthreads();
    // 3. Rows of y.
#pragma unroll 4
    for (int t = 0; t < turns; ++t) {
        const int i = first + t * step;
        if (i < side && i < rows && lane < columns) {
            part<unit_bytes, width> column_part;
#pragma unroll
            for (int v = 0; v < width; ++v) column_part.unit[v] = held[lane + v][i];
            *reinterpret_cast<unit_t<access_bytes> *>(to + i * params.row.to + lane * params.column.to) = column_part.whole;
        }
    }
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_copy_tiles_params &params, const bops_copy_tiles_choice &choice,
                                                   const bops_movement_operands &operands, void *, const Action &action) {
    return for_value<1, 2, 4, 8>(choice.unit_bytes, [&](auto unit_bytes) {
        return for_value<unit_bytes, 16>(choice.access_bytes, [&](auto access_bytes) {
            return action(copy_tiles<unit_bytes, access_bytes>, movement_shape(params.tiles * movement_threads), params, operands);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_copy_tiles, uint32_t, bops_copy_tiles_params, bops_copy_tiles_choice, bops_movement_operands, bops::with_kernel)
