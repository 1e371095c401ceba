// Tensors with other extents, and the gradient of that: a thread makes one element of the target, or some neighbours, from those of the source that are part of
// them.
// Compiled once for all architectures.
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

// Planes of twice as many columns and rows, x the coarse one and y the fine one, of which column 2 i and row 2 i are those below position i. A thread has one coarse
// row, with the neighbours that half a vector of the fine rows has, or, of vectors of elements that are not resized, one coarse column.
template <typename T, int taps, bool is_backward, bool is_vector> __global__ void __launch_bounds__(movement_threads, 2)
    resize_doubled(const __grid_constant__ bops_resize_params params, const __grid_constant__ bops_resize_operands operands) {
    using A = accumulator_t<T>;
    constexpr int width = 16 / int(sizeof(T)), pairs = is_vector ? 1 : width / 2, lanes = is_vector ? width : 1;
    // What lies around the columns and rows: on the coarse side one element before and one behind, on the fine side as well.
    constexpr int around = taps - 1, columns = (is_backward ? 2 * pairs : pairs) + 2 * around, rows = (is_backward ? 2 : 1) + 2 * around;
    constexpr int neighbours = is_backward ? 2 * pairs : pairs; // of an access to a row of the source that is no vector
    const uint64_t number = uint64_t(blockIdx.x) * movement_threads + threadIdx.x;
    if (number >= params.parts) return;
    // 1. The coarse element, and where the planes begin.
    uint64_t rest = number;
    uint32_t column = 0, row = 0;
    uint64_t to_column = 0, to_row = 0;
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
        if (k == 0) i *= is_vector ? width : pairs;
        const uint32_t sampling = params.sampling[k];
        if (sampling == 0) column = uint32_t(i), to_column = params.strides[k].to;
        else if (sampling == 1) row = uint32_t(i), to_row = params.strides[k].to;
        else to += i * params.strides[k].to, from += i * params.strides[k].from;
    }
    // 2. The elements of the source. Forward those beyond the ends are the last there; backward they are 0.
    const uint64_t from_column = params.of[0].step, from_row = params.of[1].step;
    constexpr uint32_t scale = is_backward ? 2 : 1;
    const uint32_t last_column = uint32_t(params.of[0].from) - 1, last_row = uint32_t(params.of[1].from) - 1;
    A source[rows][columns][lanes];
    packed<neighbours *int(sizeof(T))> middle[is_vector ? 1 : rows];
    packed<16> vectors[is_vector ? rows : 1][is_vector ? columns : 1];
    T ends[rows][2];
    const auto find = [&](int i, uint32_t at, int count, uint32_t last, bool &is_there) {
        // The element of the source, the first of `count` being `around` before that of `at`.
        const uint32_t element = scale * at + i - around, end = scale * (last + 1);
        is_there = element < end;
        if (is_backward || is_there) return element;
        return i == 0 ? 0u : last;
    };
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        bool is_row;
        const uint32_t element_row = find(r, row, rows, last_row, is_row);
        const T *const line = from + element_row * from_row;
        is_row = is_row || !is_backward;
        if constexpr (is_vector) {
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                bool is_column;
                const uint32_t element = find(c, column, columns, last_column, is_column);
                vectors[r][c] = {};
                if (is_row && (is_column || !is_backward)) vectors[r][c] = load<16, false>(line + element * from_column);
            }
        } else {
            middle[r] = {};
            ends[r][0] = ends[r][1] = narrow<T>(0);
            if (is_row) {
                middle[r] = *reinterpret_cast<const packed<neighbours *int(sizeof(T))> *>(line + scale * column);
                if constexpr (taps == 2) {
                    bool is_left, is_right;
                    const uint32_t left = find(0, column, columns, last_column, is_left),
                                   right = find(columns - 1, column, columns, last_column, is_right);
                    if (is_left || !is_backward) ends[r][0] = line[left];
                    if (is_right || !is_backward) ends[r][1] = line[right];
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        if constexpr (is_vector) {
#pragma unroll
            for (int c = 0; c < columns; ++c) unpack<T>(vectors[r][c], source[r][c]);
        } else {
            A values[neighbours];
            unpack<T>(middle[r], values);
#pragma unroll
            for (int c = 0; c < neighbours; ++c) source[r][c + around][0] = values[c];
            if constexpr (taps == 2) source[r][0][0] = widen<T>(ends[r][0]), source[r][columns - 1][0] = widen<T>(ends[r][1]);
        }
    }
    // 3. Sums along columns, and of these along rows.
    constexpr A near = A(0.75), far = A(0.25);
    if constexpr (is_backward) {
        A sums[pairs][lanes] = {};
        const A of_rows[4] = {far, row == 0 ? A(1) : near, row == last_row ? A(1) : near, far};
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
            for (int j = 0; j < pairs; ++j) {
                const bool is_first = j == 0 && column == 0, is_last = j == pairs - 1 && column + pairs - 1 == last_column;
                const A of_columns[4] = {far, is_first ? A(1) : near, is_last ? A(1) : near, far};
#pragma unroll
                for (int k = 0; k < lanes; ++k) {
                    A sum = 0;
#pragma unroll
                    for (int c = 0; c < 2 * taps; ++c)
                        sum = taps == 1 ? sum + source[r][2 * j + c][k] : fma(of_columns[c], source[r][2 * j + c][k], sum);
                    sums[j][k] = taps == 1 ? sums[j][k] + sum : fma(of_rows[r], sum, sums[j][k]);
                }
            }
        T *const target = to + (row * to_row + column * to_column);
        if constexpr (is_vector) store<16, false>(target, pack<T, 16>(sums[0]));
        else {
            A results[pairs];
#pragma unroll
            for (int j = 0; j < pairs; ++j) results[j] = sums[j][0];
            store<pairs *int(sizeof(T)), false>(target, pack<T, pairs *int(sizeof(T))>(results));
        }
    } else {
        A along[rows][2 * pairs][lanes];
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
            for (int j = 0; j < pairs; ++j)
#pragma unroll
                for (int k = 0; k < lanes; ++k) {
                    const A(&own)[columns][lanes] = source[r];
                    if constexpr (taps == 1) along[r][2 * j][k] = along[r][2 * j + 1][k] = A(0) + own[j][k];
                    else {
                        along[r][2 * j][k] = fma(near, own[j + around][k], fma(far, own[j][k], A(0)));
                        along[r][2 * j + 1][k] = fma(far, own[j + 2 * around][k], fma(near, own[j + around][k], A(0)));
                    }
                }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            T *const target = to + ((2 * row + h) * to_row + 2 * column * to_column);
            A results[2 * pairs][lanes];
#pragma unroll
            for (int j = 0; j < 2 * pairs; ++j)
#pragma unroll
                for (int k = 0; k < lanes; ++k) {
                    if constexpr (taps == 1) results[j][k] = along[0][j][k];
                    else if (h == 0) results[j][k] = fma(near, along[around][j][k], fma(far, along[0][j][k], A(0)));
                    else results[j][k] = fma(far, along[2 * around][j][k], fma(near, along[around][j][k], A(0)));
                }
            if constexpr (is_vector) {
                store<16, false>(target, pack<T, 16>(results[0]));
                store<16, false>(target + to_column, pack<T, 16>(results[1]));
            } else {
                A neighbours_of_row[width];
#pragma unroll
                for (int j = 0; j < width; ++j) neighbours_of_row[j] = results[j][0];
                store<16, false>(target, pack<T, 16>(neighbours_of_row));
            }
        }
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
                if (choice.is_doubled) {
                    if constexpr (taps == 4 || sizeof(T) == 8) return cudaErrorInvalidValue;
                    else
                        return for_flag(choice.is_vector, [&](auto is_vector) {
                            return action(resize_doubled<T, taps, is_backward, is_vector>, shape, params, operands);
                        });
                }
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
