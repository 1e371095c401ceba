// Tensors with other extents, and the gradient of that: a thread makes one element of the target, or some neighbours, from those of the source that are part of
// them.
#include "../bops_resize.h"
#include "../common/memory.cuh"
#include "../movement/movement.cuh"

namespace bops {
namespace {

static_assert(BOPS_RESIZE_SAMPLINGS == 3, "columns, rows and planes");

// The element of x below a position of y, and how far behind it the position lies, from 0 to below 1. No position lies more than an element before the first.
template <typename A> struct resize_place {
    int64_t below;
    A behind;
    __device__ __forceinline__ resize_place(const bops_resize_sampling &s, bool is_long, uint64_t position) {
        const int64_t ahead = s.slope * int64_t(position) + s.start + s.unit; // at least 0
        int64_t rest;
        if (is_long) {
            below = ahead / s.unit, rest = ahead - below * s.unit;
        } else {
            const split_number split(s.by_unit, false, uint64_t(ahead));
            below = split.quotient, rest = split.rest;
        }
        below -= 1;
        behind = A(rest) * A(s.inverse);
    }
};

// The weight of an element by its number among those around a position.
template <int taps, typename A> __device__ __forceinline__ A resize_weight(A behind, int tap) {
    if constexpr (taps == 1) return 1;
    else if constexpr (taps == 2) return tap == 0 ? 1 - behind : behind;
    else {
        constexpr A a = A(-0.75);
        const A d = tap == 0 ? behind + 1 : tap == 1 ? behind : tap == 2 ? 1 - behind : 2 - behind;
        if (tap == 1 || tap == 2) return ((a + 2) * d - (a + 3)) * d * d + 1;
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

__device__ __forceinline__ int64_t resize_clamp(int64_t element, const bops_resize_sampling &s) {
    const int64_t last = int64_t(s.from) - 1;
    return element < 0 ? 0 : element > last ? last : element;
}

// The elements of x that make a position of y.
template <int taps, typename A> struct elements_of_position {
    resize_place<A> place;
    bool is_there;
    uint64_t step;
    const bops_resize_sampling &s;
    __device__ __forceinline__ elements_of_position(const bops_resize_params &params, int number, uint64_t position)
        : place(params.of[number], params.has_long, position), is_there(number < params.samplings), s(params.of[number]) {}

    // Calls f(offset, weight) with each; if the extent is not resized, once with (0, 1).
    template <typename F> __device__ __forceinline__ void each(const F &f) const {
        if (!is_there) return f(uint64_t(0), A(1));
#pragma unroll
        for (int tap = 0; tap < taps; ++tap) {
            const A weight = resize_weight<taps>(place.behind, tap);
            const int64_t element = resize_clamp(place.below + tap - (taps == 4), s);
            if (weight != 0) f(uint64_t(element) * s.step, weight);
        }
    }
};

// The first position of y whose element below is `element` or a later one.
__device__ __forceinline__ uint64_t first_position(const bops_resize_sampling &s, bool is_long, int64_t element) {
    const int64_t ahead = element * s.unit - s.start;
    if (ahead <= 0) return 0;
    if (s.slope == 0) return s.to;
    const uint64_t upper = uint64_t(ahead) + s.slope - 1;
    const uint64_t position = is_long ? upper / uint64_t(s.slope) : split_number(s.by_slope, false, upper).quotient;
    return position < s.to ? position : s.to;
}

// The positions of y that an element of x is part of.
template <int taps, typename A> struct positions_of_element {
    uint64_t first = 0, end = 0;
    int64_t element;
    bool is_there, is_long;
    const bops_resize_sampling &s;
    __device__ __forceinline__ positions_of_element(const bops_resize_params &params, int number, uint64_t at)
        : element(int64_t(at)), is_there(number < params.samplings), is_long(params.has_long), s(params.of[number]) {
        if (!is_there) return;
        constexpr int before = taps == 4;
        // Elements beyond either end are the last there.
        if (element > 0) first = first_position(s, is_long, element + before + 1 - taps);
        end = at + 1 == s.from ? s.to : first_position(s, is_long, element + before + 1);
    }

    template <typename F> __device__ __forceinline__ void each(const F &f) const {
        if (!is_there) return f(uint64_t(0), A(1));
        for (uint64_t position = first; position < end; ++position) {
            A sum = 0;
            if constexpr (taps == 1) sum = 1;
            else {
                const resize_place<A> place(s, is_long, position);
#pragma unroll 1
                for (int tap = 0; tap < taps; ++tap)
                    if (resize_clamp(place.below + tap - (taps == 4), s) == element) sum += resize_weight<taps>(place.behind, tap);
            }
            if (sum != 0) f(position * s.step, sum);
        }
    }
};

// Adds up along columns, of these along rows, and of these along planes: calls add(sum, offset) for each element of the source, and combine(sum, weight, part) to add
// a weighted sum.
template <typename Sum, typename Parts, typename Add, typename Combine>
__device__ __forceinline__ Sum resized(const Parts &columns, const Parts &rows, const Parts &planes, const Add &add, const Combine &combine) {
    Sum sum = {};
    planes.each([&](uint64_t plane, auto of_plane) {
        Sum of_rows = {};
        rows.each([&](uint64_t row, auto of_row) {
            Sum of_columns = {};
            columns.each([&](uint64_t column, auto weight) { add(of_columns, weight, plane + row + column); });
            combine(of_rows, of_row, of_columns);
        });
        combine(sum, of_plane, of_rows);
    });
    return sum;
}

template <typename A, int width> struct resize_sums { A of[width]; };

// Of f64 and of four elements one block a multiprocessor at least: without that bound ptxas gives these kernels 64 registers and spills.
template <typename T, int taps, bool is_backward, int width, bool is_vector>
__global__ void __launch_bounds__(movement_threads, sizeof(T) == 8 || taps == 4 || is_vector ? 1 : 0)
    resize(const __grid_constant__ bops_resize_params params, const __grid_constant__ bops_resize_operands operands) {
    using A = accumulator_t<T>;
    using parts = std::conditional_t<is_backward, positions_of_element<taps, A>, elements_of_position<taps, A>>;
    constexpr int bytes = width * int(sizeof(T));
    const uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The elements, and their positions along the extents that are resized.
    uint64_t rest = number, column_at = 0, row_at = 0, plane_at = 0;
    const T *from = static_cast<const T *>(operands.source);
    T *to = static_cast<T *>(operands.target);
#pragma unroll
    for (int k = 0; k < BOPS_MOVEMENT_EXTENTS; ++k) {
        if (k >= params.rank) break;
        uint64_t i = rest;
        if (k + 1 < params.rank) {
            const split_number split(params.inner[k < BOPS_MOVEMENT_EXTENTS - 1 ? k : 0], params.is_long, rest);
            i = split.rest, rest = split.quotient;
        }
        if (k == 0) i *= width;
        to += i * params.strides[k].to;
        const uint32_t sampling = params.sampling[k];
        if (sampling == 0) column_at = i;
        else if (sampling == 1) row_at = i;
        else if (sampling == 2) plane_at = i;
        else from += i * params.strides[k].from;
    }
    // 2. Their sums.
    const parts rows(params, 1, row_at), planes(params, 2, plane_at);
    if constexpr (is_vector) {
        const parts columns(params, 0, column_at);
        using sums = resize_sums<A, width>;
        const sums sum = resized<sums>(
            columns, rows, planes,
            [&](sums &sum, A weight, uint64_t offset) {
                A values[width];
                unpack<T>(load<bytes, false>(from + offset), values);
#pragma unroll
                for (int i = 0; i < width; ++i) sum.of[i] += weight * values[i];
            },
            [](sums &sum, A weight, const sums &part) {
#pragma unroll
                for (int i = 0; i < width; ++i) sum.of[i] += weight * part.of[i];
            });
        store<bytes, false>(to, pack<T, bytes>(sum.of));
    } else {
        A sum[width];
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const parts columns(params, 0, column_at + i);
            sum[i] = resized<A>(
                columns, rows, planes, [&](A &sum, A weight, uint64_t offset) { sum += weight * widen<T>(from[offset]); },
                [](A &sum, A weight, A part) { sum += weight * part; });
        }
        if constexpr (width > 1) store<bytes, false>(to, pack<T, bytes>(sum));
        else *to = narrow<T>(sum[0]);
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_resize_params &params, const bops_resize_choice &choice,
                                                   const bops_resize_operands &operands, void *, const Action &action) {
    return for_float(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int full = 16 / sizeof(T);
        return for_value<1, 2, 4>(choice.taps, [&](auto taps) {
            return for_flag(choice.is_backward, [&](auto is_backward) -> bops_status {
                const launch_shape shape = movement_shape(params.parts);
                if (choice.width == 1) return action(resize<T, taps, is_backward, 1, false>, shape, params, operands);
                if (choice.width != full) return cudaErrorInvalidValue;
                if (choice.is_vector) return action(resize<T, taps, is_backward, full, true>, shape, params, operands);
                if constexpr (!is_backward && taps < 4) return action(resize<T, taps, false, full, false>, shape, params, operands);
                else return cudaErrorInvalidValue;
            });
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_resize, bops_dtype, bops_resize_params, bops_resize_choice, bops_resize_operands, bops::with_kernel)
