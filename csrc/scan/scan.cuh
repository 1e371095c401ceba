// What scans share: how values are combined, how elements are loaded and stored, and the launch between those of the pieces of long lines.
#pragma once
#include "../bops_scan.h"
#include "../common/dispatch.cuh"
#include "../pointwise/casts.cuh"
#include "../pointwise/walk.cuh"

namespace bops {

// What is known of some neighbouring positions: their value alone, the position of the greatest besides, or sum * exp(most).
template <typename A> struct scan_value { A value; };
template <typename A> struct scan_place {
    A value;
    int64_t at;
};
template <typename A> struct scan_exponent { A most, sum; };

template <typename A> __device__ __forceinline__ scan_value<A> shuffled_up(scan_value<A> x, uint32_t step) {
    return {__shfl_up_sync(~0u, x.value, step)};
}
template <typename A> __device__ __forceinline__ scan_place<A> shuffled_up(scan_place<A> x, uint32_t step) {
    return {__shfl_up_sync(~0u, x.value, step), __shfl_up_sync(~0u, x.at, step)};
}
template <typename A> __device__ __forceinline__ scan_exponent<A> shuffled_up(scan_exponent<A> x, uint32_t step) {
    return {__shfl_up_sync(~0u, x.most, step), __shfl_up_sync(~0u, x.sum, step)};
}
template <typename A> __device__ __forceinline__ scan_value<A> shuffled(scan_value<A> x, uint32_t lane) { return {__shfl_sync(~0u, x.value, lane)}; }
template <typename A> __device__ __forceinline__ scan_place<A> shuffled(scan_place<A> x, uint32_t lane) {
    return {__shfl_sync(~0u, x.value, lane), __shfl_sync(~0u, x.at, lane)};
}
template <typename A> __device__ __forceinline__ scan_exponent<A> shuffled(scan_exponent<A> x, uint32_t lane) {
    return {__shfl_sync(~0u, x.most, lane), __shfl_sync(~0u, x.sum, lane)};
}

// Less than every number.
template <typename A> __device__ __forceinline__ A lowest() {
    if constexpr (std::is_same_v<A, int64_t>) return INT64_MIN;
    else return A(-INFINITY);
}

// Whether the greatest of two is the earlier one, x: NaN is greater than any number, and the later of two NaN or of equal numbers counts.
template <typename A> __device__ __forceinline__ bool is_earlier(A x, A y) {
    if constexpr (std::is_same_v<A, int64_t>) return y < x;
    else return y < x || (x != x && y == y);
}

// Integers wrap.
template <typename A> __device__ __forceinline__ A added(A x, A y) {
    if constexpr (std::is_same_v<A, int64_t>) return int64_t(uint64_t(x) + uint64_t(y));
    else return x + y;
}
template <typename A> __device__ __forceinline__ A multiplied(A x, A y) {
    if constexpr (std::is_same_v<A, int64_t>) return int64_t(uint64_t(x) * uint64_t(y));
    else return x * y;
}

// A way to combine: what is known of no position, of one, and of some followed by others, and the value that it means.
template <int combine, typename A> struct scanned {
    using state = scan_value<A>;
    static __device__ __forceinline__ state none() { return {combine == BOPS_SCAN_ADD ? A(0) : combine == BOPS_SCAN_MULTIPLY ? A(1) : lowest<A>()}; }
    static __device__ __forceinline__ state of(A value, uint64_t) { return {value}; }
    static __device__ __forceinline__ state both(state x, state y) {
        if constexpr (combine == BOPS_SCAN_ADD) return {added(x.value, y.value)};
        else if constexpr (combine == BOPS_SCAN_MULTIPLY) return {multiplied(x.value, y.value)};
        else return is_earlier(x.value, y.value) ? x : y;
    }
    static __device__ __forceinline__ A value(state x) { return x.value; }
};

template <typename A> struct scanned<BOPS_SCAN_GREATEST_AT, A> {
    using state = scan_place<A>;
    static __device__ __forceinline__ state none() { return {lowest<A>(), -1}; }
    static __device__ __forceinline__ state of(A value, uint64_t at) { return {value, int64_t(at)}; }
    static __device__ __forceinline__ state both(state x, state y) { return y.at < 0 || is_earlier(x.value, y.value) ? x : y; }
    static __device__ __forceinline__ A value(state x) { return x.value; }
};

template <typename A> struct scanned<BOPS_SCAN_LOG_ADD_EXP, A> {
    using state = scan_exponent<A>;
    static __device__ __forceinline__ state none() { return {lowest<A>(), A(0)}; }
    static __device__ __forceinline__ state of(A value, uint64_t) { return {value, A(1)}; }
    static __device__ __forceinline__ state both(state x, state y) {
        const bool is_rising = x.most < y.most;
        const A distance = is_rising ? x.most - y.most : y.most - x.most; // NaN of NaN and of equal infinities
        const A factor = x.most == y.most ? A(1) : exp(distance);
        const A most = is_rising || y.most != y.most ? y.most : x.most;
        return {most, is_rising ? x.sum * factor + y.sum : x.sum + y.sum * factor};
    }
    static __device__ __forceinline__ A value(state x) { return x.most + log(x.sum); }
};

// ---- elements ---------------------------------------------------------------

template <typename T> __device__ __forceinline__ accumulator_t<T> scan_element(const void *base, uint64_t at) {
    const packed<sizeof(T)> bits = load<sizeof(T), false>(static_cast<const T *>(base) + at);
    accumulator_t<T> value[1];
    unpack<T>(bits, value);
    return value[0];
}

// Values of `count` elements a step apart; the sign of the step is that of the scan. Those behind the first `left` are 0.
template <typename T, typename A, int count>
__device__ __forceinline__ void gather_as(const void *base, uint64_t at, uint64_t step, uint64_t left, A (&v)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) v[i] = i < left ? A(scan_element<T>(base, at + i * step)) : A(0);
}
template <typename A, int count>
__device__ __forceinline__ void gather(bops_dtype dtype, const void *base, uint64_t at, uint64_t step, uint64_t left, A (&v)[count]) {
    if constexpr (std::is_same_v<A, float>) {
        if (dtype == BOPS_F32) gather_as<float>(base, at, step, left, v);
        else if (dtype == BOPS_F16) gather_as<__half>(base, at, step, left, v);
        else gather_as<__nv_bfloat16>(base, at, step, left, v);
    } else if constexpr (std::is_same_v<A, double>) {
        gather_as<double>(base, at, step, left, v);
    } else {
        switch (dtype) {
        case BOPS_I64: gather_as<int64_t>(base, at, step, left, v); break;
        case BOPS_I32: gather_as<int32_t>(base, at, step, left, v); break;
        case BOPS_U32: gather_as<uint32_t>(base, at, step, left, v); break;
        case BOPS_BOOL: gather_as<boolean>(base, at, step, left, v); break;
        case BOPS_U8: gather_as<uint8_t>(base, at, step, left, v); break;
        default: gather_as<int8_t>(base, at, step, left, v); break;
        }
    }
}

template <typename T, typename A> __device__ __forceinline__ void put_element(void *base, uint64_t at, A value) {
    static_cast<T *>(base)[at] = narrow<T>(cast<T>(value));
}
template <typename A> __device__ __forceinline__ void put_value(bops_dtype dtype, void *base, uint64_t at, A value) {
    if constexpr (std::is_floating_point_v<A>) {
        switch (dtype) {
        case BOPS_F64: put_element<double>(base, at, value); break;
        case BOPS_F32: put_element<float>(base, at, value); break;
        case BOPS_F16: put_element<__half>(base, at, value); break;
        default: put_element<__nv_bfloat16>(base, at, value); break;
        }
    } else {
        // Low bits; a boolean is 0 or 1.
        switch (dtype) {
        case BOPS_I64: put_element<int64_t>(base, at, value); break;
        case BOPS_I32:
        case BOPS_U32: put_element<uint32_t>(base, at, uint32_t(value)); break;
        default: put_element<uint8_t>(base, at, int32_t(value)); break;
        }
    }
}

// Chunks of neighbours that start at multiples of 16 bytes, as they are stored.
template <typename A> struct scan_chunk {
    static constexpr int width = BOPS_SCAN_WIDTH, parts = width * int(sizeof(A)) / 16;
    packed<16> part[parts];

    template <typename T> __device__ __forceinline__ void load_as(const void *base, uint64_t at) {
#pragma unroll
        for (int i = 0; i < width * int(sizeof(T)) / 16; ++i) part[i] = load<16>(static_cast<const T *>(base) + at + i * (16 / sizeof(T)));
    }
    template <typename T> __device__ __forceinline__ void unpack_as(A (&v)[width]) const {
        constexpr int per_part = 16 / int(sizeof(T));
#pragma unroll
        for (int i = 0; i < width / per_part; ++i) {
            accumulator_t<T> values[per_part];
            unpack<T>(part[i], values);
#pragma unroll
            for (int j = 0; j < per_part; ++j) v[i * per_part + j] = values[j];
        }
    }
};

template <typename T, typename A> __device__ __forceinline__ void put_chunk_as(void *base, uint64_t at, const A (&v)[BOPS_SCAN_WIDTH]) {
    constexpr int per_part = 16 / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < BOPS_SCAN_WIDTH / per_part; ++i) {
        accumulator_t<T> values[per_part];
#pragma unroll
        for (int j = 0; j < per_part; ++j) values[j] = v[i * per_part + j];
        store<16>(static_cast<T *>(base) + at + i * per_part, pack<T, 16>(values));
    }
}

// The elements of some positions, each in the state of itself and those before it: stores what `before` and `v` make of them.
// `at`: of the first in y, `steps` those of y and of the indices.
template <int combine, typename A> struct scan_output {
    const bops_scan_params &params;
    const bops_scan_operands &operands;
    uint64_t length;     // of the thread's line, 0 if it has none
    uint64_t y, indices; // where the line begins

    using M = scanned<combine, A>;

    // What is stored of a state.
    __device__ __forceinline__ A result(typename M::state state) const {
        A value = M::value(state);
        if constexpr (combine == BOPS_SCAN_GREATEST || combine == BOPS_SCAN_GREATEST_AT) {
            if constexpr (std::is_same_v<A, int64_t>) {
                value = value < params.least ? params.least : value;
                if (params.is_least) value = ~value;
            } else if (params.is_least) value = -value;
        }
        return value;
    }
    // The element of a position in memory.
    __device__ __forceinline__ uint64_t element(uint64_t position) const { return params.is_reverse ? params.length - 1 - position : position; }

    template <int count> __device__ __forceinline__ void store(typename M::state state, uint64_t first, const A (&v)[count]) const {
        const uint64_t left = first < length ? length - first : 0;
        A results[count];
        const uint64_t at = element(first), step = params.is_reverse ? 0 - params.y.step : params.y.step;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const auto after = i < left ? M::both(state, M::of(v[i], first + i)) : state;
            results[i] = result(params.is_exclusive ? state : after);
            state = after;
            if constexpr (combine == BOPS_SCAN_GREATEST_AT) {
                if (i < left) {
                    const uint64_t to = indices + element(first + i) * params.indices.step, index = element(uint64_t(state.at));
                    if (params.indices.lines.dtype == BOPS_I64) static_cast<uint64_t *>(operands.indices)[to] = index;
                    else static_cast<uint32_t *>(operands.indices)[to] = uint32_t(index);
                }
            }
        }
        if constexpr (count == BOPS_SCAN_WIDTH && std::is_floating_point_v<A>) {
            if (params.y.is_run && left > 0) {
                if (params.is_reverse)
#pragma unroll
                    for (int i = 0; i < count / 2; ++i) {
                        const A kept = results[i];
                        results[i] = results[count - 1 - i], results[count - 1 - i] = kept;
                    }
                const uint64_t to = y + (params.is_reverse ? at + 1 - count : at);
                if constexpr (std::is_same_v<A, double>) put_chunk_as<double>(operands.y, to, results);
                else if (params.y.lines.dtype == BOPS_F32) put_chunk_as<float>(operands.y, to, results);
                else if (params.y.lines.dtype == BOPS_F16) put_chunk_as<__half>(operands.y, to, results);
                else put_chunk_as<__nv_bfloat16>(operands.y, to, results);
                return;
            }
        }
        const uint64_t to = y + at * params.y.step;
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (i < left) put_value(params.y.lines.dtype, operands.y, to + i * step, results[i]);
    }
};

// Values as they are combined: negated where the least is the greatest.
template <int combine, typename A, int count> __device__ __forceinline__ void negate_if(uint32_t is_least, A (&v)[count]) {
    if constexpr (combine == BOPS_SCAN_GREATEST || combine == BOPS_SCAN_GREATEST_AT) {
        if (is_least)
#pragma unroll
            for (int i = 0; i < count; ++i) {
                if constexpr (std::is_same_v<A, int64_t>) v[i] = ~v[i];
                else v[i] = -v[i];
            }
    }
}

// What some positions are together; those behind the first `left` do not count.
template <int combine, typename A, int count>
__device__ __forceinline__ typename scanned<combine, A>::state together(uint64_t first, uint64_t left, const A (&v)[count]) {
    using M = scanned<combine, A>;
    typename M::state state = M::none();
#pragma unroll
    for (int i = 0; i < count; ++i)
        if (i < left) state = M::both(state, M::of(v[i], first + i));
    return state;
}

// Of each thread's state, that of those before it and itself among `threads` lanes side by side, a power of two of them.
template <typename M> __device__ __forceinline__ typename M::state over_lanes(typename M::state state, uint32_t lane, uint32_t threads) {
    for (uint32_t step = 1; step < threads; step *= 2) {
        const auto before = shuffled_up(state, step);
        if (lane >= step) state = M::both(before, state);
    }
    return state;
}

// The total of some tiles, combined in chains.
template <typename M> struct scan_carry {
    typename M::state far, near;
    uint32_t tiles;

    __device__ __forceinline__ explicit scan_carry(typename M::state before) : far(before), near(M::none()), tiles(0) {}
    __device__ __forceinline__ typename M::state total() const { return M::both(far, near); }
    __device__ __forceinline__ void add(typename M::state tile) {
        near = M::both(near, tile);
        if (++tiles % BOPS_SCAN_CHAIN == 0) far = total(), near = M::none();
    }
};

constexpr int carry_steps = 8; // pieces of a thread that are combined one after another

// Makes of the totals of a line's pieces what lies before each. A block takes a line.
template <typename A, int combine> __global__ void __launch_bounds__(BOPS_SCAN_THREADS, 2)
    scan_pieces(uint64_t pieces, typename scanned<combine, A>::state *parts) {
    using M = scanned<combine, A>;
    __shared__ typename M::state held[2][BOPS_SCAN_THREADS / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    parts += blockIdx.x * pieces;
    scan_carry<M> carry(M::none());
    uint32_t parity = 0;
    for (uint64_t tile = 0; tile < pieces; tile += uint64_t(blockDim.x) * carry_steps) {
        const uint64_t first = tile + threadIdx.x * carry_steps;
        typename M::state v[carry_steps], own = M::none();
#pragma unroll
        for (int i = 0; i < carry_steps; ++i) {
            v[i] = first + i < pieces ? parts[first + i] : M::none();
            own = M::both(own, v[i]);
        }
        const auto until = over_lanes<M>(own, lane, 32);
        auto before = shuffled_up(until, 1);
        if (lane == 0) before = M::none();
        if (lane == 31) held[parity][warp] = until;
        __syncthreads();
        const auto of_warps = over_lanes<M>(lane < warps ? held[parity][lane] : M::none(), lane, 32);
        auto of_earlier = shuffled(of_warps, warp > 0 ? warp - 1 : 0);
        if (warp == 0) of_earlier = M::none();
        auto state = M::both(carry.total(), M::both(of_earlier, before));
#pragma unroll
        for (int i = 0; i < carry_steps; ++i)
            if (first + i < pieces) {
                parts[first + i] = state;
                state = M::both(state, v[i]);
            }
        carry.add(shuffled(of_warps, 31));
        parity ^= 1;
    }
}

// The launches of a form: of `scan`, whose last argument says whether it writes the totals of pieces alone.
template <typename A, int combine, typename Kernel, typename Action>
bops_status with_phases(Kernel kernel, const launch_shape &shape, const bops_scan_params &params, const bops_scan_operands &operands, void *workspace,
                        const Action &action) {
    using state = typename scanned<combine, A>::state;
    state *parts = static_cast<state *>(workspace);
    if (params.pieces > 1) {
        bops_status status = action(kernel, shape, params, operands, parts, true);
        launch_shape between;
        uint32_t threads = 32;
        while (threads < BOPS_SCAN_THREADS && uint64_t(threads) * carry_steps < params.pieces) threads *= 2;
        between.grid = dim3(uint32_t(params.lines)), between.block = dim3(threads);
        if (status == cudaSuccess) status = action(scan_pieces<A, combine>, between, params.pieces, parts);
        if (status != cudaSuccess) return status;
    }
    return action(kernel, shape, params, operands, parts, false);
}

// Calls f(type_tag<A>, integral_constant of the way to combine).
template <typename F> bops_status for_scan(bops_dtype computing, bops_scan_combine combine, const F &f) {
    const auto with_type = [&](auto tag) {
        return for_value<BOPS_SCAN_ADD, BOPS_SCAN_MULTIPLY, BOPS_SCAN_GREATEST, BOPS_SCAN_GREATEST_AT>(combine, [&](auto c) { return f(tag, c); });
    };
    const std::integral_constant<int, BOPS_SCAN_LOG_ADD_EXP> log_add_exp;
    switch (computing) {
    case BOPS_F32: return combine == BOPS_SCAN_LOG_ADD_EXP ? f(type_tag<float>{}, log_add_exp) : with_type(type_tag<float>{});
    case BOPS_F64: return combine == BOPS_SCAN_LOG_ADD_EXP ? f(type_tag<double>{}, log_add_exp) : with_type(type_tag<double>{});
    case BOPS_I64: return with_type(type_tag<int64_t>{});
    default: return cudaErrorInvalidValue;
    }
}

} // namespace bops
