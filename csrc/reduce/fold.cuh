// How values become one. Of each way: what is `held` of values, what is held of none, of some values side by side, and of two parts, and the total.
#pragma once
#include <cstring>
#include <type_traits>

#include "../bops_reduce.h"
#include "../pointwise/program.cuh"

namespace bops {

// NaN if x or y is.
__device__ __forceinline__ float greatest(float x, float y) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
__device__ __forceinline__ double greatest(double x, double y) { return x > y || x != x ? x : y; }
__device__ __forceinline__ int64_t greatest(int64_t x, int64_t y) { return x > y ? x : y; }

template <typename V> __device__ __forceinline__ V least_of() {
    if constexpr (std::is_integral_v<V>) return V(uint64_t(1) << 63);
    else return V(-INFINITY);
}

// Some parts become one, pair by pair.
template <typename F, int count> __device__ __forceinline__ typename F::held paired(typename F::held (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] = F::both(v[i], v[i + half]);
    return v[0];
}

// `first` and `step`: the position of the first value and from one to the next; the first `present` of the values are there.
template <int combine, typename V> struct fold {
    using held = V;
    static __device__ __forceinline__ held none() {
        if constexpr (combine == BOPS_COMBINE_GREATEST) return least_of<V>();
        else return combine == BOPS_COMBINE_MULTIPLY ? V(1) : V(0);
    }
    static __device__ __forceinline__ held both(held x, held y) {
        if constexpr (combine == BOPS_COMBINE_GREATEST) return greatest(x, y);
        else if constexpr (std::is_integral_v<V>) return combine == BOPS_COMBINE_ADD ? V(uint64_t(x) + uint64_t(y)) : V(uint64_t(x) * uint64_t(y));
        else if constexpr (combine == BOPS_COMBINE_ADD) return sum(x, y);
        else return product(x, y);
    }
    template <int count> static __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t, uint32_t) {
        held parts[count];
#pragma unroll
        for (int i = 0; i < count; ++i) parts[i] = i < present ? v[i] : none();
        return paired<fold>(parts);
    }
    static __device__ __forceinline__ V total(held x) { return x; }
};

// The greatest value, and the sum of exponentials of differences from it; from 0 where it is infinite or NaN, as the result then is.
template <typename V> struct fold<BOPS_COMBINE_EXPONENTIALS, V> {
    struct held {
        V most, sum;
    };
    static __device__ __forceinline__ V origin(V most) { return most - most == V(0) ? most : V(0); }
    static __device__ __forceinline__ held none() { return {V(-INFINITY), V(0)}; }
    static __device__ __forceinline__ held both(held x, held y) {
        const V most = greatest(x.most, y.most), from = origin(most);
        return {most, sum(product(x.sum, exponential(difference(x.most, from))), product(y.sum, exponential(difference(y.most, from))))};
    }
    template <int count> static __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t, uint32_t) {
        V parts[count];
#pragma unroll
        for (int i = 0; i < count; ++i) parts[i] = i < present ? v[i] : V(-INFINITY);
        const V most = paired<fold<BOPS_COMBINE_GREATEST, V>>(parts), from = origin(most);
#pragma unroll
        for (int i = 0; i < count; ++i) parts[i] = i < present ? exponential(difference(v[i], from)) : V(0);
        return {most, paired<fold<BOPS_COMBINE_ADD, V>>(parts)};
    }
    static __device__ __forceinline__ V total(held x) { return sum(x.most, logarithm(x.sum)); }
};

// The number of values, their mean, and the sum of the squares of differences from it. Parts are merged as in T. F. Chan, G. H. Golub, R. J. LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
template <typename V> struct fold<BOPS_COMBINE_MOMENTS, V> {
    struct held {
        V count, mean, squares;
    };
    static __device__ __forceinline__ held none() { return {V(0), V(0), V(0)}; }
    static __device__ __forceinline__ held both(held x, held y) {
        const V count = sum(x.count, y.count), share = count > V(0) ? quotient(y.count, count) : V(0), apart = difference(y.mean, x.mean);
        return {count, sum(x.mean, product(apart, share)), sum(sum(x.squares, y.squares), product(apart, product(apart, product(x.count, share))))};
    }
    template <int count> static __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t, uint32_t) {
        using add = fold<BOPS_COMBINE_ADD, V>;
        const V number = V(present < count ? present : count), mean = quotient(add::of(v, present, 0, 0), number);
        V squares[count];
#pragma unroll
        for (int i = 0; i < count; ++i) squares[i] = product(difference(v[i], mean), difference(v[i], mean));
        const V of_all = add::of(squares, present, 0, 0);
        return present > 0 ? held{number, mean, of_all} : none();
    }
    static __device__ __forceinline__ V total(held x) { return x.squares; }
};

// The first of the greatest values, or the first NaN, with its position.
template <typename V> struct fold<BOPS_COMBINE_POSITION, V> {
    struct held {
        uint64_t position;
        V value;
    };
    static __device__ __forceinline__ bool is_above(V x, V y) {
        if constexpr (std::is_integral_v<V>) return x > y;
        else return x > y || (x != x && y == y);
    }
    static __device__ __forceinline__ held none() { return {~uint64_t(0), least_of<V>()}; }
    static __device__ __forceinline__ held both(held x, held y) {
        const bool is_later = is_above(y.value, x.value) || (!is_above(x.value, y.value) && y.position < x.position);
        return is_later ? y : x;
    }
    template <int count> static __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t first, uint32_t step) {
        V best = v[0];
        uint32_t at = 0;
#pragma unroll
        for (int i = 1; i < count; ++i)
            if (i < present && is_above(v[i], best)) best = v[i], at = i;
        return present > 0 ? held{first + uint64_t(at * step), best} : none();
    }
    static __device__ __forceinline__ int64_t total(held x) { return int64_t(x.position); }
};

// The number of values that are not 0.
template <typename V> struct fold<BOPS_COMBINE_COUNT, V> {
    using held = uint64_t;
    static __device__ __forceinline__ held none() { return 0; }
    static __device__ __forceinline__ held both(held x, held y) { return x + y; }
    template <int count> static __device__ __forceinline__ held of(const V (&v)[count], uint32_t present, uint64_t, uint32_t) {
        uint32_t number = 0;
#pragma unroll
        for (int i = 0; i < count; ++i) number += uint32_t(i < present && v[i] != V(0));
        return number;
    }
    static __device__ __forceinline__ int64_t total(held x) { return int64_t(x); }
};

// What is shuffled between the threads of a warp.
template <typename H> __device__ __forceinline__ H from_lane(const H &x, uint32_t step) {
    if constexpr (std::is_arithmetic_v<H>) return __shfl_xor_sync(~0u, x, step);
    else {
        constexpr int count = int(sizeof(H) / 4);
        uint32_t words[count];
        H y;
        memcpy(words, &x, sizeof(H));
#pragma unroll
        for (int i = 0; i < count; ++i) words[i] = __shfl_xor_sync(~0u, words[i], step);
        memcpy(&y, words, sizeof(H));
        return y;
    }
}

} // namespace bops
