// What forward and backward of LocalResponseNorm share: d = k + alpha / size * sum of x^2, its powers, and where elements lie.
#pragma once
#include "../../bops_local_response_norm.h"
#include "../../common/launch.cuh"
#include "../../common/memory.cuh"

namespace bops {

// The numbers of the formula in the accumulator's type.
template <typename A> struct response {
    A scale, k, beta;
    A slope;              // 2 alpha beta / size
    uint32_t half_powers; // 2 beta where that is 1, 2 or, for 0.75, stands as 3: powers that roots give
};

template <typename A, typename P> response<A> response_of(const P &p) {
    response<A> r;
    r.scale = A(p.scale), r.k = A(p.k), r.beta = A(p.beta), r.slope = A(2.0 * p.scale * p.beta);
    r.half_powers = p.beta == 0.75 ? 3 : p.beta == 0.5 ? 1 : 2;
    return r;
}

template <typename P> bool has_roots(const P &p) { return (p.beta == 0.75 || p.beta == 0.5 || p.beta == 1.0) && p.k >= 0x1p-126 && p.k <= 0x1p127; }

// d^-beta of a window, and x / d as `ratio`.
template <bool roots, typename A> struct reduced { A power, ratio; };

// Within 2^-22.9 and 2^-23; infinity, 0 and NaN as they should be.
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

// roots: beta is 0.5, 0.75 or 1 and k a normal number, so that d is one or infinite. Products with 1 / sqrt(d) twice reach further than
// one with 1 / d.
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

// The sum of value(e) for e from first to end, in short chains whatever the length.
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

// First and past the last channel of the window of channel c, within the channels.
struct window {
    int64_t first, end;
};
__device__ __forceinline__ window window_of(int64_t c, int64_t before, int64_t size, int64_t channels) {
    return {max(c - before, int64_t(0)), min(c - before + size, channels)};
}

// The sum of squares over a window, `step` elements between channels.
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

// Quotient and remainder; mostly both fit 32 bits.
__device__ __forceinline__ void divide(uint64_t value, uint64_t by, uint64_t &quotient, uint64_t &remainder) {
    if ((value | by) >> 32) quotient = value / by, remainder = value - quotient * by;
    else {
        const uint32_t q = uint32_t(value) / uint32_t(by);
        quotient = q, remainder = uint32_t(value) - q * uint32_t(by);
    }
}

// The sample, channel and position of element i of the dense order that DIRECT walks in.
struct element_place {
    uint64_t n, c, position;
    __device__ __forceinline__ element_place(uint64_t i, uint64_t channels, uint64_t spatial, bool is_last) {
        uint64_t rest;
        if (is_last) {
            divide(i, channels, rest, c);
            divide(rest, spatial, n, position);
        } else {
            divide(i, spatial, rest, position);
            divide(rest, channels, n, c);
        }
    }
};

// A vector of a channel that may lie outside of them: then zeros.
template <int bytes, typename T> __device__ __forceinline__ packed<bytes> load_channel(const T *from, bool is_inside) {
    if (is_inside) return load<bytes, false>(from);
    return packed<bytes>{};
}

constexpr int response_threads = 256;
constexpr int walk_threads = 128;

// What a thread of a WALK owns. One part: a vector; those of all samples are numbered through. More: single elements; a warp owns
// 32 * parts neighbours of one sample, each thread every 32nd, and the warps of all samples are numbered through.
template <int parts> struct walk_place {
    static constexpr int distance = 32; // vectors between parts
    uint64_t n, first;
    int count; // of the vectors from `first` - lane on, those of this warp that exist
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

    // Writes the results of a warp. Single elements of 4 bytes, of a row that starts anywhere: values move to the threads at whose places
    // sectors of 32 bytes begin and end, since partly written sectors cost more.
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
                const int at = p * 32 - shift; // from the own place
                if (lane + at >= 0 && lane + at < count) {
                    const float value[1] = {lane >= shift ? moved : before};
                    store<bytes, false>(to + at, pack<T, bytes>(value));
                }
                before = moved;
            }
        }
    }
};

// Calls f(integral_constant of the window, of the bytes of an access, of the accesses of a thread) for a WALK.
template <typename T, typename F> bops_status for_walk(uint64_t size, const bops_local_response_norm_choice &c, F &&f) {
    const auto of_size = [&](auto bytes, auto parts) -> bops_status {
        if (size == 3) return f(std::integral_constant<int, 3>(), bytes, parts);
        if (size == 5) return f(std::integral_constant<int, 5>(), bytes, parts);
        if (size == 7) return f(std::integral_constant<int, 7>(), bytes, parts);
        if (size == 9) return f(std::integral_constant<int, 9>(), bytes, parts);
        return bops_status(cudaErrorInvalidValue);
    };
    constexpr int narrow_bytes = int(sizeof(T));
    if (c.vec_bytes == 4 * narrow_bytes) return of_size(std::integral_constant<int, 4 * narrow_bytes>(), std::integral_constant<int, 1>());
    if (c.vec_bytes != narrow_bytes) return bops_status(cudaErrorInvalidValue);
    if (c.parts == 4) return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 4>());
    if (c.parts == 2) return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 2>());
    return of_size(std::integral_constant<int, narrow_bytes>(), std::integral_constant<int, 1>());
}

// The same for the bytes of an access of a TILE.
template <typename T, typename F> bops_status for_tile(uint32_t vec_bytes, F &&f) {
    if (vec_bytes == 16) return f(std::integral_constant<int, 16>());
    return f(std::integral_constant<int, int(sizeof(T))>());
}

// Calls f(integral_constant of the window) for ROWS.
template <typename F> bops_status for_rows(uint64_t size, F &&f) {
    if (size == 3) return f(std::integral_constant<int, 3>());
    if (size == 5) return f(std::integral_constant<int, 5>());
    if (size == 7) return f(std::integral_constant<int, 7>());
    if (size == 9) return f(std::integral_constant<int, 9>());
    return bops_status(cudaErrorInvalidValue);
}

// Values of the channels next to a thread's own, through shared memory: [position of the block][zeros, 4 or 8 values a thread, zeros].
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
    // The own values with 4 before and 4 after.
    __device__ __forceinline__ void get(const float (&value)[width], float (&all)[width + 8]) const {
        const float4 left = own[-1], right = own[width / 4];
        all[0] = left.x, all[1] = left.y, all[2] = left.z, all[3] = left.w;
#pragma unroll
        for (int i = 0; i < width; ++i) all[4 + i] = value[i];
        all[width + 4] = right.x, all[width + 5] = right.y, all[width + 6] = right.z, all[width + 7] = right.w;
    }
};

// Runs f on the kernel, prepares or launches.
struct prepare_kernel {
    template <typename... P, typename... Q> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const Q &...) const {
        return prepare(kernel, shape);
    }
};
struct launch_kernel {
    bops_stream stream;
    template <typename... P> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const std::remove_cv_t<P> &...arguments) const {
        return launch(kernel, shape, stream, arguments...);
    }
};

} // namespace bops
