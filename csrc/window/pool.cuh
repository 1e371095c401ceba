// What the kernels of pooling share: which elements a window has, which windows see an element, and sums in short chains.
#pragma once
#include "../bops_pool.h"
#include "../common/memory.cuh"
#include "../movement/movement.cuh"

namespace bops {

constexpr int pool_threads = 256;     // of a block
constexpr int pool_plane_vectors = 8; // of a thread that writes whole planes

// The place of a part: the first of its channels, and its spatial positions, the last of them in parts.
struct pool_place {
    uint64_t sample;
    uint32_t channel, at[BOPS_POOL_AXES];

    template <bool channels_last> __device__ __forceinline__ static pool_place of(const bops_pool_params &params, uint64_t number, int width) {
        uint32_t part[4];
        uint64_t rest = number;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const split_number split(params.inner[k], params.is_long, rest);
            part[k] = split.rest, rest = split.quotient;
        }
        pool_place place;
        place.sample = rest;
        if constexpr (channels_last) place.channel = part[0] * width, place.at[2] = part[1], place.at[1] = part[2], place.at[0] = part[3];
        else place.at[2] = part[0], place.at[1] = part[1], place.at[0] = part[2], place.channel = part[3];
        return place;
    }
    // Where the plane of the part begins in a tensor.
    __device__ __forceinline__ uint64_t plane(const bops_pool_strides &strides) const { return sample * strides.sample + channel * strides.channel; }
};

// A number of elements behind a plane's first one.
__device__ __forceinline__ uint64_t within(const bops_pool_strides &strides, uint32_t d, uint32_t h, uint32_t w) {
    return d * strides.spatial[0] + h * strides.spatial[1] + w * strides.spatial[2];
}

__device__ __forceinline__ uint32_t divided(uint32_t number, const bops_divisor &by) {
    return __umulhi(number << 1, uint32_t(by.multiplier)) >> by.shift;
}

// Where parts of an extent begin and end that meet part `at` of `count` equal ones, among `others` equal ones.
__device__ __forceinline__ uint32_t shared_begin(uint32_t at, uint32_t count, uint32_t others) { return uint32_t(uint64_t(at) * others / count); }
__device__ __forceinline__ uint32_t shared_end(uint32_t at, uint32_t count, uint32_t others) {
    return uint32_t((uint64_t(at + 1) * others + count - 1) / count);
}

// What a window has along an axis: places, of which those from `first` to before `end` lie in x.
struct pool_span {
    int32_t start;   // where place 0 lies
    uint32_t step;   // from one place to the next
    uint32_t places; // of the window
    uint32_t first, end;
    uint32_t padded; // places up to the end of the padding

    __device__ __forceinline__ pool_span(const bops_pool_axis &axis, uint32_t is_adaptive, uint32_t output) {
        if (is_adaptive) {
            start = int32_t(shared_begin(output, axis.output, axis.input));
            step = 1, first = 0;
            places = end = padded = shared_end(output, axis.output, axis.input) - uint32_t(start);
            return;
        }
        start = int32_t(output * axis.stride.extent) - int32_t(axis.before);
        step = axis.dilation, places = axis.kernel;
        const int32_t left = int32_t(axis.input) - start, left_padded = left + int32_t(axis.after);
        if (step == 1) {
            first = start < 0 ? uint32_t(-start) : 0;
            end = min(uint32_t(max(left, 0)), places), padded = min(uint32_t(max(left_padded, 0)), places);
        } else {
            first = start < 0 ? (uint32_t(-start) + step - 1) / step : 0;
            end = min((uint32_t(max(left, 0)) + step - 1) / step, places);
            padded = min((uint32_t(max(left_padded, 0)) + step - 1) / step, places);
        }
        first = min(first, end);
    }
    __device__ __forceinline__ uint32_t element(uint32_t place) const { return uint32_t(start + int32_t(place * step)); }
    __device__ __forceinline__ uint32_t elements() const { return end - first; }
};

// Windows that may see an element of an axis: those that reach over it.
struct pool_seen {
    uint32_t first, end;
    __device__ __forceinline__ pool_seen(const bops_pool_axis &axis, uint32_t is_adaptive, uint32_t element, uint32_t last) {
        if (is_adaptive) {
            first = shared_begin(element, axis.input, axis.output);
            end = shared_end(last, axis.input, axis.output);
            return;
        }
        const uint32_t reach = axis.dilation * (axis.kernel - 1), at = element + axis.before;
        first = at > reach ? divided(at - reach + axis.stride.extent - 1, axis.stride) : 0;
        end = min(divided(last + axis.before, axis.stride) + 1, axis.output);
    }
};

// The place of an element in a window that reaches over it; false if it lies between two places.
__device__ __forceinline__ bool find_place(const pool_span &span, uint32_t element, uint32_t &place) {
    const uint32_t behind = uint32_t(int32_t(element) - span.start);
    place = span.step == 1 ? behind : behind / span.step;
    return place * span.step == behind && place < span.places;
}

// What an average is multiplied with.
template <typename A> __device__ __forceinline__ A share(const bops_pool_params &params, const pool_span &d, const pool_span &h, const pool_span &w) {
    if (params.factor != 0) return A(params.factor);
    const uint64_t places = params.excludes_padding ? uint64_t(d.elements()) * h.elements() * w.elements() : uint64_t(d.padded) * h.padded * w.padded;
    return A(1) / A(places > 0 ? places : 1);
}

// Whether the later of two numbers is greater: NaN is greater than any number, and of equals the earlier one stays.
template <typename A> __device__ __forceinline__ bool is_greater(A later, A earlier) { return !(later <= earlier) && earlier == earlier; }

// A sum of terms in chains of BOPS_POOL_CHAIN: those of a chain, those of chains, and those of that many chains.
template <typename A, int width> struct pool_sum {
    A chain[width], middle[width], top[width];
    uint32_t chains = 0;
    __device__ __forceinline__ pool_sum() {
#pragma unroll
        for (int k = 0; k < width; ++k) chain[k] = middle[k] = top[k] = 0;
    }
    // Ends a chain.
    __device__ __forceinline__ void end_chain() {
        ++chains;
        const bool is_full = chains % BOPS_POOL_CHAIN == 0;
#pragma unroll
        for (int k = 0; k < width; ++k) {
            middle[k] += chain[k], chain[k] = 0;
            if (is_full) top[k] += middle[k], middle[k] = 0;
        }
    }
    __device__ __forceinline__ A total(int k) const { return top[k] + middle[k] + chain[k]; }
};

// Tiles: windows that lie two elements apart along the last two axes, of 2 elements along each without padding, or of 3 with one before the first, and of one along the
// first axis. A thread has some rows of them, each with the windows of a vector of channels, or, of neighbours along the last axis, those that a vector of x has.
template <typename T, bool channels_last, int kernel> struct pool_tile {
    static constexpr int vector = 16 / int(sizeof(T));
    static constexpr int windows = channels_last ? vector : vector / 2; // neighbours
    static constexpr int before = kernel - 2;                           // elements of padding
    static constexpr int rows = channels_last && kernel == 2 ? 1 : BOPS_POOL_TILE_ROWS;

    // What averages divide by along an axis, at least 1 of windows that are there.
    __device__ __forceinline__ static int count(const bops_pool_axis &axis, bool excludes_padding, uint32_t output) {
        const int start = int(2 * output) - before, end = start + kernel, input = int(axis.input);
        return excludes_padding ? min(end, input) - max(start, 0) : min(end, input + int(axis.after)) - start;
    }
    template <typename A> __device__ __forceinline__ static A share(const bops_pool_params &params, uint32_t oh, uint32_t ow) {
        if (params.factor != 0) return A(params.factor);
        return A(1) / A(max(count(params.axes[1], params.excludes_padding, oh) * count(params.axes[2], params.excludes_padding, ow), 1));
    }
};

// Kernels are compiled for three kinds of pooling: norms of both orders have one.
constexpr int pool_norm = BOPS_POOLING_NORM1;

// The term of an element in the sum of its window.
template <int pooling, typename A> __device__ __forceinline__ A term(bool is_square, A value) {
    if constexpr (pooling == pool_norm) return is_square ? value * value : fabs(value);
    else return value;
}

// `width` neighbours.
template <typename T, int width> __device__ __forceinline__ void load_elements(const T *from, accumulator_t<T> (&to)[width]) {
    if constexpr (width == 1) to[0] = widen<T>(*from);
    else unpack<T>(*reinterpret_cast<const packed<width *int(sizeof(T))> *>(from), to);
}
template <typename T, int width> __device__ __forceinline__ void store_elements(T *to, const accumulator_t<T> (&from)[width]) {
    if constexpr (width == 1) *to = narrow<T>(from[0]);
    else *reinterpret_cast<packed<width *int(sizeof(T))> *>(to) = pack<T, width *int(sizeof(T))>(from);
}

// Offsets of `width` neighbours, `at` elements behind the first.
template <int width> __device__ __forceinline__ void load_offsets(const void *from, bool are_ints, uint64_t at, uint32_t (&to)[width]) {
    if (are_ints) {
#pragma unroll
        for (int k = 0; k < width; ++k) to[k] = static_cast<const uint32_t *>(from)[at + k];
    } else if constexpr (width == 1) to[0] = static_cast<const uint8_t *>(from)[at];
    else {
        constexpr int per_word = width < 4 ? width : 4;
        const packed<width> bytes = *reinterpret_cast<const packed<width> *>(static_cast<const uint8_t *>(from) + at);
#pragma unroll
        for (int k = 0; k < width; ++k) to[k] = uint32_t(bytes.word[k / per_word]) >> 8 * (k % per_word) & 0xff;
    }
}
template <int width> __device__ __forceinline__ void store_offsets(void *to, bool are_ints, uint64_t at, const uint32_t (&from)[width]) {
    if (are_ints) {
#pragma unroll
        for (int k = 0; k < width; ++k) static_cast<uint32_t *>(to)[at + k] = from[k];
    } else if constexpr (width == 1) static_cast<uint8_t *>(to)[at] = uint8_t(from[0]);
    else {
        constexpr int per_word = width < 4 ? width : 4;
        packed<width> bytes;
#pragma unroll
        for (int i = 0; i < width / per_word; ++i) {
            uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < per_word; ++j) word |= from[i * per_word + j] << 8 * j;
            bytes.word[i] = decltype(bytes.word[0] + 0)(word);
        }
        *reinterpret_cast<packed<width> *>(static_cast<uint8_t *>(to) + at) = bytes;
    }
}

// Where the greatest elements of `width` windows are: offsets in the window, and indices in the plane of x; of a window without elements 0 and -1.
template <int width> __device__ __forceinline__ void store_places(const bops_pool_params &params, const bops_pool_operands &operands,
                                                                  const pool_place &place, const pool_span &d, const pool_span &h, const pool_span &w,
                                                                  bool has_elements, const uint32_t (&offset)[width]) {
    const auto &at = place.at;
    if (operands.offsets) {
        const uint64_t to = place.plane(params.offsets) + within(params.offsets, at[0], at[1], at[2]);
        store_offsets(operands.offsets, params.has_int_offsets, to, offset);
    }
    if (operands.indices) {
        int64_t *const to = static_cast<int64_t *>(operands.indices) + place.plane(params.indices) + within(params.indices, at[0], at[1], at[2]);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const uint32_t of_row = offset[k] / w.places, of_plane = of_row / h.places;
            const uint64_t row = uint64_t(d.element(of_plane)) * params.axes[1].input + h.element(of_row - of_plane * h.places);
            const uint64_t index = row * params.axes[2].input + w.element(offset[k] - of_row * w.places);
            to[k * params.indices.channel] = has_elements ? int64_t(index) : -1;
        }
    }
}

inline launch_shape pool_shape(uint64_t blocks) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(blocks));
    shape.block = dim3(pool_threads);
    return shape;
}

// Calls f(type_tag<T>, pooling) with what a form is specialised for.
template <typename F> bops_status for_pooling(bops_dtype dtype, bops_pooling pooling, const F &f) {
    const bops_pooling kind = pooling == BOPS_POOLING_NORM2 ? bops_pooling(pool_norm) : pooling;
    return for_float(dtype, [&](auto tag) -> bops_status {
        return for_value<BOPS_POOLING_MAX, BOPS_POOLING_AVERAGE, pool_norm>(kind, [&](auto of) { return f(tag, of); });
    });
}

// Calls f(kernel) with the windows of tiles, of types that have tiles.
template <typename T, int pooling, typename F> bops_status for_tiles(uint32_t kernel, const F &f) {
    if constexpr (sizeof(T) <= 4 && pooling <= BOPS_POOLING_AVERAGE) return for_value<2, 3>(kernel, f);
    else return cudaErrorInvalidValue;
}

} // namespace bops
