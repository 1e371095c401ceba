// What forward and backward of LocalResponseNorm share: the powers of d = k + alpha / size * sum of x^2 over a window, where elements lie, and how
// a form finds its instantiation.
#pragma once
#include "../../bops_local_response_norm.h"
#include "../../common/dispatch.cuh"
#include "../../common/launch.cuh"
#include "../../common/memory.cuh"

namespace bops {

// The numbers of the formula in the accumulator's type.
template <typename A> struct response {
    A scale, k, beta;
    A slope;              // 2 alpha beta / size
    uint32_t half_powers; // as in the params
};

template <typename A, typename P> response<A> response_of(const P &p) {
    response<A> r;
    r.scale = A(p.scale), r.k = A(p.k), r.beta = A(p.beta), r.slope = A(2.0 * p.scale * p.beta);
    r.half_powers = p.half_powers;
    return r;
}

// The arguments of the kernels of a pass with the params P and the operands O.
template <typename A, typename P, typename O> struct response_arguments {
    P p;
    O o;
    response<A> r;
    uint32_t chunk;          // walk, tile: channels that a block gives results for
    uint32_t chunk_room;     // tile: channels of the chunk, its halo, and one vector; slot_of(chunk_room + 31) slots have room for a second one
    uint32_t channels_first; // direct: neighbouring threads take neighbouring channels
};

// d^-beta of a window, and `ratio` x / d.
template <typename A> struct reduced { A power, ratio; };

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

// Finite elements may have squares whose sum overflows. A power of 0 would make zeros of them, so that an infinite d counts as NaN: 0 d is added to
// what is NaN then.
//
// roots: half_powers is not 0, so that d is normal or infinite. The ratio is x times 1 / sqrt(d) twice, which has no subnormal intermediate where 1 / d
// is one.
template <bool roots, typename A> __device__ __forceinline__ reduced<A> reduce(const response<A> &r, A sum, A x) {
    const A d = fma(r.scale, sum, r.k);
    if constexpr (roots) {
        const A root = fma(A(0), d, reciprocal_root_of_normal(d));
        const A factor = r.half_powers == 3 ? root_of_normal(root) : r.half_powers == 1 ? A(1) : root;
        return {root * factor, (x * root) * root};
    } else {
        const A finite = fma(A(0), d, d);
        return {pow(finite, -r.beta), x / finite};
    }
}

__device__ __forceinline__ reduced<float> reduce(const response<float> &r, float sum, float x) {
    return r.half_powers ? reduce<true>(r, sum, x) : reduce<false>(r, sum, x);
}

// The sum of value(e) for e in first .. end: chains of 16 additions on two levels, and a third level with one addition for each 256 terms. Up to 4096
// terms the three levels have 48 additions in a row. Longer chains would have more on the first two levels, shorter ones more on the third.
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

// Forms rows and tile: the position of a thread's row of the block.
struct row_place {
    uint64_t n, position;
    bool exists;
    __device__ __forceinline__ row_place(uint64_t batch, uint64_t spatial) {
        const uint64_t row = uint64_t(blockIdx.x) * blockDim.y + threadIdx.y;
        exists = row < batch * spatial;
        divide(row, spatial, n, position);
    }
};

// A vector of a channel, zeros if the channel does not exist.
template <int bytes, typename T> __device__ __forceinline__ packed<bytes> load_channel(const T *from, bool is_inside) {
    if (is_inside) return load<bytes, false>(from);
    return packed<bytes>{};
}

constexpr int response_threads = 256; // of a block of the form direct; of a block of the forms rows and tile, at most
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

// Form rows: the values of the channels next to a thread's own, through shared memory. A position of the block has 4 zeros, the `width` values of
// each of its threads, and 4 zeros, since windows of up to 9 channels reach 4 beyond their own.
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

// Where element e of a tile lies in shared memory: a gap after every 32 elements puts neighbouring vectors in different banks. A tile of n elements takes
// less than slot_of(n + 31) slots; the rest has room for what the first and the last vector have beyond the halo.
__host__ __device__ __forceinline__ uint32_t slot_of(uint32_t e) { return e + e / 32; }

// Form tile: channels low .. high of some tensors to shared memory, in vectors of `bytes`; arrays of shared memory are `room` elements apart.
template <int bytes, int tensors, typename T>
__device__ __forceinline__ void load_tile(const T *const (&from)[tensors], int64_t low, int64_t high, float *values, uint32_t room) {
    constexpr int width = bytes / int(sizeof(T));
    for (int64_t c = low + threadIdx.x * width; c < high; c += blockDim.x * width) {
        packed<bytes> data[tensors];
#pragma unroll
        for (int i = 0; i < tensors; ++i) data[i] = load<bytes, false>(from[i] + c);
#pragma unroll
        for (int i = 0; i < tensors; ++i) {
            float loaded[width];
            unpack<T>(data[i], loaded);
#pragma unroll
            for (int j = 0; j < width; ++j) values[i * room + slot_of(uint32_t(c - low) + j)] = loaded[j];
        }
    }
}

// Form tile: x / d and d^-beta of channel c from the x of a tile that begins at channel `low`.
template <typename P>
__device__ __forceinline__ reduced<float> reduce_in_tile(const P &p, const response<float> &r, const float *values, int64_t low, int64_t c) {
    const window w = window_of(c, int64_t(p.before), int64_t(p.size), int64_t(p.channels));
    const float sum = long_sum<float>(w.first - low, w.end - low, [&](int64_t e) {
        const float v = values[slot_of(uint32_t(e))];
        return v * v;
    });
    return reduce(r, sum, values[slot_of(uint32_t(c - low))]);
}

// ---- host -------------------------------------------------------------------------------------------------------------------
//
// The forms of a pass. Pass, the file's `response_pass`, names the types of params, operands and arguments, and the kernels. rows_arrays, tile_arrays:
// values of each channel in shared memory. halos: how many windows, less their own channel, a tile reads beyond its chunk.

// Blocks that take `items` items, `per_block` each.
inline uint32_t blocks_of(uint64_t items, uint64_t per_block) { return uint32_t((items + per_block - 1) / per_block); }

// The part of the arguments that does not depend on the form.
template <typename Pass, typename A>
typename Pass::template arguments<A> response_arguments_of(const typename Pass::params &p, const typename Pass::operands &o) {
    typename Pass::template arguments<A> a = {};
    a.p = p, a.o = o, a.r = response_of<A>(p);
    return a;
}

// Calls f(integral_constant of the window's size) for the sizes that kernels unroll.
template <typename F> bops_status for_window(uint64_t size, const F &f) { return for_value<3, 5, 7, 9>(size, f); }

template <typename Pass, typename Action> bops_status for_walk_form(bops_dtype dtype, const typename Pass::params &p,
                                                                    const bops_local_response_norm_walk_choice &c, const typename Pass::operands &o,
                                                                    void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) -> bops_status {
        using T = typename decltype(tag)::type;
        constexpr int element = int(sizeof(T));
        auto a = response_arguments_of<Pass, float>(p, o);
        a.chunk = c.chunk_channels;
        const auto run = [&](auto bytes, auto parts, auto roots) {
            constexpr int b = bytes, n = parts;
            launch_shape shape;
            shape.block = dim3(walk_threads);
            shape.grid = dim3(uint32_t(walk_place<n>::blocks(p.batch, p.spatial * element / b)), c.chunks);
            return for_window(p.size, [&](auto size) { return action(Pass::template walk<T, size, b, n, roots>(), shape, a); });
        };
        const std::integral_constant<int, element> single;
        const std::integral_constant<int, 1> one;
        const bool is_single = c.vector_bytes == element;
        if (!p.half_powers) return is_single && c.thread_vectors == 1 ? run(single, one, std::false_type()) : bops_status(cudaErrorInvalidValue);
        if (is_single) return for_value<1, 2, 4>(c.thread_vectors, [&](auto parts) { return run(single, parts, std::true_type()); });
        return c.vector_bytes == 4 * element ? run(std::integral_constant<int, 4 * element>(), one, std::true_type())
                                             : bops_status(cudaErrorInvalidValue);
    });
}

template <typename Pass, typename Action> bops_status for_rows_form(bops_dtype dtype, const typename Pass::params &p,
                                                                    const bops_local_response_norm_rows_choice &c, const typename Pass::operands &o,
                                                                    void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int width = 16 / int(sizeof(T));
        const auto a = response_arguments_of<Pass, float>(p, o);
        launch_shape shape;
        shape.block.x = uint32_t(p.channels) / width, shape.block.y = c.block_threads / shape.block.x;
        shape.grid = dim3(blocks_of(p.batch * p.spatial, shape.block.y));
        shape.shared_bytes = neighbours<width>::bytes(shape.block.x, shape.block.y, Pass::rows_arrays);
        return for_flag(p.half_powers > 0, [&](auto roots) {
            return for_window(p.size, [&](auto size) { return action(Pass::template rows<T, size, roots>(), shape, a); });
        });
    });
}

template <typename Pass, typename Action> bops_status for_tile_form(bops_dtype dtype, const typename Pass::params &p,
                                                                    const bops_local_response_norm_tile_choice &c, const typename Pass::operands &o,
                                                                    void *, const Action &action) {
    return for_narrow(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const uint64_t with_halo = uint64_t(c.chunk_channels) + Pass::halos * (p.size - 1) + c.vector_bytes / sizeof(T);
        auto a = response_arguments_of<Pass, float>(p, o);
        a.chunk = c.chunk_channels, a.chunk_room = uint32_t(with_halo < p.channels ? with_halo : p.channels);
        launch_shape shape;
        shape.block = dim3(c.position_threads, c.block_threads / c.position_threads);
        shape.grid = dim3(blocks_of(p.batch * p.spatial, shape.block.y), c.chunks);
        shape.shared_bytes = shape.block.y * Pass::tile_arrays * slot_of(a.chunk_room + 31) * 4;
        return for_value<16, int(sizeof(T))>(c.vector_bytes, [&](auto bytes) { return action(Pass::template tile<T, bytes>(), shape, a); });
    });
}

template <typename Pass, typename Action> bops_status for_direct_form(bops_dtype dtype, const typename Pass::params &p,
                                                                      const bops_local_response_norm_direct_choice &c,
                                                                      const typename Pass::operands &o, void *workspace, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        auto a = response_arguments_of<Pass, accumulator_t<T>>(p, o);
        a.channels_first = c.channels_first;
        launch_shape shape;
        shape.block = dim3(response_threads);
        shape.grid = dim3(blocks_of(p.batch * p.channels * p.spatial, response_threads));
        return Pass::template run_direct<T>(shape, a, workspace, action);
    });
}

} // namespace bops

// Defines a form's functions, declared by BOPS_LOCAL_RESPONSE_NORM_FORM, by bops::for_`form`_form for the file's `response_pass`.
#define BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(form, pass)                                                                                             \
    BOPS_DEFINE_FORM(bops_local_response_norm_##pass##form, bops_dtype, bops_local_response_norm_##pass##params,                                     \
                     bops_local_response_norm_##form##_choice, bops_local_response_norm_##pass##operands,                                            \
                     bops::for_##form##_form<bops::response_pass>)
