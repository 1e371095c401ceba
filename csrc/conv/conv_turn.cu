// conv_turn: copies operands whose channels are not contiguous, so that they are, for conv_wgmma.
#include "../bops_conv_wgmma.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../common/memory.cuh"

namespace bops {
namespace conv {
namespace {

constexpr int turn_threads = 256; // of a block
// Rows and columns of the square that a block copies, in runs of 128 bytes or, of 4-byte elements, 256: whole lines of the L2.
constexpr int turn_tile = 64;
// Elements of a row of a tile in shared memory: an odd number of words, so that neighbouring rows start in different banks.
template <typename E> constexpr int turn_line = turn_tile + 4 / int(sizeof(E));

// to[outer][column][row] = from[outer][row][column]. E: an unsigned integer as large as an element. vector: elements of one load.
template <typename E, int vector> __global__ void __launch_bounds__(turn_threads)
    turn(const bops_conv_turn_params params, const E *__restrict__ from, E *__restrict__ to) {
    constexpr int bytes = int(sizeof(E));
    __shared__ __align__(16) E tile[turn_tile][turn_line<E>];
    allow_dependents();
    const uint64_t across = (params.columns + turn_tile - 1) / turn_tile, down = (params.rows + turn_tile - 1) / turn_tile;
    const uint64_t outer = blockIdx.x / (across * down), in_matrix = blockIdx.x - outer * across * down;
    // Neighbouring blocks have tiles of the same columns, which share cache lines of `to`.
    const uint64_t row_first = in_matrix % down * turn_tile, column_first = in_matrix / down * turn_tile;
    const int rows = int(min(params.rows - row_first, uint64_t(turn_tile))), columns = int(min(params.columns - column_first, uint64_t(turn_tile)));
    const E *const source = from + outer * params.outer_stride + row_first * params.row_stride + column_first;
    constexpr int per_row = turn_tile / vector;
#pragma unroll
    for (int i = 0; i < turn_tile * per_row / turn_threads; ++i) {
        const int index = int(threadIdx.x) + i * turn_threads, row = index / per_row, column = index % per_row * vector;
        if (row >= rows || column >= columns) continue;
        const packed<bytes *vector> held = load<bytes * vector>(source + row * params.row_stride + column);
        if constexpr (bytes * vector == 2) tile[row][column] = E(held.word[0]);
        else
#pragma unroll
            for (int w = 0; w < bytes * vector / 4; ++w) *reinterpret_cast<uint32_t *>(&tile[row][column + 4 / bytes * w]) = held.word[w];
    }
    __syncthreads();
    // One store writes 16 bytes of neighbouring rows of a column.
    constexpr int each = 16 / bytes, chunks = turn_tile / each;
    E *const target = to + (outer * params.columns + column_first) * params.pitch + row_first;
#pragma unroll
    for (int i = 0; i < turn_tile * chunks / turn_threads; ++i) {
        const int index = int(threadIdx.x) + i * turn_threads, column = index / chunks, row = index % chunks * each;
        if (row >= rows || column >= columns) continue;
        packed<16> held;
#pragma unroll
        for (int w = 0; w < 4; ++w)
            if constexpr (bytes == 2) held.word[w] = tile[row + 2 * w][column] | uint32_t(tile[row + 2 * w + 1][column]) << 16;
            else held.word[w] = tile[row + w][column];
        store<16>(target + column * params.pitch + row, held);
    }
}

template <typename Action> bops_status with_turn(const bops_conv_turn_params &params, const void *from, void *to, const Action &action) {
    const uint64_t tiles = (params.columns + turn_tile - 1) / turn_tile * ((params.rows + turn_tile - 1) / turn_tile) * params.outer;
    launch_shape shape;
    shape.grid = dim3(uint32_t(tiles)), shape.block = dim3(turn_threads);
    const auto of_vector = [&](auto element) {
        using E = decltype(element);
        const auto *const source = static_cast<const E *>(from);
        auto *const target = static_cast<E *>(to);
        return for_value<16 / int(sizeof(E)), 4, 2, 1>(
            params.vector, [&](auto vector) { return action(turn<E, decltype(vector)::value>, shape, params, source, target); });
    };
    return params.element_bytes == 4 ? of_vector(uint32_t(0)) : of_vector(uint16_t(0));
}

} // namespace
} // namespace conv
} // namespace bops

bops_status bops_conv_turn_prepare(const bops_conv_turn_params *params) {
    return bops::conv::with_turn(*params, nullptr, nullptr, bops::prepare_action{});
}

bops_status bops_conv_turn_launch(const bops_conv_turn_params *params, const void *from, void *to, bops_stream stream) {
    return bops::conv::with_turn(*params, from, to, bops::launch_action{stream});
}
