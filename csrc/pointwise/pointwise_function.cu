// One function of operands of one type, or whose result or first argument is Bool.
#include "../common/dispatch.cuh"
#include "casts.cuh"
#include "special.cuh"
#include "walk.cuh"

namespace bops {
namespace {

// Accesses of a thread to each operand: two loads are in flight, of two arguments or of one in a walk of one extent. Special functions take as long as a load.
template <int extents, int arguments, int bytes, int cost> constexpr int function_accesses =
    extents == 1 && arguments == 1 && bytes == 16 && cost < BOPS_COST_SPECIAL ? 2 : 1;

// Elements of a special function that are computed together: a few in the most usual kernels, else one, which keeps the code short.
template <int extents, int arguments, typename T> constexpr int special_at_once = extents == 1 && sizeof(T) < 8 ? 4 : 1;

// Blocks of an SM that registers are allotted for. Three arguments, which have as many loads in flight, remainders and special functions take more registers.
template <typename T, int arguments, int cost> constexpr int function_blocks =
    arguments == 3 || cost >= BOPS_COST_DIGITS ? pointwise_blocks<T> / 2 : pointwise_blocks<T>;

template <typename A, int width> __device__ __forceinline__ void fill(uint64_t literal, A (&v)[width]) {
    A value;
    if constexpr (sizeof(A) == 8) value = __longlong_as_double(int64_t(literal));
    else value = __uint_as_float(uint32_t(literal));
#pragma unroll
    for (int i = 0; i < width; ++i) v[i] = value;
}

// An access to as many elements as `bytes` hold of T, which are of another type.
template <typename Of, typename T, int bytes> constexpr int bytes_of = bytes / int(sizeof(T)) * int(sizeof(Of));

template <typename Of, typename A, int bytes, int width>
__device__ __forceinline__ void values_of(bool is_repeated, const packed<bytes> &from, A (&to)[width]) {
    accumulator_t<Of> v[width];
    unpack_walked<Of>(is_repeated, from, v);
#pragma unroll
    for (int i = 0; i < width; ++i) to[i] = A(v[i]);
}

// T: the elements of all operands but the first argument, which are X, and the result, which are R. `bytes`: of an access to those of T.
template <typename T, typename X, typename R, int bytes, int extents, int arguments, int cost>
__global__ void __launch_bounds__(pointwise_threads, function_blocks<T, arguments, cost>)
    pointwise_function(const __grid_constant__ bops_pointwise_function_params params,
                       const __grid_constant__ bops_pointwise_function_operands operands) {
    constexpr int width = pointwise_width<T, bytes>, accesses = function_accesses<extents, arguments, bytes, cost>;
    constexpr bool is_read_once = extents == 1;
    using A = accumulator_t<T>;
    const uint64_t elements = params.walk.elements, start = uint64_t(blockIdx.x) * (pointwise_threads * accesses) + threadIdx.x;
    if (start * width >= elements) return;
    const auto place_of = [&](int k) { return place<extents, extents != 4>(params.walk, start + k * pointwise_threads, width); };
    const auto left_of = [&](int k) {
        const uint64_t first = (start + k * pointwise_threads) * width;
        return first < elements ? elements - first : 0;
    };
    // 1. The arguments.
    packed<bytes_of<X, T, bytes>> from_x[accesses] = {};
    packed<bytes> from_y[accesses] = {}, from_z[accesses] = {};
#pragma unroll
    for (int k = 0; k < accesses; ++k) {
        const auto at = place_of(k);
        const auto argument = [&](auto tag, const bops_pointwise_argument &of, const void *base) {
            using Of = typename decltype(tag)::type;
            const Of *from = static_cast<const Of *>(base) + at.offset(of.walked);
            return load_walked<Of, bytes_of<Of, T, bytes>, is_read_once>(arguments > 1 && of.walked.is_repeated, from, left_of(k));
        };
        if (arguments == 1 || !params.x.is_literal) from_x[k] = argument(type_tag<X>{}, params.x, operands.x);
        if (arguments > 1 && !params.y.is_literal) from_y[k] = argument(type_tag<T>{}, params.y, operands.y);
        if (arguments > 2 && !params.z.is_literal) from_z[k] = argument(type_tag<T>{}, params.z, operands.z);
    }
    // 2. The function.
#pragma unroll
    for (int k = 0; k < accesses; ++k) {
        if (left_of(k) == 0) break;
        A x[width], y[width], z[width], r[width];
        values_of<X>(arguments > 1 && params.x.walked.is_repeated, from_x[k], x);
        if constexpr (arguments > 1) {
            unpack_walked<T>(params.y.walked.is_repeated != 0, from_y[k], y);
            if (params.x.is_literal) fill(params.x.literal, x);
            if (params.y.is_literal) fill(params.y.literal, y);
        }
        if constexpr (arguments > 2) {
            unpack_walked<T>(params.z.walked.is_repeated != 0, from_z[k], z);
            if (params.z.is_literal) fill(params.z.literal, z);
        }
        if constexpr (cost == BOPS_COST_SPECIAL) {
            constexpr int at_once = special_at_once<extents, arguments, T> < width ? special_at_once<extents, arguments, T> : width;
            apply_special<arguments, at_once>(params.function, x, y, r);
        } else if constexpr (cost == BOPS_COST_SERIES) {
            apply_special<arguments, 1, cost>(params.function, x, y, r);
        } else {
            apply<arguments, cost>(params.function, x, y, z, r);
        }
        accumulator_t<R> results[width];
#pragma unroll
        for (int i = 0; i < width; ++i) {
            if constexpr (std::is_same_v<R, T>) results[i] = r[i];
            else results[i] = cast<R>(r[i]);
        }
        constexpr int stored = bytes_of<R, T, bytes>;
        put<R, stored>(static_cast<R *>(operands.out) + place_of(k).offset(params.out), left_of(k), pack<R, stored>(results));
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_pointwise_function_params &params,
                                                   const bops_pointwise_function_choice &choice, const bops_pointwise_function_operands &operands,
                                                   void *, const Action &action) {
    return for_vectors(dtype, choice.vec_bytes, [&](auto tag, auto bytes) {
        using T = typename decltype(tag)::type;
        const auto run = [&](auto extents, auto arguments, auto cost) {
            const auto shape = pointwise_shape(params.walk.elements, pointwise_width<T, bytes> * function_accesses<extents, arguments, bytes, cost>);
            if constexpr (cost == BOPS_COST_LIGHT && bytes == 16) {
                if constexpr (arguments < 3) {
                    if (params.out.dtype == BOPS_BOOL)
                        return action(pointwise_function<T, T, boolean, bytes, extents, arguments, cost>, shape, params, operands);
                } else if (params.x.walked.dtype == BOPS_BOOL) {
                    return action(pointwise_function<T, boolean, T, bytes, extents, arguments, cost>, shape, params, operands);
                }
            }
            return action(pointwise_function<T, T, T, bytes, extents, arguments, cost>, shape, params, operands);
        };
        const auto with_arguments = [&](auto extents) {
            return for_value<1, 2, 3>(params.arguments, [&](auto arguments) {
                return for_value<BOPS_COST_LIGHT, BOPS_COST_EXPONENTIAL, BOPS_COST_DIGITS, BOPS_COST_SPECIAL, BOPS_COST_SERIES>(
                    params.cost, [&](auto cost) {
                        if constexpr (has_functions<arguments, cost>) return run(extents, arguments, cost);
                        else return bops_status(cudaErrorInvalidValue);
                    });
            });
        };
        if constexpr (bytes < 16) return with_arguments(std::integral_constant<int, BOPS_POINTWISE_EXTENTS>());
        else return for_value<1, 4>(choice.extents, with_arguments);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pointwise_function, bops_dtype, bops_pointwise_function_params, bops_pointwise_function_choice,
                 bops_pointwise_function_operands, bops::with_kernel)
