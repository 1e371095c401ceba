// An interpreter of programs: any functions, operands of any types and strides.
#include "program.cuh"

namespace bops {
namespace {

// Blocks of an SM that registers are allotted for; `words` are those of a thread's values, which take less than half of its registers.
constexpr int blocks_for(int words) { return words >= 32 ? 2 : words >= 16 ? 3 : 4; }
template <typename E, int accesses, int slots> constexpr int program_blocks = blocks_for(slots *accesses *E::width *int(sizeof(typename E::A)) / 4);

// E: the elements. `accesses`: of a thread to each operand; more than 1 only with one extent.
template <typename E, int accesses, int extents, int slots> __global__ void __launch_bounds__(pointwise_threads, program_blocks<E, accesses, slots>)
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
    values<A, E::width * accesses, slots> values;
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
    interpret(values, params.instruction, params.instructions, params.literal);
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

// Slots of kernels for vectors. Integers have one kernel for all programs.
template <typename A, typename F> bops_status with_slots(uint32_t slots, const F &f) {
    if constexpr (std::is_integral_v<A>) return for_value<8>(slots, f);
    else return for_value<4, 8>(slots, f);
}

// What kernels are compiled for, by the types of operands: elements, accesses of a thread in dense walks, and the numbers of slots that they come in.
template <typename Action> bops_status with_kernel(bops_dtype, const bops_pointwise_program_params &params,
                                                   const bops_pointwise_program_choice &choice, const bops_pointwise_program_operands &operands,
                                                   void *, const Action &action) {
    const auto run = [&](auto kernel, int width) { return action(kernel, pointwise_shape(params.walk.elements, width), params, operands); };
    const auto dense = [&](auto elements, auto accesses) {
        using E = typename decltype(elements)::type;
        return with_slots<typename E::A>(choice.slots, [&](auto slots) {
            constexpr int fitting = E::width * accesses * slots > 32 ? 1 : accesses;
            return run(pointwise_program<E, fitting, 1, slots>, E::width * fitting);
        });
    };
    const auto walked = [&](auto computing) {
        using A = typename decltype(computing)::type;
        constexpr int width = 16 / int(sizeof(A));
        if (choice.extents == 1) return dense(type_tag<mixed<A, width>>{}, std::integral_constant<int, 1>{});
        if (choice.extents == 4)
            return with_slots<A>(choice.slots, [&](auto slots) { return run(pointwise_program<mixed<A, width>, 1, 4, slots>, width); });
        return for_value<8, 0>(choice.slots, [&](auto slots) { return run(pointwise_program<mixed<A, 1>, 1, BOPS_POINTWISE_EXTENTS, slots>, 1); });
    };
    if (choice.is_uniform)
        return for_narrow(choice.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            return dense(type_tag<uniform<T>>{}, std::integral_constant < int, sizeof(T) == 4 ? 2 : 1 > {});
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
