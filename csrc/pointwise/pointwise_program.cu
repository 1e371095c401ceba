// An interpreter of programs: any functions, operands of any types and strides. It has one accumulator, which instructions read first and write.
#include "../common/dispatch.cuh"
#include "casts.cuh"
#include "integers.cuh"
#include "special.cuh"
#include "walk.cuh"

namespace bops {
namespace {

// The bits of a number of the computing type.
__device__ __forceinline__ void number(uint64_t bits, float &to) { to = __uint_as_float(uint32_t(bits)); }
__device__ __forceinline__ void number(uint64_t bits, double &to) { to = __longlong_as_double(int64_t(bits)); }
template <typename A> __device__ __forceinline__ void number(uint64_t bits, A &to) { to = A(bits); }

template <typename A, int width> __device__ __forceinline__ void copy(const A (&from)[width], A (&to)[width]) {
#pragma unroll
    for (int i = 0; i < width; ++i) to[i] = from[i];
}

// Values of a thread: `slots` in registers, each of `width` elements, or with 0 slots all that a program can have in local memory; and the accumulator.
template <typename A, int width, int slots> struct values {
    static constexpr int most = slots > 0 ? slots : BOPS_POINTWISE_INPUTS + BOPS_POINTWISE_INSTRUCTIONS;
    A slot[most][width];
    A last[width];

    // The value at a place. Registers have no numbers that a thread could compute, so they are told apart by branches, which all threads take alike.
    __device__ __forceinline__ void get(uint32_t place, const uint64_t *literals, A (&to)[width]) const {
        if (place < BOPS_VALUE_LAST) get_slot(place, to);
        else if (place == BOPS_VALUE_LAST) copy(last, to);
        else {
            A literal;
            number(literals[place - BOPS_VALUE_LITERAL], literal);
#pragma unroll
            for (int i = 0; i < width; ++i) to[i] = literal;
        }
    }

    template <int low = 0, int high = slots> __device__ __forceinline__ void get_slot(uint32_t place, A (&to)[width]) const {
        if constexpr (slots == 0) copy(slot[place], to);
        else if constexpr (high - low == 1) copy(slot[low], to);
        else if (place < uint32_t(low + high) / 2) get_slot<low, (low + high) / 2>(place, to);
        else get_slot<(low + high) / 2, high>(place, to);
    }

    // Keeps the accumulator.
    template <int low = 0, int high = slots> __device__ __forceinline__ void put(uint32_t place) {
        if constexpr (slots == 0) copy(last, slot[place]);
        else if constexpr (high - low == 1) copy(last, slot[low]);
        else if (place < uint32_t(low + high) / 2) put<low, (low + high) / 2>(place);
        else put<(low + high) / 2, high>(place);
    }
};

// Elements of one type in memory, known when the kernel is compiled: accesses of 16 bytes.
template <typename T> struct uniform {
    using A = accumulator_t<T>;
    static constexpr int width = 16 / int(sizeof(T));
    using raw = packed<16>;

    template <bool is_read_once>
    static __device__ __forceinline__ raw load(const bops_walked &walked, const void *base, uint64_t offset, uint64_t left) {
        return load_walked<T, 16, is_read_once>(walked.is_repeated != 0, static_cast<const T *>(base) + offset, left);
    }
    static __device__ __forceinline__ void unpack(const bops_walked &walked, const raw &from, A (&to)[width]) {
        unpack_walked<T>(walked.is_repeated != 0, from, to);
    }
    static __device__ __forceinline__ void store(const bops_walked &, void *base, uint64_t offset, uint64_t left, const A (&v)[width]) {
        put<T, 16>(static_cast<T *>(base) + offset, left, pack<T, 16>(v));
    }
};

// Calls f(type_tag<T>{}) with the type of elements that compute in A.
template <typename A, typename F> __device__ __forceinline__ void with_elements(bops_dtype dtype, const F &f) {
    if (dtype == BOPS_BOOL) f(type_tag<boolean>{});
    else if constexpr (std::is_same_v<A, float>) {
        if (dtype == BOPS_F32) f(type_tag<float>{});
        else if (dtype == BOPS_F16) f(type_tag<__half>{});
        else if (dtype == BOPS_BF16) f(type_tag<__nv_bfloat16>{});
        else if (dtype == BOPS_F8E4M3) f(type_tag<e4m3>{});
        else f(type_tag<e5m2>{});
    } else if constexpr (std::is_same_v<A, int32_t>) {
        if (dtype == BOPS_I32) f(type_tag<int32_t>{});
        else if (dtype == BOPS_U8) f(type_tag<uint8_t>{});
        else f(type_tag<int8_t>{});
    } else f(type_tag<A>{});
}

// Elements of any type that computes in A, `elements` in an access.
template <typename Computing, int elements> struct mixed {
    using A = Computing;
    static constexpr int width = elements;
    using raw = packed<(width * int(sizeof(A)) < 4 ? 4 : width * int(sizeof(A)))>;

    template <typename T, bool is_read_once>
    static __device__ __forceinline__ void load_as(const bops_walked &walked, const void *base, uint64_t offset, uint64_t left, raw &to) {
        constexpr int bytes = width * int(sizeof(T));
        const packed<bytes> from = load_walked<T, bytes, is_read_once>(walked.is_repeated != 0, static_cast<const T *>(base) + offset, left);
#pragma unroll
        for (int i = 0; i < (bytes + 3) / 4; ++i) to.word[i] = from.word[i];
    }
    template <bool is_read_once>
    static __device__ __forceinline__ raw load(const bops_walked &walked, const void *base, uint64_t offset, uint64_t left) {
        raw to;
        with_elements<A>(walked.dtype, [&](auto tag) { load_as<typename decltype(tag)::type, is_read_once>(walked, base, offset, left, to); });
        return to;
    }

    template <typename T> static __device__ __forceinline__ void unpack_as(const bops_walked &walked, const raw &from, A (&to)[width]) {
        constexpr int bytes = width * int(sizeof(T));
        packed<bytes> part;
#pragma unroll
        for (int i = 0; i < (bytes + 3) / 4; ++i) part.word[i] = decltype(part.word[0] + 0)(from.word[i]);
        accumulator_t<T> values[width];
        unpack_walked<T>(walked.is_repeated != 0, part, values);
#pragma unroll
        for (int i = 0; i < width; ++i) to[i] = A(values[i]);
    }
    static __device__ __forceinline__ void unpack(const bops_walked &walked, const raw &from, A (&to)[width]) {
        with_elements<A>(walked.dtype, [&](auto tag) { unpack_as<typename decltype(tag)::type>(walked, from, to); });
    }

    // Casts to T.
    template <typename T> static __device__ __forceinline__ void store_as(void *base, uint64_t offset, uint64_t left, const A (&v)[width]) {
        constexpr int bytes = width * int(sizeof(T)) < 16 ? width * int(sizeof(T)) : 16, part = bytes / int(sizeof(T));
        T *to = static_cast<T *>(base) + offset;
#pragma unroll
        for (int i = 0; i < width; i += part) {
            accumulator_t<T> rounded[part];
#pragma unroll
            for (int j = 0; j < part; ++j) rounded[j] = cast<T>(v[i + j]);
            if (left > i) put<T, bytes>(to + i, left - i, pack<T, bytes>(rounded));
        }
    }
    static __device__ __forceinline__ void store(const bops_walked &walked, void *base, uint64_t offset, uint64_t left, const A (&v)[width]) {
        switch (walked.dtype) {
        case BOPS_F64: store_as<double>(base, offset, left, v); break;
        case BOPS_F32: store_as<float>(base, offset, left, v); break;
        case BOPS_F16: store_as<__half>(base, offset, left, v); break;
        case BOPS_BF16: store_as<__nv_bfloat16>(base, offset, left, v); break;
        case BOPS_I64: store_as<int64_t>(base, offset, left, v); break;
        case BOPS_I32: store_as<int32_t>(base, offset, left, v); break;
        case BOPS_U32: store_as<uint32_t>(base, offset, left, v); break;
        case BOPS_BOOL: store_as<boolean>(base, offset, left, v); break;
        case BOPS_U8: store_as<uint8_t>(base, offset, left, v); break;
        case BOPS_I8: store_as<int8_t>(base, offset, left, v); break;
        case BOPS_F8E4M3: store_as<e4m3>(base, offset, left, v); break;
        default: store_as<e5m2>(base, offset, left, v); break;
        }
    }
};

// As `apply`, of a function of any cost, and of integers, where it does not count.
template <int arguments, int least = 0, typename A, int count>
__device__ __forceinline__ void apply_any(bops_cost cost, bops_function function, const A (&x)[count], const A (&y)[count], const A (&z)[count],
                                          A (&r)[count]) {
    if constexpr (std::is_integral_v<A>) {
        apply_to_integers<arguments>(function, x, y, z, r);
    } else if constexpr (least == BOPS_COST_SPECIAL) {
        if constexpr (has_functions<arguments, least>) apply_special<arguments, 1>(function, x, y, r);
    } else {
        if constexpr (!has_functions<arguments, least>) apply_any<arguments, least + 1>(cost, function, x, y, z, r);
        else if (cost == least) apply<arguments, least>(function, x, y, z, r);
        else apply_any<arguments, least + 1>(cost, function, x, y, z, r);
    }
}

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
#pragma unroll
    for (int i = 0; i < E::width * accesses; ++i) values.last[i] = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < params.instructions; ++i) {
        const uint64_t word = params.instruction[i];
        const auto byte = [&](int at) { return uint32_t(word >> 8 * at) & 255; };
        const uint32_t function = byte(0), x = byte(1), to = byte(4), arguments = byte(5), cost = byte(6);
        if (arguments == 1) {
            if (x != BOPS_VALUE_LAST) values.get(x, params.literal, values.last);
            apply_any<1>(cost, function, values.last, values.last, values.last, values.last);
        } else {
            A y[E::width * accesses];
            values.get(byte(2), params.literal, y);
            if (arguments == 2) {
                if (x != BOPS_VALUE_LAST) values.get(x, params.literal, values.last);
                apply_any<2>(cost, function, values.last, y, y, values.last);
            } else {
                A z[E::width * accesses];
                values.get(byte(3), params.literal, z);
                if (x != BOPS_VALUE_LAST) values.get(x, params.literal, values.last);
                apply_any<3>(cost, function, values.last, y, z, values.last);
            }
        }
        if (to != BOPS_VALUE_LAST) values.put(to);
    }
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
