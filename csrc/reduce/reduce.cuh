// What reductions share: how values are combined, what is stored of a result, and the launch that combines the results of pieces.
#pragma once
#include "../bops_reduce.h"
#include "../pointwise/program.cuh"

namespace bops {

constexpr int reduce_threads = BOPS_REDUCE_THREADS; // of a block
constexpr int reduce_batch = BOPS_REDUCE_BATCH;

// NaN if x or y is.
__device__ __forceinline__ float greatest(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
__device__ __forceinline__ double greatest(double x, double y) { return x > y || x != x ? x : y; }

template <int combine, typename A> __device__ __forceinline__ A combined(A x, A y) {
    if constexpr (combine == BOPS_COMBINE_ADD) return sum(x, y);
    else if constexpr (combine == BOPS_COMBINE_MULTIPLY) return product(x, y);
    else return greatest(x, y);
}

// What changes no value that it is combined with.
template <int combine, typename A> __device__ __forceinline__ A identity() {
    return combine == BOPS_COMBINE_ADD ? A(0) : combine == BOPS_COMBINE_MULTIPLY ? A(1) : A(-INFINITY);
}

template <int combine, typename A> __device__ __forceinline__ A each_of(bops_each each, A x) {
    if constexpr (combine == BOPS_COMBINE_ADD) {
        if (each == BOPS_EACH_MAGNITUDE) return x < A(0) ? -x : x;
        if (each == BOPS_EACH_SQUARE) return product(x, x);
    }
    if constexpr (combine == BOPS_COMBINE_GREATEST)
        if (each == BOPS_EACH_NEGATIVE) return -x;
    return x;
}

// Some values become one, pair by pair.
template <int combine, int count, typename A> __device__ __forceinline__ A paired(A (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] = combined<combine>(v[i], v[i + half]);
    return v[0];
}

template <typename A> __device__ __forceinline__ void store_result(const bops_reduce_results &results, void *out, uint64_t at, A total) {
    const A value = results.finish == BOPS_FINISH_MEAN       ? quotient(total, A(results.count))
                    : results.finish == BOPS_FINISH_ROOT     ? root(total)
                    : results.finish == BOPS_FINISH_NEGATIVE ? -total
                                                             : total;
    const A values[1] = {value};
    mixed<A, 1>::store(results.out, out, at, 1, values);
}

// Where an output lies.
__device__ __forceinline__ uint64_t place_of_output(const bops_reduce_results &results, uint64_t output) {
    return place<BOPS_POINTWISE_EXTENTS, true>(results.kept, output, 1).offset(results.out);
}

// Combines what `threads` threads have, a power of two of them: `apart` is how far one lies from the next in the block, whose threads are all here.
// `held` has room for a value of every thread. The first of them has the result.
template <int combine, typename A> __device__ __forceinline__ A over_threads(A value, A *held, uint32_t number, uint32_t threads, uint32_t apart) {
    held[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = threads / 2; half > 0; half /= 2) {
        if (number < half) {
            value = combined<combine>(value, held[threadIdx.x + half * apart]);
            held[threadIdx.x] = value;
        }
        __syncthreads();
    }
    return value;
}

// Combines the results of the pieces of each output, in chains of 16.
template <typename A, int combine> __global__ void __launch_bounds__(reduce_threads)
    reduce_pieces(const __grid_constant__ bops_reduce_results results, const A *parts, void *out) {
    constexpr int chain = 16;
    __shared__ A held[reduce_threads];
    const uint32_t across = reduce_threads / results.threads, thread = threadIdx.x / across;
    const uint64_t output = uint64_t(blockIdx.x) * across + threadIdx.x % across;
    A total = identity<combine, A>();
    if (output < results.outputs)
        for (uint64_t first = thread; first < results.pieces; first += uint64_t(chain) * results.threads) {
            A of_chain = identity<combine, A>();
#pragma unroll 4
            for (int k = 0; k < chain; ++k) {
                const uint64_t piece = first + uint64_t(k) * results.threads;
                if (piece < results.pieces) of_chain = combined<combine>(of_chain, parts[piece * results.outputs + output]);
            }
            total = combined<combine>(total, of_chain);
        }
    total = over_threads<combine>(total, held, thread, results.threads, across);
    if (thread == 0 && output < results.outputs) store_result(results, out, place_of_output(results, output), total);
}

// The second launch, if outputs have several pieces or none.
template <typename A, int combine, typename Action>
bops_status with_pieces(const bops_reduce_results &results, void *workspace, void *out, const Action &action) {
    if (results.pieces == 1) return bops_status(cudaSuccess);
    const uint64_t across = reduce_threads / results.threads;
    launch_shape shape;
    shape.grid = dim3(uint32_t((results.outputs + across - 1) / across)), shape.block = dim3(reduce_threads);
    return action(reduce_pieces<A, combine>, shape, results, static_cast<const A *>(workspace), out);
}

} // namespace bops
