// What forward and backward of LocalResponseNorm share: the powers of d = k + alpha / size * sum of x^2 over a window, where elements lie, and how
// a form finds its instantiation.
#pragma once
#include "../../bops_local_response_norm.h"
#include "../../common/launch.cuh"
#include "../../common/memory.cuh"

namespace bops {

// The numbers of the formula in the accumulator's type.
template <typename A> struct response {
    A scale, k, beta;
    A slope;              // 2 alpha beta / size
    uint32_t half_powers; // which power the roots are to give: 1 for beta 0.5, 2 for beta 1, 3 for beta 0.75
};

template <typename A, typename P> response<A> response_of(const P &p) {
    response<A> r;
    r.scale = A(p.scale), r.k = A(p.k), r.beta = A(p.beta), r.slope = A(2.0 * p.scale * p.beta);
    r.half_powers = p.beta == 0.75 ? 3 : p.beta == 0.5 ? 1 : 2;
    return r;
}

template <typename P> bool has_roots(const P &p) { return (p.beta == 0.75 || p.beta == 0.5 || p.beta == 1.0) && p.k >= 0x1p-126 && p.k <= 0x1p127; }

// d^-beta of a window, and `ratio` x / d.
template <bool roots, typename A> struct reduced { A power, ratio; };

// 1 / sqrt(v) and sqrt(v) with relative errors of at most 2^-22.9 and 2^-23 for normal numbers, exact for infinity and 0, NaN for NaN.
__device__ __forceinline__ float reciprocal_root_of_normal(float v) {
    float root;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    return root;
}
__device__ __forceinline__ float root_of_normal(float v) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    return root;
}

// roots: beta is 0.5, 0.75 or 1, and k is a normal number, so that d is normal or infinite. The ratio is x times 1 / sqrt(d) twice, which has no
// subnormal intermediate where 1 / d is one.
template <bool roots, typename A> __device__ __forceinline__ reduced<roots, A> reduce(const response<A> &r, A sum, A x) {
    const A d = fma(r.scale, sum, r.k);
    if constexpr (roots) {
        const A root = reciprocal_root_of_normal(d);
        const A factor = r.half_powers == 3 ? root_of_normal(root) : r.half_powers == 1 ? A(1) : root;
        return {root * factor, (x * root) * root};
    } else {
        return {pow(d, -r.beta), x / d};
    }
}

// The sum of value(e) for e in first .. end, in chains of 16 additions, so that rounding errors do not grow with the length.
template <typename A, typename F> __device__ __forceinline__ A long_sum(int64_t first, int64_t end, const F &value) {
    constexpr int chain = 16;
    A total = 0, part = 0;
    for (int blocks = 0; end - first >= chain; first += chain) {
        A sum = 0;
#pragma unroll
        for (int i = 0; i < chain; ++i) sum += value(first + i);
        part += sum;
        if (++blocks == chain) total += part, part = 0, blocks = 0;
    }
    A rest = 0;
    for (; first < end; ++first) rest += value(first);
    return total + (part + rest);
}

// The channels of a window, cut off at the first and the last channel of the tensor.
struct window {
    int64_t first, end;
};
// The window of `size` channels that begins `before` channels before channel c.
__device__ __forceinline__ window window_of(int64_t c, int64_t before, int64_t size, int64_t channels) {
    return {max(c - before, int64_t(0)), min(c - before + size, channels)};
}

// The sum of squares over a window whose channels lie `step` elements apart.
template <typename T> __device__ __forceinline__ accumulator_t<T> sum_of_squares(const T *x, uint64_t step, const window &w) {
    using A = accumulator_t<T>;
    return long_sum<A>(w.first, w.end, [&](int64_t c) {
        const A v = widen(x[c * step]);
        return v * v;
    });
}

__device__ __forceinline__ uint64_t offset_of(const bops_channel_strides &s, uint64_t n, uint64_t c, uint64_t position) {
    return n * s.batch + c * s.channel + position * s.spatial;
}

// Quotient and remainder, by a 32-bit division where both numbers fit.
__device__ __forceinline__ void divide(uint64_t value, uint64_t by, uint64_t &quotient, uint64_t &remainder) {
    if ((value | by) >> 32) quotient = value / by, remainder = value - quotient * by;
    else {
        const uint32_t q = uint32_t(value) / uint32_t(by);
        quotient = q, remainder = uint32_t(value) - q * uint32_t(by);
    }
}

// The sample, channel and position of element i in the order in which the form direct numbers elements.
struct element_place {
    uint64_t n, c, position;
    __device__ __forceinline__ element_place(uint64_t i, uint64_t channels, uint64_t spatial, bool channels_first) {
        uint64_t rest;
        if (channels_first) {
            divide(i, channels, rest, c);
            divide(rest, spatial, n, position);
        } else {
            divide(i, spatial, rest, position);
            divide(rest, channels, n, c);
        }
    }
};

// A vector of a channel, zeros if the channel does not exist.
template <int bytes, typename T> __device__ __forceinline__ packed<bytes> load_channel(const T *from, bool is_inside) {
    if (is_inside) return load<bytes, false>(from);
    return packed<bytes>{};
}

constexpr int response_threads = 256; // most threads of a block of the forms rows, tile and direct; those of direct
constexpr int walk_threads = 128;     // of a block of the form walk

// What a thread of the form walk owns of each channel. One part: a vector; the vectors of all samples are numbered through. Several parts: single
// elements; a warp owns 32 * parts neighbours of one sample, a thread every 32nd of them, and the warps of all samples are numbered through.
template <int parts> struct walk_place {
    static constexpr int distance = 32; // elements between the parts of a thread
    uint64_t n, first;
    int count; // elements of this warp that exist, from `first` - lane on
    __device__ __forceinline__ explicit walk_place(uint64_t vectors) {
        if constexpr (parts == 1) {
            divide(uint64_t(blockIdx.x) * walk_threads + threadIdx.x, vectors, n, first);
            count = 32;
        } else {
            const uint64_t ranges = (vectors + 32 * parts - 1) / (32 * parts);
            divide(uint64_t(blockIdx.x) * (walk_threads / 32) + threadIdx.x / 32, ranges, n, first);
            first *= 32 * parts;
            count = int(min(vectors - first, uint64_t(32 * parts)));
            first += threadIdx.x % 32;
        }
    }
    __device__ __forceinline__ bool has(int part) const { return parts == 1 || int(threadIdx.x % 32) + part * distance < count; }
    static uint64_t blocks(uint64_t batch, uint64_t vectors) {
        constexpr uint64_t warps = walk_threads / 32;
        return parts == 1 ? (batch * vectors + walk_threads - 1) / walk_threads
                          : (batch * ((vectors + 32 * parts - 1) / (32 * parts)) + warps - 1) / warps;
    }

    // Stores the results of a warp. With several parts of 4 bytes, rows begin at any element: values move between the threads so that each store of
    // the warp covers whole sectors of 32 bytes, since partly written sectors cost more.
    template <typename T, int bytes, int width> __device__ __forceinline__ void write(T *to, const float (&result)[parts][width]) const {
        if constexpr (parts == 1 || bytes < 4) {
#pragma unroll
            for (int p = 0; p < parts; ++p)
                if (has(p)) store<bytes, false>(to + p * distance, pack<T, bytes>(result[p]));
        } else {
            const int lane = threadIdx.x % 32;
            const int shift = int(reinterpret_cast<uintptr_t>(to - lane) % 32 / sizeof(T));
            float before = 0;
#pragma unroll
            for (int p = 0; p <= parts; ++p) {
                const float moved = p < parts ? __shfl_sync(~0u, result[p < parts ? p : 0][0], lane - shift) : 0.0f;
                const int at = p * 32 - shift; // elements from `to`
                if (lane + at >= 0 && lane + at < count) {
                    const float value[1] = {lane >= shift ? moved : before};
                    store<bytes, false>(to + at, pack<T, bytes>(value));
                }
                before = moved;
            }
        }
    }
};

// Calls f(tag of the type) where that has at most 32 bits: f64 has the form direct alone.
template <typename F> bops_status for_narrow(bops_dtype dtype, F &&f) {
    return for_float(dtype, [&](auto tag) -> bops_status {
        if constexpr (sizeof(typename decltype(tag)::type) < 8) return f(tag);
        else return bops_status(cudaErrorInvalidValue);
    });
}

// Calls f(integral_constant of the window's size) for the sizes that kernels unroll.
template <typename F> bops_status for_size(uint64_t size, F &&f) {
    if (size == 3) return f(std::integral_constant<int, 3>());
    if (size == 5) return f(std::integral_constant<int, 5>());
    if (size == 7) return f(std::integral_constant<int, 7>());
    if (size == 9) return f(std::integral_constant<int, 9>());
    return bops_status(cudaErrorInvalidValue);
}

// Calls f(integral_constant of the window's size, of the bytes of an access, of the accesses of a thread) for the form walk.
template <typename T, typename F> bops_status for_walk(uint64_t size, const bops_local_response_norm_walk_choice &c, F &&f) {
    const auto of_size = [&](auto bytes, auto parts) { return for_size(size, [&](auto window) { return f(window, bytes, parts); }); };
    constexpr int narrow_bytes = int(sizeof(T));
    if (c.vector_bytes == 4 * narrow_bytes) return of_size(std::integral_constant<int, 4 * narrow_bytes>(), std::integral_constant<int, 1>());
    if (c.vector_bytes != narrow_bytes) return bops_status(cudaErrorInvalidValue);
    if (c.thread_vectors == 4) return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 4>());
    if (c.thread_vectors == 2) return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 2>());
    return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 1>());
}

// Calls f(integral_constant of the bytes of an access) for the form tile.
template <typename T, typename F> bops_status for_tile(uint32_t vector_bytes, F &&f) {
    if (vector_bytes == 16) return f(std::integral_constant<int, 16>());
    return f(std::integral_constant<int, int(sizeof(T))>());
}

// Form rows: the values of the channels next to a thread's own, through shared memory. A position of the block has 4 zeros, the `width` values of
// each of its threads, and 4 zeros.
extern __shared__ __align__(16) float response_shared[];
template <int width> struct neighbours {
    float4 *own; // of this thread
    __device__ __forceinline__ neighbours(int array) {
        constexpr int quads = width / 4;
        const uint32_t row = blockDim.x * quads + 2;
        own = reinterpret_cast<float4 *>(response_shared) + (array * blockDim.y + threadIdx.y) * row + 1 + threadIdx.x * quads;
        if (threadIdx.x == 0) own[-1] = make_float4(0, 0, 0, 0);
        if (threadIdx.x == blockDim.x - 1) own[quads] = make_float4(0, 0, 0, 0);
    }
    static uint32_t bytes(uint32_t threads, uint32_t positions, int arrays) { return arrays * positions * (threads * (width / 4) + 2) * 16; }
    __device__ __forceinline__ void put(const float (&value)[width]) const {
#pragma unroll
        for (int q = 0; q < width / 4; ++q) own[q] = make_float4(value[4 * q], value[4 * q + 1], value[4 * q + 2], value[4 * q + 3]);
    }
    // The thread's values with 4 before and 4 after them.
    __device__ __forceinline__ void get(const float (&value)[width], float (&all)[width + 8]) const {
        const float4 left = own[-1], right = own[width / 4];
        all[0] = left.x, all[1] = left.y, all[2] = left.z, all[3] = left.w;
#pragma unroll
        for (int i = 0; i < width; ++i) all[4 + i] = value[i];
        all[width + 4] = right.x, all[width + 5] = right.y, all[width + 6] = right.z, all[width + 7] = right.w;
    }
};

// Blocks that take `items` items, `per_block` each.
inline uint32_t blocks_of(uint64_t items, uint64_t per_block) { return uint32_t((items + per_block - 1) / per_block); }

} // namespace bops

// Defines a form's functions, declared by BOPS_LOCAL_RESPONSE_NORM_FORM, by bops::for_`form`_form.
#define BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(form, pass)                                                                                             \
    BOPS_DEFINE_FORM(bops_local_response_norm_##pass##form, bops_dtype, bops_local_response_norm_##pass##params,                                     \
                     bops_local_response_norm_##form##_choice, bops_local_response_norm_##pass##operands, bops::for_##form##_form)
