// LayerNorm and RMSNorm over rows: what the forms of forward share. LayerNorm is `centered`, RMSNorm is not.
#pragma once
#include "../../bops_row_norm.h"
#include "../../common/dispatch.cuh"
#include "../../common/launch.cuh"
#include "../../common/row_reduce.cuh"

namespace bops {

// The statistics of a row; its mean is shift + correction.
template <typename A> struct row_statistics { A shift, correction, rstd; };

template <typename A> struct row_norm_arguments {
    bops_row_norm_params p;
    bops_row_norm_operands o;
    A eps, weight_offset, reciprocal_cols;
    uint32_t cluster, slice_vectors; // blocks that share a row; vectors of the row that each of them has, at most
    uint32_t chunks;                 // split: parts of a row
    uint32_t overlaps;               // 1: the launch may begin while the previous kernel ends; 2: and lets the next one begin at once (resident)
    moments<A> *chunk_moments;       // split: [rows][chunks]
    row_statistics<A> *statistics;   // split: [rows]
};

// The vectors that a block of a team has of a row: `slice` from number `first` on, as far as the row's `all` vectors go.
__device__ __forceinline__ uint32_t slice_count(uint32_t all, uint32_t first, uint32_t slice) { return all > first ? min(all - first, slice) : 0; }

// The first element of a row of a tensor.
template <typename T, typename Arguments, typename Tensor>
__device__ __forceinline__ T *row_of(const Arguments &a, Tensor *tensor, uint32_t row, const bops_row_strides &s) {
    return static_cast<T *>(tensor) + row_offset(row, s, a.p.extent1, a.p.extent2);
}

// The statistics of a row from the moments of all of its elements.
template <bool centered, typename A>
__device__ __forceinline__ row_statistics<A> finish_statistics(const moments<A> &row, const row_norm_arguments<A> &a) {
    const A square = row.square * a.reciprocal_cols;
    if constexpr (centered) {
        const A correction = row.sum * a.reciprocal_cols;
        return {row.shift, correction, reciprocal_root_of_squares(at_least_zero(square - correction * correction) + a.eps)};
    } else {
        return {A(0), A(0), reciprocal_root_of_squares(square + a.eps)};
    }
}

template <bool centered, typename A>
__device__ __forceinline__ void save_statistics(const row_statistics<A> &s, const row_norm_arguments<A> &a, uint64_t row) {
    if (centered && a.o.mean) static_cast<A *>(a.o.mean)[row] = s.shift + s.correction;
    if (a.o.rstd) static_cast<A *>(a.o.rstd)[row] = s.rstd;
}

// Merges the moments that the blocks of a cluster have of their parts of a row, in the order of their ranks. all_vectors: of the row; width:
// elements of a vector.
template <bool centered>
__device__ __forceinline__ moments<float> merge_blocks(const float (*parts)[4], uint32_t all_vectors, int width, const row_norm_arguments<float> &a) {
    moments<float> total = {0, 0, 0};
    if constexpr (centered) {
        const auto cols_of = [&](uint32_t r) { return float(slice_count(all_vectors, r * a.slice_vectors, a.slice_vectors) * width); };
        for (uint32_t r = 0; r < a.cluster; ++r) total.shift = fmaf(parts[r][0], cols_of(r), total.shift);
        total.shift = rounded_product(total.shift, a.reciprocal_cols);
        for (uint32_t r = 0; r < a.cluster; ++r) merge(total, {parts[r][0], parts[r][1], parts[r][2]}, cols_of(r));
    } else {
        for (uint32_t r = 0; r < a.cluster; ++r) total.square += parts[r][2];
    }
    return total;
}

// The sum of a thread's elements for LayerNorm, of their squares for RMSNorm.
template <typename T, bool centered, int vec_bytes, int vectors>
__device__ __forceinline__ accumulator_t<T> thread_sum(const packed<vec_bytes> (&data)[vectors]) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width] = {};
#pragma unroll
    for (int v = 0; v < vectors; ++v) { // vectors past the row hold zeros
        A x[width];
        unpack<T>(data[v], x);
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] = centered ? sum[i] + x[i] : fma(x[i], x[i], sum[i]);
    }
    return tree_sum(sum);
}

// Loads weight and bias of one vector; an absent weight is 1, an absent bias 0.
template <bool centered, typename P, int width> __device__ __forceinline__ void load_affine(const P *weight, const P *bias, uint64_t column,
                                                                                            bool is_valid, parameter_vector<P, width> &w,
                                                                                            parameter_vector<P, width> &b) {
    w.fill(true);
    if (weight && is_valid) w.load(weight + column);
    if constexpr (centered) {
        b.fill(false);
        if (bias && is_valid) b.load(bias + column);
    }
}

// Turns a vector of x - s.shift into y.
template <typename T, typename P, bool centered, int width>
__device__ __forceinline__ void normalize(accumulator_t<T> *x, const row_statistics<accumulator_t<T>> &s, const parameter_vector<P, width> &weight,
                                          const parameter_vector<P, width> &bias, accumulator_t<T> weight_offset) {
    using A = accumulator_t<T>;
    const A shifted = -s.correction * s.rstd;
    A w[width], b[width];
    weight.get(w);
    if constexpr (centered) bias.get(b);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = centered ? fma(fma(x[i], s.rstd, shifted), w[i], b[i]) : x[i] * s.rstd * (w[i] + weight_offset);
}

// Stores h = x + residual, rounded to T, and returns it.
template <typename T, int vec_bytes>
__device__ __forceinline__ packed<vec_bytes> add_residual(const packed<vec_bytes> &x, const packed<vec_bytes> &residual, void *h) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    A sum[width], r[width];
    unpack<T>(x, sum);
    unpack<T>(residual, r);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += r[i];
    const packed<vec_bytes> rounded = pack<T, vec_bytes>(sum);
    store(h, rounded);
    return rounded;
}

// ---- host -------------------------------------------------------------------------------------------------------------------

// Calls body(type_tag<T>, std::bool_constant<centered>): the element type, and LayerNorm or RMSNorm.
template <typename Body> bops_status for_norm(const bops_row_norm_specialisation &of, const Body &body) {
    return for_float(of.dtype, [&](auto element) { return for_flag(of.is_centered, [&](auto is_centered) { return body(element, is_centered); }); });
}

// As for_norm, for elements of at most 4 bytes.
template <typename Body> bops_status for_narrow_norm(const bops_row_norm_specialisation &of, const Body &body) {
    return for_narrow(of.dtype, [&](auto element) { return for_flag(of.is_centered, [&](auto is_centered) { return body(element, is_centered); }); });
}

// Calls body(type_tag<P>), P being the type of the parameters: that of the elements, or f32.
template <typename T, typename Body> bops_status for_parameters(const bops_row_norm_specialisation &of, const Body &body) {
    return of.weight_dtype == of.dtype ? body(type_tag<T>()) : body(type_tag<float>());
}

// The part of the arguments that does not depend on the form.
template <typename A> row_norm_arguments<A> row_norm_arguments_of(const bops_row_norm_params &p, const bops_row_norm_operands &o) {
    row_norm_arguments<A> a = {};
    a.p = p, a.o = o;
    // Of zero columns the mean is 0 and rstd NaN.
    a.eps = p.cols ? A(p.eps) : A(NAN), a.weight_offset = A(p.weight_offset);
    a.reciprocal_cols = p.cols ? A(1.0 / double(p.cols)) : A(0);
    return a;
}

// The vectors of a row that one of `blocks` blocks holds, at most.
template <typename T, uint32_t vec_bytes = 16> uint32_t slice_vectors_of(uint64_t cols, uint32_t blocks) {
    constexpr uint32_t width = vec_bytes / sizeof(T);
    return uint32_t((cols / width + blocks - 1) / blocks);
}

} // namespace bops

// Defines a form's functions, declared by BOPS_ROW_NORM_FORM, by for_row_norm_`pass``form`.
#define BOPS_DEFINE_ROW_NORM_FORM(form, pass)                                                                                                        \
    BOPS_DEFINE_FORM(bops_row_norm_##pass##form, bops_row_norm_specialisation, bops_row_norm_##pass##params, bops_row_norm_##pass##form##_choice,    \
                     bops_row_norm_##pass##operands, bops::for_row_norm_##pass##form)
