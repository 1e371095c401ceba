// What reductions share: what becomes of each value, what is stored of a result, and the launch that combines the results of pieces.
#pragma once
#include "fold.cuh"

namespace bops {

constexpr int reduce_threads = BOPS_REDUCE_THREADS; // of a block
constexpr int reduce_batch = BOPS_REDUCE_BATCH;

template <int combine, typename V> __device__ __forceinline__ V each_of(bops_each each, V x) {
    constexpr bool is_added = combine == BOPS_COMBINE_ADD, is_greatest = combine == BOPS_COMBINE_GREATEST, is_any = combine == BOPS_COMBINE_ANY;
    if constexpr ((is_added || is_greatest || is_any) && !std::is_integral_v<V>)
        if (each == BOPS_EACH_MAGNITUDE) return fabs(x);
    if constexpr (is_added || is_any)
        if (each == BOPS_EACH_SQUARE) return x * x;
    if constexpr (is_greatest || combine == BOPS_COMBINE_POSITION || is_any)
        if (each == BOPS_EACH_NEGATIVE) {
            if constexpr (std::is_integral_v<V>) return ~x;
            else return -x;
        }
    if constexpr (combine == BOPS_COMBINE_COUNT || is_any) {
        if (each == BOPS_EACH_NONZERO) return V(x != V(0));
        if (each == BOPS_EACH_ZERO) return V(x == V(0));
    }
    return x;
}

template <typename R> __device__ __forceinline__ void store_result(const bops_reduce_results &results, void *out, uint64_t at, R total) {
    R values[1] = {total};
    if constexpr (std::is_integral_v<R>) {
        if (results.finish == BOPS_FINISH_NEGATIVE) values[0] = ~total;
        if (results.finish == BOPS_FINISH_NONE) values[0] = total == 0;
    } else {
        if (results.finish == BOPS_FINISH_MEAN || results.finish == BOPS_FINISH_ROOT_OF_MEAN) values[0] = quotient(total, R(results.count));
        if (results.finish == BOPS_FINISH_ROOT || results.finish == BOPS_FINISH_ROOT_OF_MEAN) values[0] = root(values[0]);
        if (results.finish == BOPS_FINISH_NEGATIVE) values[0] = -total;
    }
    mixed<R, 1>::store(results.out, out, at, 1, values);
}

// Where an output lies.
__device__ __forceinline__ uint64_t place_of_output(const bops_reduce_results &results, uint64_t output) {
    return place<BOPS_POINTWISE_EXTENTS, true>(results.kept, output, 1).offset(results.out);
}

// Any way to combine, as the results say.
template <typename V> struct fold<BOPS_COMBINE_ANY, V> {
    struct held {
        V value, more[2];
        uint64_t number;
    };
    bops_combine combine;

    template <int of> using one = fold<of, V>;
    template <int of> static __device__ __forceinline__ typename one<of>::held taken(const held &x) {
        if constexpr (of == BOPS_COMBINE_EXPONENTIALS) return {x.value, x.more[0]};
        else if constexpr (of == BOPS_COMBINE_MOMENTS) return {x.value, x.more[0], x.more[1]};
        else if constexpr (of == BOPS_COMBINE_POSITION) return {x.number, x.value};
        else if constexpr (of == BOPS_COMBINE_COUNT) return x.number;
        else return x.value;
    }
    template <int of> static __device__ __forceinline__ held kept(const typename one<of>::held &x) {
        if constexpr (of == BOPS_COMBINE_EXPONENTIALS) return {x.most, {x.sum, V(0)}, 0};
        else if constexpr (of == BOPS_COMBINE_MOMENTS) return {x.count, {x.mean, x.squares}, 0};
        else if constexpr (of == BOPS_COMBINE_POSITION) return {x.value, {V(0), V(0)}, x.position};
        else if constexpr (of == BOPS_COMBINE_COUNT) return {V(0), {V(0), V(0)}, x};
        else return {x, {V(0), V(0)}, 0};
    }
    // Calls f(std::integral_constant<int, combine>); integers have neither exponentials nor moments.
    template <typename F> __device__ __forceinline__ auto with(const F &f) const {
        if constexpr (!std::is_integral_v<V>) {
            if (combine == BOPS_COMBINE_EXPONENTIALS) return f(std::integral_constant<int, BOPS_COMBINE_EXPONENTIALS>());
            if (combine == BOPS_COMBINE_MOMENTS) return f(std::integral_constant<int, BOPS_COMBINE_MOMENTS>());
        }
        switch (combine) {
        case BOPS_COMBINE_ADD: return f(std::integral_constant<int, BOPS_COMBINE_ADD>());
        case BOPS_COMBINE_MULTIPLY: return f(std::integral_constant<int, BOPS_COMBINE_MULTIPLY>());
        case BOPS_COMBINE_GREATEST: return f(std::integral_constant<int, BOPS_COMBINE_GREATEST>());
        case BOPS_COMBINE_POSITION: return f(std::integral_constant<int, BOPS_COMBINE_POSITION>());
        default: return f(std::integral_constant<int, BOPS_COMBINE_COUNT>());
        }
    }
    __device__ __forceinline__ held none() const {
        return with([](auto of) { return kept<decltype(of)::value>(one<decltype(of)::value>::none()); });
    }
    __device__ __forceinline__ held both(const held &x, const held &y) const {
        return with([&](auto of) {
            constexpr int way = decltype(of)::value;
            return kept<way>(one<way>::both(taken<way>(x), taken<way>(y)));
        });
    }
    template <int count> __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t first, uint32_t step) const {
        return with([&](auto of) {
            constexpr int way = decltype(of)::value;
            return kept<way>(one<way>::of(v, present, first, step));
        });
    }
};

// The fold of some results.
template <typename F> __device__ __forceinline__ F of_results(const bops_reduce_results &results) {
    if constexpr (std::is_empty_v<F>) return {};
    else return {results.combine};
}

// Stores the total of what is held.
template <typename F>
__device__ __forceinline__ void store_held(const F &fold, const bops_reduce_results &results, void *out, uint64_t at, const typename F::held &held) {
    if constexpr (std::is_empty_v<F>) store_result(results, out, at, fold.total(held));
    else {
        fold.with([&](auto of) {
            constexpr int way = decltype(of)::value;
            store_result(results, out, at, F::template one<way>::total(F::template taken<way>(held)));
        });
    }
}

// Combines what `threads` threads have, a power of two of them: `apart` is how far one lies from the next in the block, whose threads are all here.
// `held` has room for what every thread has. The first of them has the result.
template <typename F, typename H>
__device__ __forceinline__ H over_threads(const F &fold, H value, H *held, uint32_t number, uint32_t threads, uint32_t apart) {
    held[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = threads / 2; half > 0; half /= 2) {
        if (number < half) {
            value = fold.both(value, held[threadIdx.x + half * apart]);
            held[threadIdx.x] = value;
        }
        __syncthreads();
    }
    return value;
}

// Combines the results of the pieces of each output, in chains of 16.
template <typename F> __global__ void __launch_bounds__(reduce_threads)
    reduce_pieces(const __grid_constant__ bops_reduce_results results, const typename F::held *parts, void *out) {
    using H = typename F::held;
    constexpr int chain = 16;
    __shared__ H held[reduce_threads];
    const F fold = of_results<F>(results);
    const uint32_t across = reduce_threads / results.threads, thread = threadIdx.x / across;
    const uint64_t output = uint64_t(blockIdx.x) * across + threadIdx.x % across;
    H total = fold.none();
    if (output < results.outputs)
        for (uint64_t first = thread; first < results.pieces; first += uint64_t(chain) * results.threads) {
            H of_chain = fold.none();
#pragma unroll 4
            for (int k = 0; k < chain; ++k) {
                const uint64_t piece = first + uint64_t(k) * results.threads;
                if (piece < results.pieces) of_chain = fold.both(of_chain, parts[piece * results.outputs + output]);
            }
            total = fold.both(total, of_chain);
        }
    total = over_threads(fold, total, held, thread, results.threads, across);
    if (thread == 0 && output < results.outputs) store_held(fold, results, out, place_of_output(results, output), total);
}

// Bytes in the workspace, which Rust knows.
template <typename V> constexpr bool has_known_sizes = sizeof(typename fold<BOPS_COMBINE_EXPONENTIALS, V>::held) == 2 * sizeof(V) &&
                                                       sizeof(typename fold<BOPS_COMBINE_MOMENTS, V>::held) == 3 * sizeof(V) &&
                                                       sizeof(typename fold<BOPS_COMBINE_POSITION, V>::held) == 16 &&
                                                       sizeof(typename fold<BOPS_COMBINE_COUNT, V>::held) == 8 &&
                                                       sizeof(typename fold<BOPS_COMBINE_ANY, V>::held) == (sizeof(V) == 4 ? 24 : 32);
static_assert(has_known_sizes<float> && has_known_sizes<double> && has_known_sizes<int64_t>);

// The second launch, if outputs have several pieces or none.
template <typename F, typename Action> bops_status with_pieces(const bops_reduce_results &results, void *workspace, void *out, const Action &action) {
    if (results.pieces == 1) return bops_status(cudaSuccess);
    const uint64_t across = reduce_threads / results.threads;
    launch_shape shape;
    shape.grid = dim3(uint32_t((results.outputs + across - 1) / across)), shape.block = dim3(reduce_threads);
    return action(reduce_pieces<F>, shape, results, static_cast<const typename F::held *>(workspace), out);
}

// Calls f(type_tag<T>{}, std::integral_constant<int, bytes>) with the type of elements and the bytes of an access: 16, or one element, as of f64 always.
template <typename F> bops_status for_reduced(bops_dtype dtype, uint32_t vec_bytes, const F &f) {
    return for_float(dtype, [&](auto tag) {
        constexpr int element = int(sizeof(typename decltype(tag)::type));
        if constexpr (element < 8)
            if (vec_bytes == 16) return f(tag, std::integral_constant<int, 16>());
        return f(tag, std::integral_constant<int, element>());
    });
}

// Calls f(std::integral_constant<int, combine>) of each way to combine but ANY.
template <typename F> bops_status for_combine(bops_combine combine, const F &f) {
    return for_value<BOPS_COMBINE_ADD, BOPS_COMBINE_MULTIPLY, BOPS_COMBINE_GREATEST, BOPS_COMBINE_EXPONENTIALS, BOPS_COMBINE_MOMENTS,
                     BOPS_COMBINE_POSITION, BOPS_COMBINE_COUNT>(combine, f);
}
// Whether what is held of values is one of them.
constexpr bool is_scalar(int combine) { return combine <= BOPS_COMBINE_GREATEST; }

} // namespace bops
