// What the depthwise forms share: the strip of outputs that a thread has, and how the rows that its windows see come to it.
#pragma once
#include "../bops_conv.h"
#include "../gemm/gemm.cuh"

namespace bops {
namespace conv {

constexpr int depthwise_threads = BOPS_CONV_DEPTHWISE_THREADS; // of a block

// Rows in a thread's part of shared memory: one that is in use, and those that are being copied. Two rows of f32 on the way are more bytes than three
// of 16 bits. With a fourth one, an SM of an H100 would have room for two blocks of four channels and kernels of 7 by 7, not for three.
template <typename T> constexpr int row_slots = sizeof(T) == 2 ? 4 : 3;

// Columns of a strip: as many as registers hold and, with one channel, at most as many as one access has, so that neighbouring threads access neighbouring
// memory.
template <typename T, int channels, int kernel> constexpr int strip_of = channels > 1 ? (kernel > 5 ? 2 : 4) : (kernel > 5 || sizeof(T) == 4 ? 4 : 8);

// Copies to shared memory, or writes 0 there. It goes through the L1, since neighbouring threads copy overlapping rows.
template <int bytes> __device__ __forceinline__ void copy_or_zero(char *to, const void *from, bool there) {
    const int size = there ? bytes : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(bytes), "r"(size) : "memory");
}

// The number of parts of `each` that an extent has; the last one may be smaller.
__host__ __device__ __forceinline__ uint32_t shares(uint32_t extent, uint32_t each) { return (extent + each - 1) / each; }

// Strips of a channel: the rows, counted through all samples, are divided into chunks of choice.rows, and each chunk into strips of choice.columns.
__host__ __device__ __forceinline__ uint32_t strips_of(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice) {
    return shares(params.samples * params.out_extents[0], choice.rows) * shares(params.out_extents[1], choice.columns);
}

// The first output of a strip.
struct strip_place {
    uint32_t sample, row, channel, column;

    __device__ __forceinline__ uint64_t element_of(const bops_conv_strides &strides) const {
        return sample * strides.sample + channel * strides.channel + row * strides.axes[0] + column * strides.axes[1];
    }
};
// The distance from one row past the last row of a sample to the first row of the next sample.
__device__ __forceinline__ int64_t to_next_sample(const bops_conv_strides &strides, uint32_t rows) {
    return int64_t(strides.sample) - int64_t(rows) * int64_t(strides.axes[0]);
}

// The part of a strip's rows that lies in one sample.
struct part_of_strip {
    uint32_t rows;
    uint32_t left; // rows of the strip in the following samples
    uint32_t seen; // rows that the windows of this part see and that are still to come; 0: there is no further part

    __device__ __forceinline__ void start(uint32_t most, int kernel) {
        rows = min(left, most), left -= rows, seen = rows > 0 ? rows + (kernel - 1) : 0;
    }
};

// A thread's place in the work. In a block `lanes` neighbouring threads have neighbouring channels (or fours of them) of one strip; `workers` such teams
// have one strip each.
struct team {
    uint32_t lane, worker, workers;
    uint32_t tile;  // which channels the block has
    uint32_t group; // which strips the block has

    __device__ __forceinline__ team(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice) {
        lane = threadIdx.x % choice.lanes, worker = threadIdx.x / choice.lanes, workers = depthwise_threads / choice.lanes;
        const uint32_t tiles = shares(params.channels, choice.channels * choice.lanes);
        group = blockIdx.x / tiles, tile = blockIdx.x - group * tiles;
    }
    // The strip of this thread. part.left becomes its number of rows, which may be 0.
    template <int columns> __device__ __forceinline__ strip_place strip(const bops_conv_depthwise_params &params,
                                                                        const bops_conv_depthwise_choice &choice, part_of_strip &part) const {
        const uint32_t index = group * workers + worker, across = shares(params.out_extents[1], columns), chunk = index / across;
        const uint32_t first = chunk * choice.rows, all = params.samples * params.out_extents[0];
        strip_place at;
        at.sample = first / params.out_extents[0], at.row = first - at.sample * params.out_extents[0];
        at.channel = (tile * choice.lanes + lane) * choice.channels, at.column = (index - chunk * across) * columns;
        part.left = at.channel < params.channels && index < strips_of(params, choice) ? min(choice.rows, all - first) : 0;
        return at;
    }
};

inline uint32_t blocks_of(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice) {
    return shares(strips_of(params, choice), depthwise_threads / choice.lanes) * shares(params.channels, choice.channels * choice.lanes);
}

// `count` neighbouring columns of a row in a thread's part of shared memory; `margin` of them are on each side of the strip's columns. If channels > 1, a
// unit is one column with all its channels. Else units are parts of the strip's columns, and the margins are two edges, of which only the elements next
// to the strip are used. Unit i of all threads is contiguous. item, unit, edge: bytes. near: elements of an edge. edges: bytes before the edges.
template <typename T, int channels, int count, int margin> struct row_slot {
    static constexpr int item = int(sizeof(T)), of_strip = (count - 2 * margin) * item;
    static constexpr int unit = channels > 1 ? channels *item : of_strip < 16 ? of_strip : 16;
    static constexpr int units = channels > 1 ? count : of_strip / unit;
    static constexpr int near = margin > 2 ? 4 : margin, edge = channels > 1 || margin == 0 ? 0 : near *item < 4 ? 4 : near *item;
    static constexpr int edges = units * unit * depthwise_threads, bytes = edges + 2 * edge * depthwise_threads;

    static __device__ __forceinline__ char *unit_of(char *slot, int i) { return slot + (i * depthwise_threads + threadIdx.x) * unit; }
    static __device__ __forceinline__ char *edge_of(char *slot, int side) { return slot + edges + (side * depthwise_threads + threadIdx.x) * edge; }

    // from: the first of the columns. there: a bit for each column that exists; the columns of a unit or an edge exist all or not at all if run > 1. run:
    // gathered_run or out_run of bops_conv_depthwise_choice; only used if channels is 1.
    static __device__ __forceinline__ void fetch(char *slot, const T *from, uint64_t step, uint32_t there, uint32_t run) {
        if constexpr (channels > 1) {
#pragma unroll
            for (int i = 0; i < count; ++i) copy_or_zero<unit>(unit_of(slot, i), from + i * step, there >> i & 1);
        } else if (run > 1) {
            constexpr int each = unit / item;
            if constexpr (edge > 0) {
                copy_or_zero<edge>(edge_of(slot, 0), from + margin - edge / item, there & 1);
                copy_or_zero<edge>(edge_of(slot, 1), from + count - margin, there >> (count - margin) & 1);
            }
            if (each <= 4 || run >= each) {
#pragma unroll
                for (int i = 0; i < units; ++i) copy_or_zero<unit>(unit_of(slot, i), from + margin + each * i, there >> (margin + each * i) & 1);
            } else {
#pragma unroll
                for (int i = 0; i < units * each; i += 4)
                    copy_or_zero<4 * item>(unit_of(slot, i / each) + i % each * item, from + margin + i, there >> (margin + i) & 1);
            }
        } else {
            T values[count];
#pragma unroll
            for (int i = 0; i < count; ++i) {
                values[i] = narrow<T>(0.0f);
                if (there >> i & 1) values[i] = from[i * step];
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
                const int of_unit = (i - margin) * item;
                char *const to = i < margin            ? edge_of(slot, 0) + edge + of_unit
                                 : i >= count - margin ? edge_of(slot, 1) + of_unit - of_strip
                                                       : unit_of(slot, of_unit / unit) + of_unit % unit;
                *reinterpret_cast<T *>(to) = values[i];
            }
        }
    }
    static __device__ __forceinline__ void get(char *slot, float (&to)[count][channels]) {
#pragma unroll
        for (int i = 0; i < units; ++i) {
            float values[unit / item];
            unpack<T>(*reinterpret_cast<const packed<unit> *>(unit_of(slot, i)), values);
#pragma unroll
            for (int j = 0; j < unit / item; ++j) {
                const int at = i * (unit / item) + j;
                if constexpr (channels > 1) to[i][j] = values[j];
                else to[margin + at][0] = values[j];
            }
        }
        if constexpr (edge > 0) {
            float values[2][edge / item];
#pragma unroll
            for (int side = 0; side < 2; ++side) unpack<T>(*reinterpret_cast<const packed<edge> *>(edge_of(slot, side)), values[side]);
#pragma unroll
            for (int i = 0; i < margin; ++i) to[i][0] = values[0][edge / item - margin + i], to[count - margin + i][0] = values[1][i];
        }
    }
};

// Walks over the rows that the windows of a part of a strip see.
template <typename T, int channels, int kernel> struct row_walk {
    static constexpr int count = strip_of<T, channels, kernel> + kernel - 1;
    using slot = row_slot<T, channels, count, (kernel - 1) / 2>;
    const T *next;  // the first column of the next row
    uint32_t there; // columns that exist
    int32_t index;  // of the next row

    __device__ __forceinline__ row_walk(const bops_conv_depthwise_params &params, const void *gathered, const strip_place &at) {
        const uint32_t channel = params.repeats == 1 ? at.channel : at.channel / params.repeats;
        const int32_t column = int32_t(at.column) + params.first[1];
        index = int32_t(at.row) + params.first[0];
        next = static_cast<const T *>(gathered) + (at.sample * params.gathered.sample + channel * params.gathered.channel) +
               (int64_t(index) * int64_t(params.gathered.axes[0]) + int64_t(column) * int64_t(params.gathered.axes[1]));
        there = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) there |= uint32_t(uint32_t(column + i) < params.gathered_extents[1]) << i;
    }
    // Goes on to the next sample, after the rows that the last output of a sample sees.
    __device__ __forceinline__ void advance(const bops_conv_depthwise_params &params) {
        next += to_next_sample(params.gathered, params.out_extents[0] + (kernel - 1)), index = params.first[0];
    }
    __device__ __forceinline__ void fetch(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice, char *to) {
        slot::fetch(to, next, params.gathered.axes[1], uint32_t(index) < params.gathered_extents[0] ? there : 0u, choice.gathered_run);
        next += params.gathered.axes[0], ++index;
    }
};

// Calls step with the constants from 0 to phases - 1 in turn, as long as wanted() is true.
template <int phases, int phase = 0, typename Wanted, typename Step>
__device__ __forceinline__ void take_in_turn(const Wanted &wanted, const Step &step) {
    if (!wanted()) return;
    step(std::integral_constant<int, phase>{});
    if constexpr (phase + 1 < phases) take_in_turn<phases, phase + 1>(wanted, step);
}

} // namespace conv
} // namespace bops
