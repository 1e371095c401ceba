// An interpreter of programs: any functions, operands of any types and strides.
#include "program.cuh"

namespace bops {
namespace {

// What kernels run where outputs are inputs.
struct nothing {
    static constexpr int slots = 1;
    template <typename V> static __device__ __forceinline__ void run(V &, const bops_pointwise_program_params &) {}
};

// 32-bit words of a thread's values in slots.
template <typename E, int accesses, typename R> constexpr int words_of = R::slots *accesses *E::width *int(sizeof(typename E::A)) / 4;

// Blocks of an SM that registers are allotted for.
template <typename E, int accesses, typename R> struct blocks_for {
    static constexpr int words = words_of<E, accesses, R>, value = words > 32 ? 2 : words >= 32 ? 3 : 4;
};
// The interpreter of functions of any cost takes more of them than the values.
template <typename E, int accesses, int slots> struct blocks_for<E, accesses, interpreted<slots, BOPS_COST_SPECIAL>> {
    static constexpr int words = words_of<E, accesses, interpreted<slots, BOPS_COST_SPECIAL>>, value = words >= 32 ? 2 : words >= 16 ? 3 : 4;
};
// That of integrals, whose values lie in memory, as many as two blocks leave it.
template <typename E, int accesses, int slots> struct blocks_for<E, accesses, interpreted<slots, BOPS_COST_INTEGRAL>> {
    static constexpr int value = 2;
};

// E: the elements. `accesses`: of a thread to each operand; more than 1 only with one extent. R: what it runs.
template <typename E, int accesses, int extents, typename R> __global__ void __launch_bounds__(pointwise_threads, blocks_for<E, accesses, R>::value)
    pointwise_program(const __grid_constant__ bops_pointwise_program_params params,
                      const __grid_constant__ bops_pointwise_program_operands operands) {
    using A = typename E::A;
    constexpr bool is_read_once = extents == 1;
    const uint64_t elements = params.walk.elements, start = uint64_t(blockIdx.x) * (pointwise_threads * accesses) + threadIdx.x;
    if (start * E::width >= elements) return;
    const auto place_of = [&](int k) { return place<extents, extents != 4>(params.walk, start + k * pointwise_threads, E::width); };
    const auto left_of = [&](int k) {
        const uint64_t first = (start + k * pointwise_threads) * E::width;
        return first < elements ? elements - first : 0;
    };
    values<A, E::width * accesses, R::slots> values;
    constexpr int most_inputs = values.most < BOPS_POINTWISE_INPUTS ? values.most : BOPS_POINTWISE_INPUTS;
    // 1. The inputs, all before any output is stored: they may lie in the same place.
    typename E::raw raw[most_inputs][accesses] = {};
#pragma unroll
    for (int k = 0; k < accesses; ++k) {
        const auto at = place_of(k);
#pragma unroll
        for (int i = 0; i < most_inputs; ++i) {
            if (i >= params.inputs) break;
            raw[i][k] = E::template load<is_read_once>(params.input[i], operands.input[i], at.offset(params.input[i]), left_of(k));
        }
    }
#pragma unroll
    for (int i = 0; i < most_inputs; ++i) {
        if (i >= params.inputs) break;
#pragma unroll
        for (int k = 0; k < accesses; ++k) {
            A v[E::width];
            E::unpack(params.input[i], raw[i][k], v);
#pragma unroll
            for (int j = 0; j < E::width; ++j) values.slot[i][k * E::width + j] = v[j];
        }
    }
    // 2. The instructions.
    R::run(values, params);
    // 3. The outputs.
#pragma unroll 1
    for (uint32_t i = 0; i < params.outputs; ++i) {
        A v[E::width * accesses];
        values.get(params.result[i], params.literal, v);
#pragma unroll
        for (int k = 0; k < accesses; ++k) {
            A part[E::width];
#pragma unroll
            for (int j = 0; j < E::width; ++j) part[j] = v[k * E::width + j];
            if (left_of(k) > 0) E::store(params.output[i], operands.output[i], place_of(k).offset(params.output[i]), left_of(k), part);
        }
    }
}

// Casts between types that are known when the kernel is compiled: loads that stand in branches of the types would wait for each other.
constexpr int cast_accesses = 4;
template <typename From, typename To> constexpr int cast_width = 16 / int(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));

template <typename From, typename To> __global__ void __launch_bounds__(pointwise_threads, 4)
    pointwise_cast(uint64_t elements, const From *from, To *to) {
    constexpr int width = cast_width<From, To>, read = width * int(sizeof(From)), written = width * int(sizeof(To));
    const uint64_t start = (uint64_t(blockIdx.x) * (pointwise_threads * cast_accesses) + threadIdx.x) * width;
    packed<read> raw[cast_accesses];
#pragma unroll
    for (int k = 0; k < cast_accesses; ++k) {
        const uint64_t at = start + uint64_t(k) * pointwise_threads * width;
        if (at < elements) raw[k] = fetch<From, read>(from + at, elements - at);
    }
#pragma unroll
    for (int k = 0; k < cast_accesses; ++k) {
        const uint64_t at = start + uint64_t(k) * pointwise_threads * width;
        if (at >= elements) break;
        accumulator_t<From> v[width];
        accumulator_t<To> rounded[width];
        unpack<From>(raw[k], v);
#pragma unroll
        for (int i = 0; i < width; ++i) rounded[i] = cast<To>(v[i]);
        put<To, written>(to + at, elements - at, pack<To, written>(rounded));
    }
}

// Whether kernels of casts have the type.
inline bool is_float(bops_dtype dtype) { return dtype == BOPS_F32 || dtype == BOPS_F16 || dtype == BOPS_BF16; }

inline written_program written(const bops_pointwise_program_params &params) {
    return {params.instruction, params.result, params.inputs, params.outputs, params.instructions};
}

// What kernels are compiled for, by the types of operands: elements, accesses of a thread in dense walks, and the numbers of slots that they come in.
template <typename Action> bops_status with_kernel(bops_dtype, const bops_pointwise_program_params &params,
                                                   const bops_pointwise_program_choice &choice, const bops_pointwise_program_operands &operands,
                                                   void *, const Action &action) {
    const auto run = [&](auto kernel, int width) { return action(kernel, pointwise_shape(params.walk.elements, width), params, operands); };
    // Of elements in vectors, with so many extents and at most so many accesses.
    const auto vectors = [&](auto elements, auto extents, auto accesses) {
        using E = typename decltype(elements)::type;
        using A = typename E::A;
        const auto with = [&](auto what) {
            using R = typename decltype(what)::type;
            constexpr int fitting = words_of<E, accesses, R> <= 32 ? accesses : 1;
            return run(pointwise_program<E, fitting, extents, R>, E::width * fitting);
        };
        const auto interpreter = [&] {
            // Integers and float64 have one for all programs.
            if constexpr (!std::is_same_v<A, float>) return with(type_tag<interpreted<8, BOPS_COST_SPECIAL>>{});
            else
                return for_value<4, 8>(choice.slots, [&](auto slots) {
                    if (cost_of(params.instruction, params.instructions) == BOPS_COST_LIGHT)
                        return with(type_tag<interpreted<slots, BOPS_COST_LIGHT>>{});
                    return with(type_tag<interpreted<slots, BOPS_COST_SPECIAL>>{});
                });
        };
        if constexpr (extents > 1) return interpreter();
        else {
            const bool is_cast = params.instructions == 0 && params.inputs == 1 && params.outputs == 1 && !params.input[0].is_repeated;
            if constexpr (std::is_same_v<E, mixed<float, 4>>)
                if (is_cast && is_float(params.input[0].dtype) && is_float(params.output[0].dtype))
                    return for_narrow(params.input[0].dtype, [&](auto from) {
                        return for_narrow(params.output[0].dtype, [&](auto to) {
                            using From = typename decltype(from)::type;
                            using To = typename decltype(to)::type;
                            return action(pointwise_cast<From, To>, pointwise_shape(params.walk.elements, cast_width<From, To> * cast_accesses),
                                          params.walk.elements, static_cast<const From *>(operands.input[0]), static_cast<To *>(operands.output[0]));
                        });
                    });
            if (params.instructions == 0 && params.inputs == 1) {
                constexpr int copied = (std::is_same_v<A, float> ? 64 : 32) / (E::width * int(sizeof(A)));
                return run(pointwise_program<E, copied, 1, nothing>, E::width * copied);
            }
            if constexpr (std::is_same_v<A, float>)
                return with_stock(
                    written(params), stock::programs{}, [&](auto program) { return with(type_tag<known<typename decltype(program)::type>>{}); },
                    interpreter);
            else return interpreter();
        }
    };
    constexpr std::integral_constant<int, 1> one;
    constexpr std::integral_constant<int, 2> two;
    constexpr std::integral_constant<int, 4> four;
    const auto walked = [&](auto computing) {
        using A = typename decltype(computing)::type;
        using E = mixed<A, 16 / int(sizeof(A))>;
        if (choice.extents == 1) return vectors(type_tag<E>{}, one, one);
        if (choice.extents == 4) return vectors(type_tag<E>{}, four, one);
        // Values in local memory: one kernel for programs with integrals, those that hold more than 8 values, and all of f64.
        constexpr int most = std::is_integral_v<A> ? BOPS_COST_SPECIAL : BOPS_COST_INTEGRAL;
        if constexpr (!std::is_same_v<A, double>)
            if (choice.slots == 8) return run(pointwise_program<mixed<A, 1>, 1, BOPS_POINTWISE_EXTENTS, interpreted<8, BOPS_COST_SPECIAL>>, 1);
        return run(pointwise_program<mixed<A, 1>, 1, BOPS_POINTWISE_EXTENTS, interpreted<0, most>>, 1);
    };
    if (choice.is_uniform)
        return for_narrow(choice.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            // Of 16-bit elements an access has twice as many values.
            if constexpr (sizeof(T) == 4) return vectors(type_tag<uniform<T>>{}, one, two);
            else return vectors(type_tag<uniform<T>>{}, one, one);
        });
    switch (choice.dtype) {
    case BOPS_F64: return walked(type_tag<double>{});
    case BOPS_F32: return walked(type_tag<float>{});
    case BOPS_I32: return walked(type_tag<int32_t>{});
    case BOPS_U32: return walked(type_tag<uint32_t>{});
    default: return walked(type_tag<int64_t>{});
    }
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_pointwise_program, bops_dtype, bops_pointwise_program_params, bops_pointwise_program_choice, bops_pointwise_program_operands,
                 bops::with_kernel)
