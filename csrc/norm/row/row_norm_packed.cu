// LayerNorm forward of 16-bit elements: a row stays in the registers of a warp or a block as 16-bit elements, which take half the registers of f32.
#include "row_norm.cuh"

namespace bops {

constexpr int packed_threads = 512; // of a block that holds one row, at most
constexpr int packed_vectors = 4;   // of a thread of a block that holds one row
constexpr int packed_rows = 2;      // of a block whose warps hold a row each: the 32 blocks that an SM runs at most may have all of its threads

// Blocks of an SM, each with a row, for which the compiler limits registers: three, with 40 registers a thread, if it then spills none, which holds for
// bf16 from compute capability 9.0 on; else two.
template <typename T> constexpr int packed_blocks() {
#if __CUDA_ARCH__ >= 900
    return std::is_same_v<T, __nv_bfloat16> ? 3 : 2;
#else
    return 2;
#endif
}

// Parameters have x's type, and every vector of every thread exists. A block is (threads of a row, rows).
// of_warp: a warp has a row, which lies at one stride and has no residual; mean and variance are two sums over its lanes. Otherwise a block has a row
// and meets once: the moments are about the mean of the row's first vector, and are summed again where that lies far from the row's mean.
template <typename T, int vectors, bool of_warp>
__global__ void __launch_bounds__(of_warp ? packed_rows * 32 : packed_threads, of_warp ? 1 : packed_blocks<T>())
    row_norm_packed(const __grid_constant__ row_norm_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T));
    __shared__ __align__(16) float slots[of_warp ? 1 : 2][team_slots];
    wait_for_dependency();
    const row_team team;
    const uint32_t threads = of_warp ? 32 : blockDim.x, row = of_warp ? blockIdx.x * packed_rows + threadIdx.y : blockIdx.x;
    if (of_warp && row >= a.p.rows) return;
    const auto column = [&](int v) { return (v * threads + threadIdx.x) * width; };
    const auto row_of = [&](const void *tensor, const bops_row_strides &s) {
        return static_cast<const T *>(tensor) + (of_warp ? row * s.s0 : row_offset(row, s, a.p.extent1, a.p.extent2));
    };

    // 1. Fetch the row into registers.
    const T *const x = row_of(a.o.x, a.p.x);
    packed<16> first = {}, data[vectors];
    if constexpr (!of_warp) first = load<16, false>(x);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        if constexpr (of_warp) data[v] = load<16>(x + column(v));
        else data[v] = load_kept(x + column(v));
    }
    if (!of_warp && a.o.residual) {
        const T *const residual = row_of(a.o.residual, a.p.residual);
        T *const h = const_cast<T *>(row_of(a.o.h, a.p.h));
#pragma unroll
        for (int v = 0; v < vectors; ++v) data[v] = add_residual<T>(data[v], load<16>(residual + column(v)), h + column(v));
    }

    // 2. Sum its moments.
    float values[width];
    moments<float> total = {0, 0, 0};
    const auto add_up = [&] {
        float sum[width] = {}, square[width] = {};
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
            unpack<T>(data[v], values);
            add_moments(values, total.shift, sum, square);
        }
        float sums[2] = {tree_sum(sum), tree_sum(square)};
        if constexpr (of_warp) warp_sum(sums, 32);
        else team_sum<false, true>(sums, team, slots);
        total.sum = sums[0], total.square = sums[1];
    };
    if constexpr (of_warp) {
        float sum[1] = {thread_sum<T, true>(data)};
        warp_sum(sum, 32);
        total.shift = sum[0] * a.reciprocal_cols;
        add_up();
    } else {
        unpack<T>(first, values);
        total.shift = tree_sum(values) * (1.0f / width);
        add_up();
        if (recenter(total, a.reciprocal_cols)) {
            __syncthreads(); // every thread has read the slots
            add_up();
        }
        total.sum += total.sum - total.sum; // an infinity makes it NaN, as it does where the shift is the mean
    }

    // 3. Write statistics and output.
    keep_packed<T>(data);
    const row_statistics<float> s = finish_statistics<true>(total, a);
    if (threadIdx.x == 0) save_statistics<true>(s, a, row);
    T *const y = const_cast<T *>(row_of(a.o.y, a.p.y));
    const T *const weight = static_cast<const T *>(a.o.weight), *const bias = static_cast<const T *>(a.o.bias);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        parameter_vector<T, width> w, b;
        load_affine<true>(weight, bias, column(v), true, w, b);
        unpack<T>(data[v], values);
#pragma unroll
        for (int i = 0; i < width; ++i) values[i] -= s.shift;
        normalize<T, T, true, width>(values, s, w, b, a.weight_offset);
        store<16, of_warp>(y + column(v), pack<T, 16>(values));
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

// Calls body(type_tag<T>, arguments) for LayerNorm of 16-bit elements T with parameters of the same type.
template <typename Body> bops_status for_packed_type(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                     const bops_row_norm_operands &o, uint32_t overlaps, const Body &body) {
    return for_narrow_norm(of, [&](auto element, auto is_centered) -> bops_status {
        if constexpr (sizeof(typename decltype(element)::type) == 2 && is_centered) {
            auto a = row_norm_arguments_of<float>(p, o);
            a.cluster = 1, a.overlaps = overlaps;
            if (of.weight_dtype == of.dtype) return body(element, a);
        }
        return bops_status(cudaErrorInvalidValue);
    });
}

template <typename Action> bops_status for_row_norm_packed(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                           const bops_row_norm_packed_choice &c, const bops_row_norm_operands &o, void *,
                                                           const Action &action) {
    return for_packed_type(of, p, o, c.overlaps, [&](auto element, const row_norm_arguments<float> &a) {
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(c.threads), shape.overlaps_previous = c.overlaps;
        return action(row_norm_packed<typename decltype(element)::type, packed_vectors, false>, shape, a);
    });
}

template <typename Action> bops_status for_row_norm_packed_warp(const bops_row_norm_specialisation &of, const bops_row_norm_params &p,
                                                                const bops_row_norm_packed_warp_choice &c, const bops_row_norm_operands &o, void *,
                                                                const Action &action) {
    return for_packed_type(of, p, o, c.overlaps, [&](auto element, const row_norm_arguments<float> &a) {
        launch_shape shape;
        shape.grid = dim3(c.grid), shape.block = dim3(32, packed_rows), shape.overlaps_previous = c.overlaps;
        return for_value<3, 4, 5, 6, 7, 8>(
            c.vectors, [&](auto vectors) { return action(row_norm_packed<typename decltype(element)::type, vectors, true>, shape, a); });
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(packed, )

BOPS_DEFINE_ROW_NORM_FORM(packed_warp, )
