// Copies of which neighbours in y are far apart in x and the other way round: tiles of which rows of x are read, and columns, which are rows of y, are
// written.
// Compiled once for all architectures.
#include "movement.cuh"

namespace bops {
namespace {

// Units of a row of a tile: a line of 128 bytes.
template <int unit_bytes> constexpr int tile_rows = 128 / unit_bytes;
// Units of a column: of few bytes as many, of more several lines, so that each thread has two vectors in flight.
template <int unit_bytes> constexpr int tile_columns = tile_rows<unit_bytes> *(unit_bytes == 8 ? 4 : unit_bytes == 4 ? 2 : 1);

template <int unit_bytes, int access_bytes> __global__ void __launch_bounds__(movement_threads)
    copy_tiles(const __grid_constant__ bops_copy_tiles_params params, const __grid_constant__ bops_movement_operands operands) {
    using unit = unit_t<unit_bytes>;
    constexpr int side = tile_rows<unit_bytes>, long_side = tile_columns<unit_bytes>, width = access_bytes / unit_bytes;
    constexpr int lanes = side / width; // threads of a line
    constexpr int turns = long_side * lanes / movement_threads;
    constexpr int ahead = turns < 8 ? turns : 8; // accesses of a thread before it keeps the first
    static_assert(turns * movement_threads == long_side * lanes && turns % ahead == 0, "all threads have as many accesses");
    // One unit more than a line, so that the units of a column, `width` rows apart from lane to lane, lie in other banks.
    __shared__ unit held[long_side][side + 1];
    // 1. The tile.
    const split_number by_columns(params.column_tiles, false, blockIdx.x), by_rows(params.row_tiles, false, by_columns.quotient);
    const uint64_t column = uint64_t(by_columns.rest) * long_side, row = uint64_t(by_rows.rest) * side;
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
    // 2. Rows of x.
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += ahead) {
        part<unit_bytes, width> loaded[ahead];
#pragma unroll
        for (int t = 0; t < ahead; ++t) {
            const int number = int(threadIdx.x) + (turn + t) * movement_threads, i = number / lanes, j = number % lanes * width;
            if (i < columns && j < rows)
                loaded[t].whole = *reinterpret_cast<const unit_t<access_bytes> *>(from + i * params.column.from + j * params.row.from);
        }
#pragma unroll
        for (int t = 0; t < ahead; ++t) {
            const int number = int(threadIdx.x) + (turn + t) * movement_threads, i = number / lanes, j = number % lanes * width;
#pragma unroll
            for (int v = 0; v < width; ++v) held[i][j + v] = loaded[t].unit[v];
        }
    }
    __syncthreads();
    // 3. Rows of y, each in lines of `side`.
#pragma unroll 4
    for (int t = 0; t < turns; ++t) {
        const int number = int(threadIdx.x) + t * movement_threads, line = number / lanes;
        const int i = line % side, j = line / side * side + number % lanes * width;
        if (i < rows && j < columns) {
            part<unit_bytes, width> column_part;
#pragma unroll
            for (int v = 0; v < width; ++v) column_part.unit[v] = held[j + v][i];
            *reinterpret_cast<unit_t<access_bytes> *>(to + i * params.row.to + j * params.column.to) = column_part.whole;
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
