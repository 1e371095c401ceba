// LayerNorm and RMSNorm backward over rows: what the forms share.
//
// g = dy * weight, xhat = (x - mean) * rstd; dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh; dweight = sum(dy * xhat),
// dbias = sum(dy). RMSNorm leaves out mean, mean(g) and dbias.
#pragma once
#include "row_norm.cuh"

namespace bops {

template <typename A> struct row_norm_backward_arguments {
    bops_row_norm_backward_params p;
    bops_row_norm_backward_operands o;
    A weight_offset, reciprocal_cols;
    uint32_t weight_is_wide;         // weight, dweight and dbias are f32, and the other operands are not
    uint32_t cluster, slice_vectors; // blocks that share a row; vectors of the row that each of them has, at most
    uint32_t stages, flush_rows, flushes;
    uint32_t chunks;                     // split: of a row; persistent, where there are late blocks: early_turns of the choice
    uint32_t late_blocks;                // persistent: at the end of the grid
    uint32_t first_block;                // few rows: the block, among those of rows and of strips, that block 0 of the launch is
    uint64_t partial_rows, partial_cols; // partial_cols: cols, rounded up to whole lines of the L2
    A *partial_dweight, *partial_dbias;  // [partial_rows][partial_cols]
    A *chunk_sums;                       // split: [rows][chunks][2]
    A *row_sums;                         // split: [rows][2]
    uint4 *messages;                     // cooperative: [turn][row of a turn][block]
};

// Loads weights of either type and adds the offset; an absent weight is 1.
template <typename T, int width, typename A>
__device__ __forceinline__ void load_weight(const row_norm_backward_arguments<A> &a, uint64_t column, A (&w)[width]) {
    if (!a.o.weight) {
#pragma unroll
        for (int i = 0; i < width; ++i) w[i] = A(1);
        return;
    }
    const auto load = [&](auto parameters, auto from) {
        parameters.load(from + column);
        parameters.get(w);
    };
    if (sizeof(T) != 4 && a.weight_is_wide) load(parameter_vector<float, width>(), static_cast<const float *>(a.o.weight));
    else load(parameter_vector<T, width>(), static_cast<const T *>(a.o.weight));
#pragma unroll
    for (int i = 0; i < width; ++i) w[i] += a.weight_offset;
}

// Stores the gradient of a parameter in the parameter's type.
template <typename T, typename A>
__device__ __forceinline__ void store_parameter(const row_norm_backward_arguments<A> &a, void *to, uint64_t column, A value) {
    if (sizeof(T) != 4 && a.weight_is_wide) static_cast<float *>(to)[column] = float(value);
    else static_cast<T *>(to)[column] = narrow<T>(value);
}

// Statistics of a row as forward wrote them.
struct saved_statistics {
    float mean = 0, rstd = 0;
};

template <bool centered, typename A>
__device__ __forceinline__ saved_statistics load_statistics(const row_norm_backward_arguments<A> &a, uint64_t row) {
    saved_statistics s;
    if constexpr (centered) s.mean = __ldg(static_cast<const float *>(a.o.mean) + row);
    s.rstd = __ldg(static_cast<const float *>(a.o.rstd) + row);
    return s;
}

// dx of one vector from its dy, x, dh if there is one, weights, and the row's statistics and means.
template <typename T, bool centered, int vec_bytes, typename A, int width>
__device__ __forceinline__ packed<vec_bytes> row_gradient(const packed<vec_bytes> &dy_packed, const packed<vec_bytes> &x_packed, const A *w, A mean,
                                                          A rstd, A mean_g, A mean_g_xhat, const packed<vec_bytes> *dh_packed) {
    A dy[width], x[width];
    unpack<T>(dy_packed, dy);
    unpack<T>(x_packed, x);
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const A xhat = (centered ? x[i] - mean : x[i]) * rstd, g = dy[i] * w[i];
        dy[i] = rstd * fma(-xhat, mean_g_xhat, centered ? g - mean_g : g);
    }
    if (dh_packed) {
        unpack<T>(*dh_packed, x);
#pragma unroll
        for (int i = 0; i < width; ++i) dy[i] += x[i];
    }
    return pack<T, vec_bytes>(dy);
}

// ---- walks over rows: what the forms persistent, ring and cooperative share ------------------------------------------------
//
// A thread has the same columns of all rows of its team, in vectors of 16 bytes. With d = x - mean and g' = rstd * g:
// dx = (g' - mean(g')) - d * rstd^2 * mean(g' d) + dh.

// What dx of a row subtracts from g': d * slope + mean_g.
struct row_correction {
    float slope, mean_g;
};

// From the row's sums of g' d and of g'.
template <bool centered>
__device__ __forceinline__ row_correction correction_of(float sum_g_d, float sum_g, float rstd, const row_norm_backward_arguments<float> &a) {
    return {sum_g_d * a.reciprocal_cols * rstd * rstd, centered ? sum_g * a.reciprocal_cols : 0.0f};
}

// A thread's sums over a row, in four chains of additions each: of g' d and, for LayerNorm, of g'. The chains are independent of each other; more of
// them would take a register each.
template <bool centered> struct row_chains {
    static constexpr int sums = centered ? 2 : 1;
    float chain[sums][4] = {};

    __device__ __forceinline__ void total(float (&sum)[sums]) {
#pragma unroll
        for (int k = 0; k < sums; ++k) sum[k] = tree_sum(chain[k]);
    }
};

// The parameters' gradients of a thread's columns: dweight and, for LayerNorm, dbias.
template <bool centered, int columns> struct parameter_sums {
    float dweight[columns] = {}, dbias[centered ? columns : 1] = {};

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[c] = 0;
            if constexpr (centered) dbias[c] = 0;
        }
    }
    // Adds those of `from`, which starts over.
    __device__ __forceinline__ void take(parameter_sums &from) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            dweight[c] += from.dweight[c], from.dweight[c] = 0;
            if constexpr (centered) dbias[c] += from.dbias[c], from.dbias[c] = 0;
        }
    }
    // Writes the thread's part of a partial row. place.has(v), place.column(v): whether vector v of the thread exists, and its first column.
    template <int width, typename Place>
    __device__ __forceinline__ void store(const row_norm_backward_arguments<float> &a, uint32_t partial_row, const Place &place) const {
#pragma unroll
        for (int c = 0; c < columns; c += 4) {
            if (place.has(c / width)) {
                const uint64_t to = partial_row * a.partial_cols + place.column(c / width) + c % width;
                *reinterpret_cast<float4 *>(a.partial_dweight + to) = make_float4(dweight[c], dweight[c + 1], dweight[c + 2], dweight[c + 3]);
                if constexpr (centered)
                    *reinterpret_cast<float4 *>(a.partial_dbias + to) = make_float4(dbias[c], dbias[c + 1], dbias[c + 2], dbias[c + 3]);
            }
        }
    }
};

// One vector of a row: d, which is x at first, and g, which is dy at first.
template <typename T, bool centered> struct gradient_vector {
    static constexpr int width = 16 / int(sizeof(T));
    float g[width], d[width];

    // Makes d and g' of x and dy, and adds them to the sums of the row and of the parameters' gradients. c: the vector's first column among those of
    // the thread.
    template <int columns> __device__ __forceinline__ void add_up(const saved_statistics &s, const float (&weight)[width], int c,
                                                                  row_chains<centered> &row, parameter_sums<centered, columns> &parameters) {
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (centered) d[i] -= s.mean;
            const float dy = g[i];
            g[i] = dy * s.rstd;
            parameters.dweight[c + i] = fmaf(g[i], d[i], parameters.dweight[c + i]);
            if constexpr (centered) parameters.dbias[c + i] += dy;
            g[i] *= weight[i];
            row.chain[0][i % 4] = fmaf(g[i], d[i], row.chain[0][i % 4]);
            if constexpr (centered) row.chain[1][i % 4] += g[i];
        }
    }
    // Makes d and g' of x and dy.
    __device__ __forceinline__ void scale(const saved_statistics &s, const float (&weight)[width]) {
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (centered) d[i] -= s.mean;
            g[i] = g[i] * s.rstd * weight[i];
        }
    }
    // Makes dx, without dh, of g'.
    __device__ __forceinline__ void correct(const row_correction &by) {
#pragma unroll
        for (int i = 0; i < width; ++i) g[i] = fmaf(-d[i], by.slope, centered ? g[i] - by.mean_g : g[i]);
    }
    // Adds dh to dx, for which d makes room.
    __device__ __forceinline__ void add(const packed<16> &dh) {
        unpack<T>(dh, d);
#pragma unroll
        for (int i = 0; i < width; ++i) g[i] += d[i];
    }
};

// ---- host -------------------------------------------------------------------------------------------------------------------

// The part of the arguments that does not depend on the form. The partial rows lie at the start of the workspace.
template <typename A>
row_norm_backward_arguments<A> row_norm_backward_arguments_of(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                                              const bops_row_norm_backward_operands &o, uint32_t partial_rows, void *workspace) {
    row_norm_backward_arguments<A> a = {};
    a.p = p, a.o = o;
    a.weight_offset = A(p.weight_offset), a.reciprocal_cols = p.cols ? A(1.0 / double(p.cols)) : A(0);
    a.weight_is_wide = of.weight_dtype != of.dtype;
    a.partial_rows = partial_rows, a.partial_cols = (p.cols + 31) / 32 * 32;
    a.partial_dweight = static_cast<A *>(workspace);
    a.partial_dbias = a.partial_dweight + a.partial_rows * a.partial_cols;
    return a;
}

// Where the workspace goes on behind the partial rows. There are none if no gradient of a parameter is wanted.
template <typename A> A *behind_partials(const bops_row_norm_specialisation &of, const row_norm_backward_arguments<A> &a) {
    const bool has_partials = a.o.dweight || a.o.dbias;
    return a.partial_dweight + (has_partials ? a.partial_rows * a.partial_cols * (of.is_centered ? 2 : 1) : 0);
}

inline uint32_t power_of_two_at_least(uint64_t n, uint32_t limit) {
    uint32_t p = 1;
    while (p < n && p < limit) p *= 2;
    return p;
}

} // namespace bops
