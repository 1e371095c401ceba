// What the depthwise forms share: which outputs a thread has, and the rows that its windows see.
#pragma once
#include "../bops_conv.h"
#include "../gemm/gemm.cuh"

namespace bops {
namespace conv {

constexpr int depthwise_threads = BOPS_CONV_DEPTHWISE_THREADS;

// Columns of a thread whose windows slide: as many as registers hold.
template <int channels, int kernel> constexpr int strip_of = (channels > 1 ? 4 : 8) / (kernel > 5 ? 2 : 1);

__host__ __device__ __forceinline__ uint32_t shares(uint32_t extent, uint32_t each) { return (extent + each - 1) / each; }

// The outputs of a thread: `rows` by `columns` positions of some channels.
struct strip_place {
    uint32_t sample, channel, row, rows, column, columns;
};

// How many strips the positions of a channel are.
__host__ __device__ __forceinline__ uint64_t strips_of(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice) {
    return uint64_t(params.samples) * shares(params.out_extents[0], choice.rows) * shares(params.out_extents[1], choice.columns);
}

// Strip `index` of a channel, and that channel.
template <int columns>
__device__ __forceinline__ strip_place place_of_strip(const bops_conv_depthwise_params &params, uint32_t rows, uint32_t index, uint32_t channel) {
    const uint32_t across = shares(params.out_extents[1], columns), bands = shares(params.out_extents[0], rows);
    const uint32_t band = index / across, sample = band / bands;
    strip_place at;
    at.sample = sample, at.channel = channel;
    at.row = (band - sample * bands) * rows, at.column = (index - band * across) * columns;
    at.rows = min(rows, params.out_extents[0] - at.row), at.columns = min(uint32_t(columns), params.out_extents[1] - at.column);
    return at;
}

// The threads of a block: channels side by side, of each of which some strips.
struct team {
    uint32_t lane, worker, workers, tile; // tile: of channels
    uint64_t group;                       // of strips

    __device__ __forceinline__ team(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice) {
        lane = threadIdx.x % choice.lanes, worker = threadIdx.x / choice.lanes, workers = depthwise_threads / choice.lanes;
        const uint32_t tiles = shares(params.channels, choice.channels * choice.lanes);
        group = blockIdx.x / tiles, tile = blockIdx.x - uint32_t(group) * tiles;
    }
    __device__ __forceinline__ uint32_t channel(const bops_conv_depthwise_choice &choice) const {
        return (tile * choice.lanes + lane) * choice.channels;
    }
};

// Where the first of a thread's channels lies that it gathers from.
__device__ __forceinline__ uint64_t gathered_of(const bops_conv_depthwise_params &params, const strip_place &at) {
    const uint32_t channel = params.repeats == 1 ? at.channel : at.channel / params.repeats;
    return at.sample * params.gathered.sample + uint64_t(channel) * params.sources * params.gathered.channel;
}

// `count` neighbours of a row, in a few accesses. channels > 1: of each position so many channels. Else there is a margin of single ones on both sides
// of fours that may be one access each.
template <typename T, int channels, int count, int margin> struct neighbours {
    static constexpr int bytes = channels * int(sizeof(T)), four = 4 * int(sizeof(T));
    static constexpr int fours = channels > 1 ? 0 : (count - 2 * margin) / 4, singles = count - 4 * fours;
    packed<bytes> single[singles > 0 ? singles : 1];
    packed<four> middle[fours > 0 ? fours : 1];

    static __device__ __forceinline__ constexpr int place_of(int i) { return i < margin || channels > 1 ? i : i + 4 * fours; }
    // there: a bit for each neighbour that exists.
    __device__ __forceinline__ void load_from(const T *from, uint64_t step, uint32_t there, bool whole) {
#pragma unroll
        for (int i = 0; i < singles; ++i) {
#pragma unroll
            for (int w = 0; w < int(sizeof(single[i].word) / sizeof(single[i].word[0])); ++w) single[i].word[w] = 0;
            if (there >> place_of(i) & 1) single[i] = load<bytes, false>(from + place_of(i) * step);
        }
#pragma unroll
        for (int m = 0; m < fours; ++m)
#pragma unroll
            for (int w = 0; w < four / 4; ++w) middle[m].word[w] = 0;
        if (fours > 0 && whole) {
#pragma unroll
            for (int m = 0; m < fours; ++m)
                if (there >> (margin + 4 * m) & 1) middle[m] = load<four, false>(from + (margin + 4 * m));
        } else if (fours > 0 && there != 0) {
#pragma unroll
            for (int i = 0; i < 4 * fours; ++i) {
                if (!(there >> (margin + i) & 1)) continue;
                const packed<int(sizeof(T))> one = load<int(sizeof(T)), false>(from + (margin + i) * step);
                if constexpr (sizeof(T) == 4) middle[i / 4].word[i % 4] = one.word[0];
                else middle[i / 4].word[i % 4 / 2] |= uint32_t(one.word[0]) << (i % 2 * 16);
            }
        }
    }
    __device__ __forceinline__ void get(float (&to)[count][channels]) const {
#pragma unroll
        for (int i = 0; i < singles; ++i) unpack<T>(single[i], to[place_of(i)]);
        if constexpr (channels == 1)
#pragma unroll
            for (int m = 0; m < fours; ++m) {
                float values[4];
                unpack<T>(middle[m], values);
#pragma unroll
                for (int i = 0; i < 4; ++i) to[margin + 4 * m + i][0] = values[i];
            }
    }
};

// The rows that the windows of a strip see, one after the other.
template <typename T, int channels, int kernel> struct row_walk {
    static constexpr int count = strip_of<channels, kernel> + kernel - 1;
    using row = neighbours<T, channels, count, (kernel - 1) / 2>;
    const T *next;   // the first column of the next row
    uint32_t there;  // columns that exist
    int32_t index;   // of the next row
    uint32_t extent; // of rows
    bool whole;

    __device__ __forceinline__ row_walk(const bops_conv_depthwise_params &params, const bops_conv_depthwise_choice &choice, const T *gathered,
                                        const strip_place &at) {
        const int32_t column = int32_t(at.column) + params.first[1];
        index = int32_t(at.row) + params.first[0], extent = params.gathered_extents[0], whole = choice.gathered_whole != 0;
        next = gathered + gathered_of(params, at) + int64_t(index) * int64_t(params.gathered.axes[0]) +
               int64_t(column) * int64_t(params.gathered.axes[1]);
        there = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) there |= uint32_t(uint32_t(column + i) < params.gathered_extents[1]) << i;
    }
    __device__ __forceinline__ void fetch(const bops_conv_depthwise_params &params, row &to, bool wanted) {
        to.load_from(next, params.gathered.axes[1], wanted && uint32_t(index) < extent ? there : 0u, whole);
        next += params.gathered.axes[0], ++index;
    }
};

} // namespace conv
} // namespace bops
