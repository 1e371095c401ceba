// Sources of programs: positions and random numbers.
#pragma once
#include "program.cuh"

namespace bops {

// The words of a block.
struct random_block {
    uint32_t word[4];
};

// Philox 4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
__device__ __forceinline__ random_block philox(uint64_t number, uint32_t offset, uint32_t stream, uint32_t seed, uint32_t more_seed) {
    random_block c = {{uint32_t(number), uint32_t(number >> 32), offset, stream}};
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t upper = __umulhi(0xd2511f53u, c.word[0]), lower = 0xd2511f53u * c.word[0];
        const uint32_t other_upper = __umulhi(0xcd9e8d57u, c.word[2]), other_lower = 0xcd9e8d57u * c.word[2];
        c = {{other_upper ^ c.word[1] ^ seed, other_lower, upper ^ c.word[3] ^ more_seed, lower}};
        seed += 0x9e3779b9u, more_seed += 0xbb67ae85u;
    }
    return c;
}

__device__ __forceinline__ uint32_t word_of(const random_block &block, uint32_t at) {
    const uint32_t low = (at & 1) != 0 ? block.word[1] : block.word[0], high = (at & 1) != 0 ? block.word[3] : block.word[2];
    return (at & 2) != 0 ? high : low;
}
__device__ __forceinline__ uint64_t pair_of(const random_block &block, uint32_t at) {
    return uint64_t(at != 0 ? block.word[2] : block.word[0]) << 32 | (at != 0 ? block.word[3] : block.word[1]);
}

// One of two blocks.
__device__ __forceinline__ random_block chosen(bool is_first, const random_block &first, const random_block &second) {
    return {{is_first ? first.word[0] : second.word[0], is_first ? first.word[1] : second.word[1], is_first ? first.word[2] : second.word[2],
             is_first ? first.word[3] : second.word[3]}};
}

// -log((2 w + 1) 2^-33), of 53 bits -log((2 w + 1) 2^-54); near 1 by the difference.
__device__ __forceinline__ float opposite_logarithm(uint32_t w) {
    if (w >> 31 == 0) return -logarithm(__fmul_rn(__fadd_rn(float(w), 0.5f), 0x1p-32f));
    return -log1pf(-__fmul_rn(__fadd_rn(float(~w), 0.5f), 0x1p-32f));
}
__device__ __forceinline__ double opposite_logarithm(uint64_t w) {
    const uint64_t bits = w >> 11;
    if (w >> 63 == 0) return -log(double(2 * bits + 1) * 0x1p-54);
    return -log1p(-(double(2 * ((1ull << 53) - 1 - bits) + 1) * 0x1p-54));
}

// The cosine of so many parts of a whole turn, or with `is_sine` the sine.
__device__ __forceinline__ float turned_part(uint32_t w, bool is_sine) {
    const uint32_t quarters = (w + (1u << 29)) >> 30, at = quarters + (is_sine ? 0 : 1);
    const float rest = __fmul_rn(float(int32_t(w - (quarters << 30))), 1.46291808e-9f);
    const float value = (at & 1) != 0 ? cosine_of_rest(rest) : sine_of_rest(rest);
    return (at & 2) != 0 ? -value : value;
}
__device__ __forceinline__ double turned_part(uint64_t w, bool is_sine) {
    const uint64_t quarters = (w + (1ull << 61)) >> 62;
    const uint32_t at = uint32_t(quarters) + (is_sine ? 0 : 1);
    const double rest = double(int64_t(w - (quarters << 62))) * 3.4061215800865546e-19;
    const double value = (at & 1) != 0 ? cosine_of_rest(rest) : sine_of_rest(rest);
    return (at & 2) != 0 ? -value : value;
}

// Words of one element, and which of a block's they are.
template <typename A> struct random_word {
    using type = uint32_t;
    static constexpr int shift = 2;
    static __device__ __forceinline__ type of(const random_block &block, uint32_t at) { return word_of(block, at); }
};
template <> struct random_word<double> {
    using type = uint64_t;
    static constexpr int shift = 1;
    static __device__ __forceinline__ type of(const random_block &block, uint32_t at) { return pair_of(block, at & 1); }
};

// Numbers from 0 to below 1 of so many digits.
__device__ __forceinline__ float uniform_of(uint32_t w, uint32_t digits) {
    return __fmul_rn(float(w >> (32 - digits)), __uint_as_float((127 - digits) << 23));
}
__device__ __forceinline__ double uniform_of(uint64_t w, uint32_t digits) {
    return double(w >> (64 - digits)) * __longlong_as_double(int64_t(1023 - digits) << 52);
}

// Real numbers at positions a step of 0 or 1 apart. Pairs of them lie in one block.
template <typename A, int width> __device__ __forceinline__ void draw_real(const bops_pointwise_source &source, const random_block (&block)[2],
                                                                           uint64_t first, uint32_t step, A (&to)[width]) {
    using word = random_word<A>;
    constexpr uint32_t mask = (1u << word::shift) - 1;
#pragma unroll
    for (int j = 0; j < width; ++j) {
        const uint64_t position = first + j * step;
        const random_block own = chosen(position >> word::shift == first >> word::shift, block[0], block[1]);
        const uint32_t at = uint32_t(position) & mask;
        if (source.kind == BOPS_SOURCE_UNIFORM) to[j] = uniform_of(word::of(own, at), source.digits);
        else if (source.kind == BOPS_SOURCE_EXPONENTIAL) to[j] = opposite_logarithm(word::of(own, at));
        else {
            const A radius = root(product(A(2), opposite_logarithm(word::of(own, at & ~1u))));
            to[j] = product(radius, turned_part(word::of(own, at | 1u), (at & 1) != 0));
        }
    }
}

// The values of a source at positions a step of 0 or 1 apart.
template <typename A, int width> __device__ __forceinline__ void draw(const bops_pointwise_source &source, const uint32_t *seed,
                                                                      const uint32_t *offset, uint64_t first, A (&to)[width]) {
    const uint32_t step = source.walked.is_repeated != 0 ? 0 : 1;
    if (source.kind == BOPS_SOURCE_INDEX) {
#pragma unroll
        for (int j = 0; j < width; ++j) to[j] = A(first + j * step);
        return;
    }
    const bool is_whole = source.kind == BOPS_SOURCE_BERNOULLI || source.kind == BOPS_SOURCE_RANDINT;
    const int shift = is_whole ? 2 : random_word<A>::shift;
    const uint64_t last = first + (width - 1) * step;
    const uint32_t low = seed[0], high = seed[source.seed_stride], at = *offset;
    random_block block[2];
    block[0] = block[1] = philox(first >> shift, at, source.stream, low, high);
    if (first >> shift != last >> shift) block[1] = philox(last >> shift, at, source.stream, low, high);
    if (is_whole) {
#pragma unroll
        for (int j = 0; j < width; ++j) {
            const uint64_t position = first + j * step;
            const uint32_t w = word_of(chosen(position >> 2 == first >> 2, block[0], block[1]), uint32_t(position) & 3);
            if (source.kind == BOPS_SOURCE_BERNOULLI) to[j] = A(w < source.range);
            else to[j] = A(A(source.low) + A((w * source.range) >> 32));
        }
        return;
    }
    if constexpr (!std::is_integral_v<A>) draw_real(source, block, first, step, to);
}

} // namespace bops
