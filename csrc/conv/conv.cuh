// What the forms of convolution share: the places of the gathered factor's elements, and its terms, step by step.
#pragma once
#include "../bops_conv.h"
#include "../gemm/gemm.cuh"

namespace bops {
namespace conv {

constexpr int digits = BOPS_CONV_DIGITS; // of an index: the lead and one for each spatial axis
constexpr int axes = BOPS_CONV_AXES;     // spatial, at most

// The part of a coordinate that comes from a row or a term that does not exist: with any other part the coordinate is negative.
template <typename I> constexpr I outside = -(I(1) << (8 * sizeof(I) - 2));

// What a row contributes to the place of each of its elements. I: an integer type that holds coordinates.
template <typename I> struct row_part {
    int64_t element;
    I coordinate[axes];
};
// What a term contributes, and its offset in the plain factor.
template <typename I> struct term_part {
    int64_t element;
    uint64_t plain;
    I coordinate[axes];
};

// The digits of an index. Divisions are in 32 bits where the index fits.
template <typename I> __device__ __forceinline__ void take_apart(const bops_conv_index &index, uint64_t value, I (&digit)[digits]) {
    if (value >> 32 == 0) {
        uint32_t left = uint32_t(value);
#pragma unroll
        for (int i = digits - 1; i > 0; --i) {
            const uint32_t extent = uint32_t(index.extents[i]), quotient = index.extents[i] >> 32 == 0 ? left / extent : 0;
            digit[i] = I(left - quotient * extent), left = quotient;
        }
        digit[0] = I(left);
    } else {
#pragma unroll
        for (int i = digits - 1; i > 0; --i) digit[i] = I(value % index.extents[i]), value /= index.extents[i];
        digit[0] = I(value);
    }
}

template <typename I> __device__ __forceinline__ int64_t element_of(const bops_conv_index &index, const I (&digit)[digits]) {
    int64_t element = 0;
#pragma unroll
    for (int i = 0; i < digits; ++i) element += int64_t(digit[i]) * index.gathered[i];
    return element;
}

template <typename I> __device__ __forceinline__ void coordinates_of(const bops_conv_index &index, const I (&digit)[digits], I (&to)[axes]) {
#pragma unroll
    for (int a = 0; a < axes; ++a) to[a] = (index.lead_last ? digit[a] : digit[a + 1]) * I(index.coordinate[a]);
}

// Stores the parts of a tile's rows, from `m_first` on, to shared memory. The block synchronises afterwards.
template <typename I, int tile, int threads>
__device__ __forceinline__ void lay_rows(const bops_conv_params &params, uint32_t z, uint64_t m_first, row_part<I> *to) {
    const uint64_t groups = params.product.batch[0], in_group = gemm::product_of(params.product.batch_rank, params.product.batch) / groups;
    const uint64_t group = z / in_group, first = (z - group * in_group) * params.product.m + m_first;
#pragma unroll 1
    for (int row = int(threadIdx.x); row < tile; row += threads) {
        row_part<I> part;
        if (m_first + row < params.product.m) {
            I digit[digits];
            take_apart(params.rows, first + row, digit);
            part.element = int64_t(group * params.gathered_group) + params.first_element + element_of(params.rows, digit);
            coordinates_of(params.rows, digit, part.coordinate);
#pragma unroll
            for (int a = 0; a < axes; ++a) part.coordinate[a] += I(params.first_coordinate[a]);
        } else {
            part.element = 0;
#pragma unroll
            for (int a = 0; a < axes; ++a) part.coordinate[a] = outside<I>;
        }
        to[row] = part;
    }
}

// Walks over the terms, step by step: each of the first `depth` threads has one term of every step.
template <typename I, int depth> struct term_walker {
    I digit[digits];
    I further[digits]; // the digits of `depth`
    uint64_t term;

    __device__ __forceinline__ term_walker(const bops_conv_params &params, uint64_t first_step) {
        term = first_step * depth + threadIdx.x;
        if (threadIdx.x < depth) take_apart(params.terms, term, digit), take_apart(params.terms, uint64_t(depth), further);
    }
    // Stores the parts of the current step's terms to shared memory and goes on to the next step.
    __device__ __forceinline__ void lay(const bops_conv_params &params, term_part<I> *to) {
        if (threadIdx.x >= depth) return;
        term_part<I> part;
        if (term < params.product.k) {
            part.element = element_of(params.terms, digit);
            coordinates_of(params.terms, digit, part.coordinate);
            part.plain = 0;
#pragma unroll
            for (int i = 0; i < digits; ++i) part.plain += uint64_t(digit[i]) * params.plain_term[i];
        } else {
            part.element = 0, part.plain = 0;
#pragma unroll
            for (int a = 0; a < axes; ++a) part.coordinate[a] = outside<I>;
        }
        to[threadIdx.x] = part;
        term += depth;
        I carry = 0;
#pragma unroll
        for (int i = digits - 1; i > 0; --i) {
            const I next = digit[i] + further[i] + carry, extent = I(params.terms.extents[i]);
            carry = next >= extent;
            digit[i] = carry ? next - extent : next;
        }
        digit[0] += further[0] + carry;
    }
};

// Whether the element of a row and a term is inside the gathered tensor, and its offset.
template <typename I>
__device__ __forceinline__ bool find(const bops_conv_params &params, const row_part<I> &row, const term_part<I> &term, int64_t &element) {
    using U = std::make_unsigned_t<I>;
    element = row.element + term.element;
    bool is_there = true;
    if (!params.is_divided) {
#pragma unroll
        for (int a = 0; a < axes; ++a) is_there &= U(row.coordinate[a] + term.coordinate[a]) < U(params.axes[a].extent);
    } else {
#pragma unroll
        for (int a = 0; a < axes; ++a) {
            const I coordinate = row.coordinate[a] + term.coordinate[a];
            const U divisor = U(params.axes[a].divisor), quotient = U(coordinate) / divisor;
            is_there &= coordinate >= 0 && quotient * divisor == U(coordinate) && quotient < U(params.axes[a].extent);
            element += int64_t(quotient) * params.axes[a].stride;
        }
    }
    return is_there;
}

// The operands of a group: they differ in the bias, for which gemm's epilogue has no batch strides.
template <typename T>
__device__ __forceinline__ bops_gemm_operands of_group(const bops_conv_params &params, bops_gemm_operands operands, uint32_t z) {
    if (operands.bias != nullptr) {
        const uint64_t in_group = gemm::product_of(params.product.batch_rank, params.product.batch) / params.product.batch[0];
        const uint64_t bytes = params.product.bias_dtype == BOPS_F32 ? 4 : sizeof(T);
        operands.bias = static_cast<const char *>(operands.bias) + z / in_group * params.bias_group * bytes;
    }
    return operands;
}

// The offset of the group of z in the plain factor.
__device__ __forceinline__ uint64_t plain_of_group(const bops_conv_params &params, uint32_t z) {
    const uint64_t in_group = gemm::product_of(params.product.batch_rank, params.product.batch) / params.product.batch[0];
    return z / in_group * params.plain_group;
}

} // namespace conv
} // namespace bops
