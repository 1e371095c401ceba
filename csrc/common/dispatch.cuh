// How a form finds its kernel: run-time values become template arguments. A value without a kernel gives cudaErrorInvalidValue.
#pragma once
#include <type_traits>

#include "dtype.cuh"

namespace bops {

// Calls f(type_tag<T>{}) with the C++ type of a dtype, if it is one of Types: there are no kernels for others.
template <typename... Types, typename F> bops_status for_types(bops_dtype dtype, const F &f) {
    return for_float(dtype, [&](auto tag) -> bops_status {
        if constexpr ((std::is_same_v<decltype(tag), type_tag<Types>> || ...)) return f(tag);
        else return bops_status(cudaErrorInvalidValue);
    });
}
// As for_types, for all elements of at most 4 bytes.
template <typename F> bops_status for_narrow(bops_dtype dtype, const F &f) { return for_types<float, __half, __nv_bfloat16>(dtype, f); }

// Calls f(std::integral_constant<int, n>) with the n of `choices` that `value` is.
template <int... choices, typename F> bops_status for_value(uint64_t value, const F &f) {
    bops_status status = bops_status(cudaErrorInvalidValue);
    (void)((value == uint64_t(choices) && (status = f(std::integral_constant<int, choices>()), true)) || ...);
    return status;
}

// Calls f(std::true_type) or f(std::false_type).
template <typename F> bops_status for_flag(bool flag, const F &f) { return flag ? f(std::true_type()) : f(std::false_type()); }

// Calls f(std::integral_constant<int, bytes>) with the bytes of one access to elements of type T: 16, or 4, or one element.
template <typename T, typename F> bops_status for_access(uint32_t bytes, const F &f) {
    if constexpr (sizeof(T) == 8) return for_value<8>(bytes, f);
    else if constexpr (sizeof(T) == 4) return for_value<16, 4>(bytes, f);
    else return for_value<16, 4, 2>(bytes, f);
}

} // namespace bops
