// Programs in registers: values of a thread, elements of any type, and the interpreter of instructions. It has one accumulator, which instructions read first
// and write.
#pragma once
#include "../common/dispatch.cuh"
#include "casts.cuh"
#include "integers.cuh"
#include "special.cuh"
#include "stock.cuh"
#include "walk.cuh"

namespace bops {

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
    // Four elements by loads of which one is done, without branches: behind those a load would be waited for before the next one starts.
    static __device__ __forceinline__ raw load_whole(bops_dtype dtype, const void *base, uint64_t offset) {
        const uint32_t log_size = dtype == BOPS_F32 ? 2 : dtype == BOPS_F16 || dtype == BOPS_BF16 ? 1 : 0;
        raw to = {};
        asm volatile("{\n\t.reg .pred p0, p1, p2;\n\t"
                     "setp.eq.u32 p0, %5, 0;\n\tsetp.eq.u32 p1, %5, 1;\n\tsetp.eq.u32 p2, %5, 2;\n\t"
                     "@p2 ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t@p1 ld.global.v2.u32 {%0, %1}, [%4];\n\t@p0 ld.global.u32 %0, [%4];\n\t}"
                     : "+r"(to.word[0]), "+r"(to.word[1]), "+r"(to.word[2]), "+r"(to.word[3])
                     : "l"(static_cast<const char *>(base) + (offset << log_size)), "r"(log_size)
                     : "memory");
        return to;
    }

    template <bool is_read_once>
    static __device__ __forceinline__ raw load(const bops_walked &walked, const void *base, uint64_t offset, uint64_t left) {
        if constexpr (std::is_same_v<A, float> && width == 4)
            if (!walked.is_repeated && left >= width) return load_whole(walked.dtype, base, offset);
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

// As `apply`, of a function whose cost is at most `most`, with the special ones those of series, and of integers, where it does not count. Integrals have
// kernels of their own, in which values lie in local memory: they take as many registers as there are.
template <int most, int arguments, int least = 0, typename A, int count>
__device__ __forceinline__ void apply_up_to(bops_cost cost, bops_function function, const A (&x)[count], const A (&y)[count], const A (&z)[count],
                                            A (&r)[count]) {
    if constexpr (std::is_integral_v<A>) {
        apply_to_integers<arguments>(function, x, y, z, r);
    } else if constexpr (least == BOPS_COST_SPECIAL) {
        if constexpr (most == BOPS_COST_INTEGRAL && arguments > 1) {
            if (cost == BOPS_COST_INTEGRAL) {
#pragma unroll
                for (int i = 0; i < count; ++i) r[i] = integral_of<arguments>(function, x[i], y[i], z[i]);
                return;
            }
        }
        if constexpr (has_functions<arguments, BOPS_COST_SERIES>)
            if (cost == BOPS_COST_SERIES) return apply_special<arguments, 1, BOPS_COST_SERIES>(function, x, y, r);
        if constexpr (has_functions<arguments, least>) apply_special<arguments, 1>(function, x, y, r);
    } else if constexpr (least == most) {
        if constexpr (has_functions<arguments, least>) apply<arguments, least>(function, x, y, z, r);
    } else {
        if constexpr (!has_functions<arguments, least>) apply_up_to<most, arguments, least + 1>(cost, function, x, y, z, r);
        else if (cost == least) apply<arguments, least>(function, x, y, z, r);
        else apply_up_to<most, arguments, least + 1>(cost, function, x, y, z, r);
    }
}

// A byte of an instruction's word, as bops_pointwise_program_params has it: function, x, y, z, place of the result, number of arguments, cost.
__host__ __device__ constexpr uint32_t byte_of(uint64_t word, int at) { return uint32_t(word >> 8 * at) & 255; }

// Runs instructions that are known when the kernel runs. `most`: of their costs.
template <int most = BOPS_COST_SPECIAL, typename A, int width, int slots>
__device__ __forceinline__ void interpret(values<A, width, slots> &values, const uint64_t *instructions, uint32_t count, const uint64_t *literals) {
#pragma unroll
    for (int i = 0; i < width; ++i) values.last[i] = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t word = instructions[i];
        const uint32_t function = byte_of(word, 0), x = byte_of(word, 1), to = byte_of(word, 4), arguments = byte_of(word, 5),
                       cost = byte_of(word, 6);
        if (arguments == 1) {
            if (x != BOPS_VALUE_LAST) values.get(x, literals, values.last);
            apply_up_to<most, 1>(cost, function, values.last, values.last, values.last, values.last);
        } else {
            A y[width];
            values.get(byte_of(word, 2), literals, y);
            if (arguments == 2) {
                if (x != BOPS_VALUE_LAST) values.get(x, literals, values.last);
                apply_up_to<most, 2>(cost, function, values.last, y, y, values.last);
            } else {
                A z[width];
                values.get(byte_of(word, 3), literals, z);
                if (x != BOPS_VALUE_LAST) values.get(x, literals, values.last);
                apply_up_to<most, 3>(cost, function, values.last, y, z, values.last);
            }
        }
        if (to != BOPS_VALUE_LAST) values.put(to);
    }
}

// Runs the instructions of P from `at` on, which are known when the kernel is compiled.
template <typename P, int at = 0, typename A, int width, int slots>
__device__ __forceinline__ void run_known(values<A, width, slots> &values, const uint64_t *literals) {
    if constexpr (at < P::instructions) {
        constexpr uint64_t word = P::code[at];
        constexpr uint32_t function = byte_of(word, 0), arguments = byte_of(word, 5), cost = byte_of(word, 6);
        A x[width], y[width], z[width];
        values.get(byte_of(word, 1), literals, x);
        if constexpr (arguments > 1) values.get(byte_of(word, 2), literals, y);
        if constexpr (arguments > 2) values.get(byte_of(word, 3), literals, z);
        if constexpr (cost == BOPS_COST_SPECIAL) apply_special<arguments, (width < 4 ? width : 4)>(function, x, y, values.last);
        else apply<arguments, cost>(function, x, y, z, values.last);
        if constexpr (byte_of(word, 4) != BOPS_VALUE_LAST) values.put(byte_of(word, 4));
        run_known<P, at + 1>(values, literals);
    }
}

// What kernels run on the values of a thread. Programs of any instructions, with so many slots, whose functions cost at most `most`:
template <int slots_, int most> struct interpreted {
    static constexpr int slots = slots_;
    template <typename V, typename Params> static __device__ __forceinline__ void run(V &values, const Params &params) {
        interpret<most>(values, params.instruction, params.instructions, params.literal);
    }
};

// The stock program P:
template <typename P> struct known {
    static constexpr int slots = P::slots;
    template <typename V, typename Params> static __device__ __forceinline__ void run(V &values, const Params &params) {
        run_known<P>(values, params.literal);
    }
};

// A program as params have it.
struct written_program {
    const uint64_t *code;
    const uint32_t *result;
    uint32_t inputs, outputs, instructions;
};

template <typename P> bool is_program(const written_program &program) {
    if (program.inputs != P::inputs || program.outputs != P::outputs || program.instructions != P::instructions) return false;
    for (int i = 0; i < P::instructions; ++i)
        if (program.code[i] != P::code[i]) return false;
    for (int i = 0; i < P::outputs; ++i)
        if (program.result[i] != P::result[i]) return false;
    return true;
}

// Calls f(tag of the stock program that this one is), or with none otherwise().
template <typename F, typename G> bops_status with_stock(const written_program &, stock::list<>, const F &, const G &otherwise) {
    return otherwise();
}
template <typename F, typename G, typename P, typename... Ps>
bops_status with_stock(const written_program &program, stock::list<P, Ps...>, const F &f, const G &otherwise) {
    return is_program<P>(program) ? f(type_tag<P>{}) : with_stock(program, stock::list<Ps...>{}, f, otherwise);
}

// The greatest cost of some instructions.
inline bops_cost cost_of(const uint64_t *code, uint32_t instructions) {
    bops_cost most = BOPS_COST_LIGHT;
    for (uint32_t i = 0; i < instructions; ++i) most = byte_of(code[i], 6) > most ? byte_of(code[i], 6) : most;
    return most;
}

} // namespace bops
