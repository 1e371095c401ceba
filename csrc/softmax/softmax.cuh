// What forward and backward of softmax share: exponentials, lines, and their reductions.
#pragma once
#include <cmath>

#include "../bops_softmax.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../common/row_reduce.cuh"

namespace bops {

constexpr float most_float = 3.402823466e38f; // the greatest finite numbers
constexpr double most_double = 1.7976931348623157e308;
constexpr float ln_2 = 0.693147180559945f; // log(2)
constexpr double log2_of_e = 1.4426950408889634074;

// |scale| as kernels multiply by it. halving is 1/2 if |scale| < 1, else 1: if scaled elements differ by a finite number, so do the elements times
// halving. high + low = |scale| / halving, and log2_high + log2_low = log2(e) |scale| / halving: each a float and its remainder, of one sign, so that
// an infinite element never leads to infinity minus infinity. double: only high. 16-bit elements: log2_high = log2(e) |scale|.
template <typename A> struct softmax_scale { A halving, high, low, log2_high, log2_low; };

// Tensors of forward: x, y; of backward: y, dy, dx.
template <typename A> struct softmax_arguments {
    uint64_t outer, dim, inner, extent1, extent2;
    bops_row_strides strides[3];
    uint64_t steps[3];
    const void *in[2];
    void *out;
    softmax_scale<A> scale;
    A signed_scale; // backward: scale with its sign
    uint32_t is_log, is_negative;
    uint32_t cluster, slice_vectors; // slice_vectors: of a row, that one block of its cluster holds
    uint32_t across, chunks, overlaps;
    uint32_t scratch_bytes; // of a tile
    A *parts, *totals;      // split: [sums of a part][outer][chunks][inner], [sums of a line][outer][inner]
};

// Loads a vector of elements of type T from as many elements of type In, which may be narrower.
template <typename T, int bytes, bool streamed = true, typename In> __device__ __forceinline__ packed<bytes> load_as(const In *from) {
    if constexpr (std::is_same_v<T, In>) {
        return load<bytes, streamed>(from);
    } else {
        accumulator_t<T> values[bytes / sizeof(T)];
        unpack<In>(load<bytes / int(sizeof(T)) * int(sizeof(In)), streamed>(from), values);
        return pack<T, bytes>(values);
    }
}

__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }

// The larger of each pair of elements; of a NaN and a number, the number.
template <typename T, int bytes> __device__ __forceinline__ packed<bytes> larger(const packed<bytes> &a, const packed<bytes> &b) {
    packed<bytes> to;
    if constexpr (sizeof(T) == 2 && bytes > 2) {
        using pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) {
            const pair most = __hmax2(*reinterpret_cast<const pair *>(&a.word[i]), *reinterpret_cast<const pair *>(&b.word[i]));
            to.word[i] = *reinterpret_cast<const uint32_t *>(&most);
        }
    } else {
        accumulator_t<T> x[bytes / sizeof(T)], y[bytes / sizeof(T)];
        unpack<T>(a, x);
        unpack<T>(b, y);
#pragma unroll
        for (int i = 0; i < bytes / int(sizeof(T)); ++i) x[i] = larger(x[i], y[i]);
        to = pack<T, bytes>(x);
    }
    return to;
}

// The largest element.
template <typename T, int bytes> __device__ __forceinline__ accumulator_t<T> largest(const packed<bytes> &v) {
    accumulator_t<T> x[bytes / sizeof(T)];
    unpack<T>(v, x);
#pragma unroll
    for (int i = 1; i < bytes / int(sizeof(T)); ++i) x[0] = larger(x[0], x[i]);
    return x[0];
}

// Minus every element.
template <typename T, int bytes> __device__ __forceinline__ void negate(packed<bytes> &v) {
    if constexpr (bytes == 2) v.word[0] ^= 0x8000;
    else
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i)
            if (sizeof(T) < 8 || i % 2) v.word[i] ^= sizeof(T) == 2 ? 0x80008000u : 0x80000000u;
}

// Every element -infinity.
template <typename T, int bytes> __device__ __forceinline__ packed<bytes> least() {
    packed<bytes> to;
#pragma unroll
    for (int i = 0; i < (bytes + 3) / 4; ++i) {
        if constexpr (bytes == 2) to.word[i] = std::is_same_v<T, __half> ? 0xfc00 : 0xff80;
        else if constexpr (sizeof(T) == 8) to.word[i] = i % 2 ? 0xfff00000u : 0;
        else to.word[i] = std::is_same_v<T, __half> ? 0xfc00fc00u : std::is_same_v<T, float> ? 0xff800000u : 0xff80ff80u;
    }
    return to;
}

__device__ __forceinline__ float power_of_two(float v) { // results below 2^-126 are 0
    float to;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(to) : "f"(v));
    return to;
}

// 2^(d * (high + low)), d * high <= 0. The integer part of the exponent comes off exactly, so that the error does not grow with the exponent.
__device__ __forceinline__ float power_of_two(float d, float high, float low) {
    constexpr float integer = 12583039.0f; // 1.5 * 2^23 + 127: added to a number, it leaves the biased exponent in the last bits
    const float shifted = fmaxf(fmaf(d, high, integer), integer - 126), n = shifted - integer;
    const float fraction = fmaf(d, low, fmaf(d, high, -n));
    return power_of_two(fraction) * __uint_as_float(__float_as_uint(shifted) << 23);
}

__device__ __forceinline__ double reciprocal(double v) { return 1.0 / v; }
__device__ __forceinline__ float reciprocal(float v) { return __frcp_rn(v); }
__device__ __forceinline__ double logarithm(double v) { return log(v); }
__device__ __forceinline__ float logarithm(float v) { return logf(v); }

// An element x of a line enters an exponential, or a logarithm, as x * factor - offset.
template <typename A> struct softmax_shift { A factor, offset; };

// exp(scale * (x - max)). 16-bit elements: one fused operation scales and subtracts the scaled maximum, whose rounding is the same for a whole line.
// f32: the exponent is computed with twice the precision. f64: the library's exponential.
template <typename T> struct exponential {
    using A = accumulator_t<T>;
    softmax_scale<A> scale;

    // The maximum as the functions below take it: times halving, so that maxima differ by finite numbers; of 16-bit elements as it is.
    __device__ __forceinline__ A maximum(A largest) const { return sizeof(T) == 2 ? largest : largest * scale.halving; }
    // The shift of a line with this maximum. The offset of the shift is finite even if the line is all -infinity, so that exponentials and sum are 0.
    //
    // 16-bit elements: rounding max * factor shifts all exponents of the line by up to half an ulp of the product, which must stay small. If
    // |max * log2_high| exceeds 2^20, the exponent of every smaller element is at least 2^9 lower, since distinct 16-bit numbers differ by 2^-11
    // of their magnitude. The exponentials of such a line are 1 and 0, and any factor with |max * factor| >= 2^20 yields them. The factor is
    // therefore lowered to a power of two with |max * factor| < 2^21, which makes the offset exact. For |max| < 2^-107 that power would exceed
    // f32: it is infinite, and the minimum leaves log2_high.
    __device__ __forceinline__ softmax_shift<A> shift(A max) const {
        if constexpr (sizeof(T) == 8) return {scale.halving, larger(max, -most_double)};
        else if constexpr (sizeof(T) == 4) return {scale.halving, larger(max, -most_float)};
        else {
            const uint32_t exponent = __float_as_uint(fmaxf(fabsf(max), 0x1p-108f)) & 0x7f800000u;
            const float factor = fminf(scale.log2_high, __uint_as_float((uint32_t(2 * 127 + 20) << 23) - exponent));
            return {factor, larger(__fmul_rn(max, factor), -most_float)};
        }
    }
    // The shifts of several lines. 16-bit elements: lowering the factor is behind a branch, which rarely runs. The branch also ends the basic block,
    // within which ptxas would otherwise hoist loads until registers run out.
    template <int width> __device__ __forceinline__ void shifts(const A (&max)[width], softmax_shift<A> (&to)[width]) const {
        bool needs_factor = false;
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (sizeof(T) == 2) {
                const A offset = __fmul_rn(max[i], scale.log2_high);
                needs_factor |= fabsf(offset) > 0x1p20f;
                to[i] = {scale.log2_high, larger(offset, -most_float)};
            } else to[i] = shift(max[i]);
        }
        if (__builtin_expect(needs_factor, 0))
#pragma unroll
            for (int i = 0; i < width; ++i) to[i] = shift(max[i]);
    }
    __device__ __forceinline__ A operator()(A x, const softmax_shift<A> &shift) const {
        const A d = fma(x, shift.factor, -shift.offset);
        if constexpr (sizeof(T) == 2) return power_of_two(d);
        else return of_difference(d);
    }
    // exp(scale * d / halving), of f32 and f64.
    __device__ __forceinline__ A of_difference(A d) const {
        if constexpr (sizeof(T) == 8) return exp(scale.high * d);
        else return power_of_two(d, scale.log2_high, scale.log2_low);
    }
    // The factor from a sum about one maximum to one about a larger maximum. 16-bit elements: if the factor of a shift is not log2_high, it is 1
    // or 0; two infinite products would make it NaN, which fmaxf turns into 0.
    __device__ __forceinline__ A between(A max, A larger_max) const {
        if constexpr (sizeof(T) >= 4) return of_difference(max - larger_max);
        else {
            const A power = power_of_two(__fmul_rn(max, scale.log2_high) - __fmul_rn(larger_max, scale.log2_high));
            return max == larger_max ? 1.0f : fmaxf(power, 0.0f);
        }
    }
    __device__ __forceinline__ void rescale(A &sum, A max, A larger_max) const { sum = sum == A(0) ? A(0) : sum * between(max, larger_max); }
    // log(sum(exp(scale * (x - max)))).
    __device__ __forceinline__ A log_sum(A max, A sum) const {
        A to = logarithm(sum);
        if constexpr (sizeof(T) == 2) {
            const softmax_shift<A> about = shift(max);
            to -= ln_2 * fmaf(max, about.factor, -about.offset);
        }
        return to;
    }
    // scale * (x - max) - log_sum, with the shift of log_shift.
    __device__ __forceinline__ A log(A x, const softmax_shift<A> &shift, A log_sum) const {
        const A d = fma(x, shift.factor, -shift.offset);
        if constexpr (sizeof(T) == 4) return fmaf(d, scale.high, fmaf(d, scale.low, -log_sum));
        else return fma(d, scale.high, -log_sum);
    }
    __device__ __forceinline__ softmax_shift<A> log_shift(A max) const { return {scale.halving, sizeof(T) == 2 ? max * scale.halving : max}; }
};

// What the outputs of a line are computed from: its shift, and 1 / sum or, for log-softmax, log(sum).
template <typename T> struct softmax_line {
    using A = accumulator_t<T>;
    softmax_shift<A> shift;
    A last;

    __device__ __forceinline__ softmax_line() {}
    // From the maximum and the result of `last_of`.
    __device__ __forceinline__ softmax_line(A max, A last, const exponential<T> &e, bool is_log)
        : shift(is_log ? e.log_shift(max) : e.shift(max)), last(last) {}
    static __device__ __forceinline__ A last_of(A max, A sum, const exponential<T> &e, bool is_log) {
        return is_log ? e.log_sum(max, sum) : reciprocal(sum);
    }
};

// The largest value of each aligned group of lanes. A whole warp uses the integer reduction: with the bits of negative floats flipped, floats order
// as integers do.
template <typename A> __device__ __forceinline__ A warp_max(A value, uint32_t lanes) {
    if constexpr (sizeof(A) == 4)
        if (lanes == 32) {
            const auto ordered = [](int v) { return v ^ (v >> 31 & 0x7fffffff); };
            return __int_as_float(ordered(__reduce_max_sync(~0u, ordered(__float_as_int(value)))));
        }
    for (uint32_t offset = lanes >> 1; offset > 0; offset >>= 1) value = larger(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// Merges the parts of a line that the lanes of a warp hold; both halves of the warp hold the same 16 parts. A part whose sum is 0 has no elements, or
// only -infinity.
template <typename T> __device__ __forceinline__ void merge_warp(accumulator_t<T> &max, accumulator_t<T> &sum, const exponential<T> &e) {
    const accumulator_t<T> whole = warp_max(max, 32);
    e.rescale(sum, max, whole);
    accumulator_t<T> sums[1] = {sum};
    warp_sum(sums, 16);
    max = whole, sum = sums[0];
}

// Merges at most 16 parts in memory, `stride` elements apart.
template <typename T> __device__ __forceinline__ void merge_parts(const accumulator_t<T> *maxima, const accumulator_t<T> *sums, uint32_t stride,
                                                                  uint32_t count, accumulator_t<T> &max, accumulator_t<T> &sum,
                                                                  const exponential<T> &e) {
    const uint32_t part = threadIdx.x % 16;
    const bool is_part = part < count;
    max = is_part ? maxima[part * stride] : -accumulator_t<T>(INFINITY);
    sum = is_part ? sums[part * stride] : accumulator_t<T>(0);
    merge_warp<T>(max, sum, e);
}

// ---- split: chunks of lines -------------------------------------------------------------------------------------------------

// Threads of a block that holds rows, and of softmax_backward_channels_shared, at most: each has up to 128 registers, and 64 in
// softmax_backward_rows_shared, of which two blocks share an SM. channel_bounds has the limit of the other blocks that hold lines of channels.
constexpr int softmax_threads_limit = 512;
constexpr int softmax_split_threads = 256; // of a block of the forms `split`
// Vectors of a row that a thread takes from a chunk and loads together. Larger chunks leave fewer parts to merge, smaller ones more blocks for few
// rows.
constexpr int softmax_split_vectors = 4;
// Elements of each line of channels in a chunk, which one thread takes. Larger chunks leave fewer parts to merge, smaller ones more blocks for few
// lines.
constexpr int softmax_split_elements = 32;
constexpr int softmax_merge_threads = 128; // of a block that merges the results of chunks

// One item of work: 1024 vectors of a row.
template <typename T, int vec_bytes> struct row_chunk {
    static constexpr int width = vec_bytes / int(sizeof(T));
    uint64_t row, first;
    uint32_t count;
    __device__ __forceinline__ row_chunk(uint64_t item, uint64_t dim, uint32_t chunks)
        : row(item / chunks), first((item - row * chunks) * (softmax_split_threads * softmax_split_vectors)),
          count(uint32_t(min(dim / width - first, uint64_t(softmax_split_threads * softmax_split_vectors)))) {}
    __device__ __forceinline__ bool has(int v) const { return v * softmax_split_threads + threadIdx.x < count; }
    __device__ __forceinline__ uint64_t column(int v) const { return (first + v * softmax_split_threads + threadIdx.x) * width; }
    template <typename In = T, typename A>
    __device__ __forceinline__ void load(packed<vec_bytes> (&data)[softmax_split_vectors], const softmax_arguments<A> &a, int tensor) const {
        const In *const from = static_cast<const In *>(a.in[tensor]) + row_offset(uint32_t(row), a.strides[tensor], a.extent1, a.extent2);
#pragma unroll
        for (int v = 0; v < softmax_split_vectors; ++v) data[v] = has(v) ? load_as<T, vec_bytes>(from + column(v)) : packed<vec_bytes>{};
        if (a.is_negative)
#pragma unroll
            for (int v = 0; v < softmax_split_vectors; ++v) negate<T>(data[v]);
    }
};

// One item of work: 256 vectors along inner, of a chunk of lines.
template <typename T, int vec_bytes> struct channel_chunk {
    static constexpr int width = vec_bytes / int(sizeof(T));
    uint64_t block, chunk, vector;
    __device__ __forceinline__ channel_chunk(uint64_t item, uint64_t inner, uint32_t chunks) {
        const uint64_t tiles = (inner / width + softmax_split_threads - 1) / softmax_split_threads, rest = item / tiles;
        block = rest / chunks, chunk = rest - block * chunks;
        vector = (item - rest * tiles) * softmax_split_threads + threadIdx.x;
    }
    __device__ __forceinline__ bool has(uint64_t inner) const { return vector < inner / width; }
    __device__ __forceinline__ uint32_t elements(uint64_t dim) const {
        return uint32_t(min(dim - chunk * softmax_split_elements, uint64_t(softmax_split_elements)));
    }
    template <typename A> __device__ __forceinline__ uint64_t offset(const softmax_arguments<A> &a, int tensor) const {
        return row_offset(uint32_t(block), a.strides[tensor], a.extent1, a.extent2) + chunk * softmax_split_elements * a.steps[tensor] +
               vector * width;
    }
};

template <typename A> __device__ __forceinline__ uint64_t channel_items(const softmax_arguments<A> &a, int width) {
    return (a.inner / width + softmax_split_threads - 1) / softmax_split_threads * a.outer * a.chunks;
}

// ---- channels: a block is (vectors along inner, threads along the axis) -------------------------------------------------------

// Where a thread's vector lies. `column` numbers all vectors along inner, one outer block after the other.
struct channel_column {
    uint32_t block, vector;
    __device__ __forceinline__ channel_column(uint32_t column, uint32_t inner_vectors)
        : block(column / inner_vectors), vector(column - block * inner_vectors) {}
};

// Consecutive values in shared memory, aligned to their size, at most to 16 bytes.
template <int count, typename A> struct alignas(count * sizeof(A) < 16 ? count * sizeof(A) : 16) value_group { A value[count]; };

// A block takes one or two tiles of `across` vectors side by side: blockDim = (threads of a tile, tiles). The second tile issues its loads after the
// first has issued its own, so that the first computes and stores while the second still loads.
// Number of the named barrier for the turns of both tiles: the tiles' own barriers have numbers 1 and 2.
constexpr int turn_barrier = 3;
template <int tiles> __device__ __forceinline__ uint32_t tile_of_block() { return tiles == 1 ? 0 : threadIdx.y; }
template <int tiles> __device__ __forceinline__ void tile_barrier() {
    if constexpr (tiles == 1) __syncthreads();
    else asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
}
template <int tiles> __device__ __forceinline__ void await_turn() {
    if (tiles == 2 && threadIdx.y == 1) asm volatile("bar.sync %0, %1;" ::"n"(turn_barrier), "r"(2 * blockDim.x) : "memory");
}
template <int tiles> __device__ __forceinline__ void pass_turn() {
    if (tiles == 2 && threadIdx.y == 0 && blockDim.y == 2) asm volatile("bar.arrive %0, %1;" ::"n"(turn_barrier), "r"(2 * blockDim.x) : "memory");
}

// Reduces `value`, an entry for each element of a vector, over the lanes of a warp that hold the same column, `across` lanes apart.
template <int width, typename A, typename Combine>
__device__ __forceinline__ void reduce_lanes(A (&value)[width], uint32_t across, const Combine &combine) {
#pragma unroll 1
    for (uint32_t offset = across; offset < 32; offset *= 2)
#pragma unroll
        for (int i = 0; i < width; ++i) value[i] = combine(value[i], __shfl_xor_sync(~0u, value[i], offset));
}

// Sums over the threads of a tile; every thread gets the result. `scratch` holds warps * across groups and is free after a barrier. at_once: pairs of
// groups that a thread loads before it adds them.
template <int tiles, int at_once, int width, typename A>
__device__ __forceinline__ void sum_channels(A (&value)[width], uint32_t across, value_group<width, A> *scratch) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, side = lane % across;
    reduce_lanes(value, across, [](A p, A q) { return p + q; });
    if (warps == 1) return;
    if (lane < across)
#pragma unroll
        for (int i = 0; i < width; ++i) scratch[warp * across + lane].value[i] = value[i];
    tile_barrier<tiles>();
    value_group<width, A> even = scratch[side], odd = scratch[across + side]; // two independent chains of additions
#pragma unroll at_once
    for (uint32_t w = 2; w < warps; w += 2) {
        const value_group<width, A> first = scratch[w * across + side];
#pragma unroll
        for (int i = 0; i < width; ++i) even.value[i] += first.value[i];
        if (w + 1 < warps) {
            const value_group<width, A> second = scratch[(w + 1) * across + side];
#pragma unroll
            for (int i = 0; i < width; ++i) odd.value[i] += second.value[i];
        }
    }
#pragma unroll
    for (int i = 0; i < width; ++i) value[i] = even.value[i] + odd.value[i];
}

// Merges maxima and the sums about them over the threads of a tile. If the tile has several warps, each thread merges one part of one line. Every
// thread gets the maxima of its lines in `max` and last(max, sum) in `sum`. `scratch` holds merge_floats() floats and is free after a barrier.
template <int tiles, typename T, int width, typename Last> __device__ __forceinline__ void merge_channels(float (&max)[width], float (&sum)[width],
                                                                                                          uint32_t across, float *scratch,
                                                                                                          const exponential<T> &e, const Last &last) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint32_t lines = across * width, pitch = 2 * lines + 8; // 8 floats of padding put the parts of a line into different banks
    float whole[width];
#pragma unroll
    for (int i = 0; i < width; ++i) whole[i] = max[i];
    reduce_lanes(whole, across, [](float p, float q) { return larger(p, q); });
#pragma unroll
    for (int i = 0; i < width; ++i) e.rescale(sum[i], max[i], whole[i]);
    reduce_lanes(sum, across, [](float p, float q) { return p + q; });
    if (warps == 1) {
#pragma unroll
        for (int i = 0; i < width; ++i) max[i] = whole[i], sum[i] = last(whole[i], sum[i]);
        return;
    }
    if (lane < across) {
        value_group<2 * width, float> pairs;
#pragma unroll
        for (int i = 0; i < width; ++i) pairs.value[2 * i] = whole[i], pairs.value[2 * i + 1] = sum[i];
        *reinterpret_cast<value_group<2 * width, float> *>(scratch + warp * pitch + lane * 2 * width) = pairs;
    }
    tile_barrier<tiles>();
    float *const maxima = scratch + warps * pitch, *const results = maxima + lines;
    const uint32_t shift = 32 - __clz(warps - 1), parts = 1u << shift;
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < lines << shift; item += blockDim.x) { // whole warps
        const uint32_t line = item >> shift, part = item % parts;
        float2 mine = make_float2(-INFINITY, 0);
        if (part < warps) mine = *reinterpret_cast<const float2 *>(scratch + part * pitch + line * 2);
        float line_max = mine.x, line_sum[1] = {mine.y};
#pragma unroll 1
        for (uint32_t offset = 1; offset < parts; offset *= 2) line_max = larger(line_max, __shfl_xor_sync(~0u, line_max, offset));
        e.rescale(line_sum[0], mine.x, line_max);
        warp_sum(line_sum, parts);
        if (part == 0) maxima[line] = line_max, results[line] = last(line_max, line_sum[0]);
    }
    tile_barrier<tiles>();
    const uint32_t side = lane % across * width;
    const auto all_maxima = *reinterpret_cast<const value_group<width, float> *>(maxima + side);
    const auto all_results = *reinterpret_cast<const value_group<width, float> *>(results + side);
#pragma unroll
    for (int i = 0; i < width; ++i) max[i] = all_maxima.value[i], sum[i] = all_results.value[i];
}

// ---- host -----------------------------------------------------------------------------------------------------------------

// The number of floats in the scratch of merge_channels.
inline uint32_t merge_floats(uint32_t warps, uint32_t lines) { return warps * (2 * lines + 8) + 2 * lines; }

// 16-bit elements: the nearest floats alone. f32: a truncated float and its remainder, which is 0 only if the scale is, since 0 times an infinity is
// NaN.
template <typename T> softmax_scale<accumulator_t<T>> split_scale(double scale) {
    const double magnitude = scale < 0 ? -scale : scale, doubling = magnitude < 1 ? 2 : 1;
    softmax_scale<accumulator_t<T>> to = {};
    to.halving = accumulator_t<T>(1 / doubling);
    if constexpr (sizeof(T) == 8) {
        to.high = magnitude * doubling;
    } else {
        const auto split = [](double v, float &high, float &low) {
            v = v < 3e38 ? v : 3e38; // below the greatest float
            high = float(v);
            if (v > 0 && high == 0) high = 1e-45f; // the least subnormal float
            if (sizeof(T) == 2) return;
            if (double(high) > v && high > 1e-45f) high = nextafterf(high, 0.0f);
            low = fmaxf(float(v - double(high)), high * 0x1p-40f); // a 2^-40th is far below the budget of a result
            if (v > 0 && low <= 0) low = 1e-45f;
        };
        split(magnitude * doubling, to.high, to.low);
        split(magnitude * (sizeof(T) == 2 ? 1 : doubling) * log2_of_e, to.log2_high, to.log2_low);
    }
    return to;
}

// Runs f(type_tag of y, type_tag of x or dx), which differ where the one is f32 and the other has 16 bits.
template <typename F> bops_status for_types(const bops_softmax_specialisation &of, const F &f) {
    if (of.x_dtype == BOPS_F16 && of.dtype != of.x_dtype) return f(type_tag<float>{}, type_tag<__half>{});
    if (of.x_dtype == BOPS_BF16 && of.dtype != of.x_dtype) return f(type_tag<float>{}, type_tag<__nv_bfloat16>{});
    return for_float(of.dtype, [&](auto tag) { return f(tag, tag); });
}

// The lines of a launch. The pass adds pointers and scales, a form what its choice decides.
template <typename T> softmax_arguments<accumulator_t<T>> lines_of(const bops_softmax_specialisation &of, const bops_softmax_params &p) {
    softmax_arguments<accumulator_t<T>> a = {};
    a.outer = p.outer, a.dim = p.dim, a.inner = p.inner, a.extent1 = p.extent1, a.extent2 = p.extent2;
    for (int tensor = 0; tensor < 3; ++tensor) a.strides[tensor] = p.strides[tensor], a.steps[tensor] = p.steps[tensor];
    a.is_log = of.is_log;
    return a;
}

// Runs f(type_tag of y, type_tag of x or dx, integral_constant of the bytes of an access) for elements of at most 4 bytes, which lines on chip have.
template <typename F> bops_status for_types_on_chip(const bops_softmax_specialisation &of, uint32_t vec_bytes, const F &f) {
    return for_types(of, [&](auto of_y, auto other) -> bops_status {
        using T = typename decltype(of_y)::type;
        if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
        else return for_access<T>(vec_bytes, [&](auto bytes) { return f(of_y, other, bytes); });
    });
}

// The launches of each form, which also fill what its choice decides of the arguments. width: elements of an access.
template <typename A> launch_shape rows_resident_shape(softmax_arguments<A> &a, const bops_softmax_rows_resident_choice &c, uint32_t width) {
    a.cluster = c.cluster, a.overlaps = c.overlaps;
    a.slice_vectors = uint32_t((a.dim / width + c.cluster - 1) / c.cluster);
    launch_shape shape;
    shape.grid = c.cluster > 1 ? dim3(c.grid / c.cluster, c.cluster) : dim3(c.grid);
    shape.block = dim3(c.threads_per_row, c.threads / c.threads_per_row);
    shape.cluster = c.cluster;
    shape.overlaps_previous = c.overlaps;
    return shape;
}

template <typename A> launch_shape rows_shared_shape(softmax_arguments<A> &a, const bops_softmax_rows_shared_choice &c, uint32_t width) {
    a.cluster = c.cluster;
    a.slice_vectors = uint32_t((a.dim / width + c.cluster - 1) / c.cluster);
    launch_shape shape;
    shape.grid = dim3(c.grid / c.cluster, c.cluster); // a cluster along y is faster than one along x
    shape.block = dim3(c.threads);
    shape.cluster = c.cluster;
    shape.shared_bytes = a.slice_vectors * 16;
    return shape;
}

// scratch_floats(warps of a tile, its lines): where more than one warp shares a line.
template <typename A, typename Choice, typename Scratch>
launch_shape channels_shape(softmax_arguments<A> &a, const Choice &c, uint32_t width, const Scratch &scratch_floats) {
    const uint32_t threads = c.threads / c.tiles, warps = threads / 32;
    a.across = c.across, a.overlaps = c.overlaps;
    a.scratch_bytes = warps == 1 ? 0 : scratch_floats(warps, c.across * width) * uint32_t(sizeof(float));
    launch_shape shape;
    shape.grid = dim3(c.grid);
    shape.block = dim3(threads, c.tiles);
    shape.shared_bytes = c.tiles * a.scratch_bytes;
    shape.overlaps_previous = c.overlaps;
    return shape;
}

// sums: values that each part of a line comes to.
template <typename A> launch_shape split_shape(softmax_arguments<A> &a, const bops_softmax_split_choice &c, uint32_t sums, void *workspace) {
    a.chunks = c.chunks;
    a.parts = static_cast<A *>(workspace);
    a.totals = a.parts + sums * a.outer * c.chunks * a.inner;
    launch_shape shape;
    shape.grid = dim3(c.grid), shape.block = dim3(softmax_split_threads);
    return shape;
}

// Runs action for the three kernels of split, in order; stops at the first failure.
template <typename Action, typename Arguments, typename Parts, typename Merge, typename Apply>
bops_status run_split(const Action &action, const launch_shape &shape, const Arguments &a, Parts parts, Merge merge, Apply apply) {
    launch_shape merging = shape;
    merging.block = dim3(softmax_merge_threads);
    bops_status status = action(parts, shape, a);
    if (!status) status = action(merge, merging, a);
    return status ? status : action(apply, shape, a);
}

} // namespace bops

// Defines a form's functions, declared by BOPS_SOFTMAX_FORM, by bops::`form`.
#define BOPS_DEFINE_SOFTMAX_FORM(form, pass)                                                                                                         \
    BOPS_DEFINE_FORM(bops_softmax_##pass##form, bops_softmax_specialisation, bops_softmax_params, bops_softmax_##form##_choice,                      \
                     bops_softmax_##pass##operands, bops::form)
