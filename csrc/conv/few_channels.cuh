// What the forms for few input channels share: a patch of x in shared memory, and chunks of dy.
//
// A block takes one tile of positions after another, down the rows of y, and keeps the rows of x that they see in a ring. The elements of a pixel are
// padded to 4 or 8, so that neighbouring positions are a whole number of chunks apart and the window of every position starts at a chunk in each row.
// ldmatrix reads the matrices of mma from there, one address for each position. So every pixel is in shared memory once, although windows overlap.
//
//   ring:  [row][pixel][channel], as wide as the windows of a tile
//   chunk: 16 bytes of the pixels under one row of the kernel; the last one of a row may reach beyond the window
#pragma once
#include "../bops_conv_few_channels.h"
#include "../gemm/mma.cuh"

namespace bops {
namespace conv {

constexpr int few_threads = 128, few_warps = few_threads / 32;            // of a block: a warp for each SM sub-partition
constexpr int few_filters = BOPS_CONV_FEW_CHANNELS_FILTERS;               // of a block
constexpr int few_positions = BOPS_CONV_FEW_CHANNELS_POSITIONS;           // of a tile, at most
constexpr int few_group = BOPS_CONV_FEW_CHANNELS_GROUP;                   // neighbouring positions that one instruction multiplies
constexpr int few_groups_of_warp = few_positions / few_group / few_warps; // groups of a tile that a warp has, at most
constexpr int unit_channels = 4;                                          // of a pixel that a thread loads at once, a unit: a pixel has one or two
// Units of a thread that are being loaded while a tile is multiplied. Units of the following rows beyond 4 for each thread are loaded and stored one
// by one after the tile; more units ahead would take four registers each while the sums are in registers, too.
constexpr int units_ahead = 4;

// Divides numbers whose product with the divisor is below 2^32, by multiplying with the reciprocal.
struct divider {
    uint32_t by, reciprocal;
    __host__ __device__ __forceinline__ explicit divider(int by) : by(uint32_t(by)), reciprocal(0xffffffffu / uint32_t(by) + 1) {}
    __device__ __forceinline__ int quotient(int of) const { return by == 1 ? of : int(__umulhi(uint32_t(of), reciprocal)); }
};

// Sizes in shared memory.
struct patch_shape {
    int pixel_bytes;
    int pitch;              // bytes of a row
    int rows;               // rows that a tile sees
    int step;               // rows that it sees in addition to those of the tile above it
    int ring_rows;          // rows of the ring
    int row_chunks, chunks; // chunks under one row of the kernel, and under all its rows
    int position_bytes;     // distance of neighbouring positions
    int units;              // units of a row
    divider by_units{1};
    __host__ __device__ __forceinline__ patch_shape(const bops_conv_few_channels_params &params, const bops_conv_few_channels_choice &choice,
                                                    int element_bytes) {
        pixel_bytes = int(choice.padded) * element_bytes;
        row_chunks = (int(params.kernel[1]) * pixel_bytes + 15) / 16, chunks = row_chunks * int(params.kernel[0]);
        position_bytes = int(params.stride[1]) * pixel_bytes;
        pitch = (int(choice.columns) - 1) * position_bytes + row_chunks * 16;
        rows = (int(choice.rows) - 1) * int(params.stride[0]) + int(params.kernel[0]);
        const int down = int(choice.rows * params.stride[0]);
        step = down < rows ? down : rows, ring_rows = rows + step;
        units = pitch / (unit_channels * element_bytes), by_units = divider(units);
    }
    __host__ __device__ __forceinline__ int ring_bytes() const { return ring_rows * pitch; }
};

// A tile of y: its sample, its first row and its first column.
struct few_tile {
    uint32_t sample, row, column;
    bool follows; // whether the next tile is the one below this one
};
struct few_tiles {
    uint32_t down, across, count; // tiles of a sample from top to bottom, and from left to right; tiles of all samples
    __host__ __device__ __forceinline__ few_tiles(const bops_conv_few_channels_params &params, const bops_conv_few_channels_choice &choice) {
        down = (params.y_extents[0] + choice.rows - 1) / choice.rows, across = (params.y_extents[1] + choice.columns - 1) / choice.columns;
        count = down * across * params.samples;
    }
    __device__ __forceinline__ few_tile at(const bops_conv_few_channels_choice &choice, uint32_t index) const {
        const uint32_t strip = index / down, in_strip = index - strip * down, sample = strip / across;
        return {sample, in_strip * choice.rows, (strip - sample * across) * choice.columns, in_strip + 1 < down};
    }
    // The first tile of a part, of which there are `parts`.
    __device__ __forceinline__ uint32_t first(uint32_t part, uint32_t parts) const { return uint32_t(uint64_t(count) * part / parts); }
};

// Four channels of a pixel in registers, on their way to shared memory.
template <typename T> struct unit {
    using raw = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
    raw v[unit_channels];

    // Loads without branches, so that all of them are in flight at once.
    __device__ __forceinline__ void load(const bops_conv_few_channels_params &params, const raw *from, bool is_there, int channel) {
        const raw *at = from + uint64_t(channel) * params.x.channel;
#pragma unroll
        for (int i = 0; i < unit_channels; ++i, at += params.x.channel) {
            const int exists = is_there && channel + i < int(params.channels);
            if constexpr (sizeof(T) == 2)
                asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.u16 %0, 0;\n@p ld.global.nc.u16 %0, [%1];\n}"
                             : "=h"(v[i])
                             : "l"(at), "r"(exists));
            else
                asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global.nc.u32 %0, [%1];\n}"
                             : "=r"(v[i])
                             : "l"(at), "r"(exists));
        }
    }
    __device__ __forceinline__ void store(uint32_t to) const {
        if constexpr (sizeof(T) == 2)
            asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(uint32_t(v[0]) | uint32_t(v[1]) << 16),
                         "r"(uint32_t(v[2]) | uint32_t(v[3]) << 16)
                         : "memory");
        else {
            uint32_t words[4] = {v[0], v[1], v[2], v[3]};
            gemm::round_factors<T>(words);
            gemm::store_chunk(to, words);
        }
    }
};

// `rows` rows of x on their way to the ring. Neighbouring threads have neighbouring units of a row.
template <typename T> struct patch_rows {
    const bops_conv_few_channels_params &params;
    const patch_shape &shape;
    uint32_t ring;
    const typename unit<T>::raw *sample;
    divider by_units;
    int units_of_pixel;
    int y, x; // coordinates of the first row and pixel
    int slot; // place of the first row in the ring
    int rows;

    __device__ __forceinline__ patch_rows(const bops_conv_few_channels_params &params, const bops_conv_few_channels_choice &choice,
                                          const patch_shape &shape, uint32_t ring, const void *x_operand, const few_tile &tile, int first, int slot,
                                          int rows)
        : params(params), shape(shape), ring(ring), by_units(shape.by_units), units_of_pixel(int(choice.padded) / unit_channels), slot(slot),
          rows(rows) {
        sample = static_cast<const typename unit<T>::raw *>(x_operand) + uint64_t(tile.sample) * params.x.sample;
        y = int(tile.row * params.stride[0]) + params.first[0] + first, x = int(tile.column * params.stride[1]) + params.first[1];
    }
    // A unit: its row, and its number in the row.
    struct cursor {
        int row, at;
    };
    __device__ __forceinline__ cursor place_of(int index) const {
        const int row = by_units.quotient(index);
        return {row, index - row * shape.units};
    }
    __device__ __forceinline__ void load(unit<T> &to, const cursor &c) const {
        const int pixel = units_of_pixel == 1 ? c.at : c.at / 2, channel = units_of_pixel == 1 ? 0 : c.at % 2 * unit_channels;
        const int line = y + c.row, column = x + pixel;
        const bool is_there = c.row < rows && uint32_t(line) < params.x_extents[0] && uint32_t(column) < params.x_extents[1];
        const int64_t offset = is_there ? int64_t(line) * int64_t(params.x.axes[0]) + int64_t(column) * int64_t(params.x.axes[1]) : 0;
        to.load(params, sample + offset, is_there, channel);
    }
    __device__ __forceinline__ void store(const unit<T> &from, const cursor &c) const {
        if (c.row >= rows) return;
        int to = slot + c.row;
        to -= to >= shape.ring_rows ? shape.ring_rows : 0;
        from.store(ring + uint32_t(to * shape.pitch + c.at * unit_channels * int(sizeof(T))));
    }
    // Loads the first units of every thread.
    __device__ __forceinline__ void load_ahead(unit<T> (&to)[units_ahead]) const {
#pragma unroll
        for (int i = 0; i < units_ahead; ++i) load(to[i], place_of(int(threadIdx.x) + i * few_threads));
    }
    // Stores the units of load_ahead, and loads and stores all others.
    __device__ __forceinline__ void store_ahead(const unit<T> (&from)[units_ahead]) const {
#pragma unroll
        for (int i = 0; i < units_ahead; ++i) store(from[i], place_of(int(threadIdx.x) + i * few_threads));
#pragma unroll 1
        for (int index = int(threadIdx.x) + units_ahead * few_threads; index < rows * shape.units; index += few_threads) {
            unit<T> one;
            load(one, place_of(index)), store(one, place_of(index));
        }
    }
};

// The ring with the rows of x that the current tile sees. The rows that the next tile adds go to places of rows that only the tile before this one saw, so
// that one barrier for each tile is enough.
template <typename T> struct patch_ring {
    const bops_conv_few_channels_params &params;
    const bops_conv_few_channels_choice &choice;
    const patch_shape &shape;
    const void *x_operand;
    uint32_t ring;
    int slot; // place of the first row of the current tile

    __device__ __forceinline__ int place_of(int row) const {
        const int at = slot + row;
        return at >= shape.ring_rows ? at - shape.ring_rows : at;
    }
    // Brings all rows of a tile to the ring, which no thread may be reading.
    __device__ __forceinline__ void fill(const few_tile &tile) {
        slot = 0;
        const patch_rows<T> all(params, choice, shape, ring, x_operand, tile, 0, 0, shape.rows);
        unit<T> first[units_ahead];
        all.load_ahead(first), all.store_ahead(first);
    }
    // The rows that the tile below sees in addition to those of `tile`.
    __device__ __forceinline__ patch_rows<T> below(const few_tile &tile) const {
        const int down = int(choice.rows * params.stride[0]);
        return {params, choice, shape, ring, x_operand, tile, down + shape.rows - shape.step, place_of(shape.rows), shape.step};
    }
    __device__ __forceinline__ void descend() { slot = place_of(shape.step); }
};

// Brings a chunk of dy: of its eight elements `left` are at `from` and on, `step` apart, the others become 0. is_chunk: all eight are one chunk in memory.
__device__ __forceinline__ void fetch_chunk(uint32_t to, const uint16_t *from, uint64_t step, int left, bool is_chunk) {
    if (is_chunk) gemm::copy_or_zero<16>(to, from, left * 2);
    else {
        uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (e < left) words[e / 2] |= uint32_t(__ldg(from + uint64_t(e) * step)) << (16 * (e % 2));
        gemm::store_chunk(to, words);
    }
}

// A chunk under the kernel: the kernel's row, and the chunk's number in that row.
struct chunk_place {
    int row, chunk;
    __device__ __forceinline__ chunk_place(const patch_shape &shape, int index)
        : row(index / shape.row_chunks), chunk(index - row * shape.row_chunks) {}
};

} // namespace conv
} // namespace bops
