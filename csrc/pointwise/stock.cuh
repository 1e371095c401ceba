// Programs that kernels are compiled for, of pointwise, of what is reduced, and of sets: the instructions that Rust makes of them, in words as
// bops_pointwise_program_params has them. A program that is equal but for the numbers of its literals runs as one of them. A test in Rust holds what stands
// between the marks.
#pragma once
#include "../bops_pointwise.h"

namespace bops::stock {

template <typename... Programs> struct list {};

constexpr uint32_t last = BOPS_VALUE_LAST, literal = BOPS_VALUE_LITERAL;

constexpr uint64_t instruction(bops_function function, uint64_t x, uint64_t y, uint64_t z, uint64_t to, uint64_t arguments, uint64_t cost) {
    return function | x << 8 | y << 16 | z << 24 | to << 32 | arguments << 40 | cost << 48;
}

// clang-format off
struct swiglu {
    static constexpr int inputs = 2, outputs = 1, instructions = 2, slots = 2;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_SILU, 0, last, last, last, 1, BOPS_COST_SPECIAL),
        instruction(BOPS_FUNCTION_MUL, last, 1, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct swiglu_gradient {
    static constexpr int inputs = 3, outputs = 2, instructions = 10, slots = 5;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_SILU, 0, last, last, 3, 1, BOPS_COST_SPECIAL),
        instruction(BOPS_FUNCTION_MUL, 2, 1, last, 1, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, 2, 3, last, 2, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_NEG, 0, last, last, 3, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SIGMOID, 0, last, last, 4, 1, BOPS_COST_EXPONENTIAL),
        instruction(BOPS_FUNCTION_SIGMOID, 3, last, last, last, 1, BOPS_COST_EXPONENTIAL),
        instruction(BOPS_FUNCTION_MUL, last, 0, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 0, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, last, 4, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, last, 1, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last, 2};
};
struct scale_shift_clamp {
    static constexpr int inputs = 1, outputs = 1, instructions = 3, slots = 1;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_MUL, 0, literal + 0, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 1, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_CLAMP, last, literal + 2, literal + 3, last, 3, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct product {
    static constexpr int inputs = 2, outputs = 1, instructions = 1, slots = 2;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_MUL, 0, 1, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct square {
    static constexpr int inputs = 1, outputs = 1, instructions = 1, slots = 1;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_MUL, 0, 0, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct squared_difference {
    static constexpr int inputs = 2, outputs = 1, instructions = 2, slots = 2;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_SUB, 0, 1, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, last, last, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct mse {
    static constexpr int inputs = 2, outputs = 1, instructions = 2, slots = 2;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_SUB, 0, 1, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQUARE, last, last, last, last, 1, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last};
};
struct adamw {
    static constexpr int inputs = 4, outputs = 3, instructions = 10, slots = 4;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_LERP, 2, 1, literal + 0, 2, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQUARE, 1, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 3, last, literal + 1, 1, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQRT, last, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, last, literal + 2, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, 2, last, last, 3, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, 0, literal + 4, last, 0, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, literal + 5, 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SUB, 0, last, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last, 2, 1};
};
struct adamw_scaled {
    static constexpr int inputs = 4, outputs = 3, instructions = 11, slots = 4;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_MUL, 1, literal + 0, last, 1, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 2, last, literal + 1, 2, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQUARE, 1, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 3, last, literal + 2, 1, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQRT, last, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, last, literal + 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 4, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, 2, last, last, 3, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, 0, literal + 5, last, 0, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, literal + 6, 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SUB, 0, last, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last, 2, 1};
};
struct adamw_copied {
    static constexpr int inputs = 4, outputs = 4, instructions = 10, slots = 4;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_LERP, 2, 1, literal + 0, 2, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQUARE, 1, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 3, last, literal + 1, 1, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQRT, last, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, last, literal + 2, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, 2, last, last, 3, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, 0, literal + 4, last, 0, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, literal + 5, 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SUB, 0, last, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last, 2, 1, last};
};
struct adamw_scaled_copied {
    static constexpr int inputs = 4, outputs = 4, instructions = 11, slots = 4;
    static constexpr uint64_t code[] = {
        instruction(BOPS_FUNCTION_MUL, 1, literal + 0, last, 1, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 2, last, literal + 1, 2, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQUARE, 1, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_LERP, 3, last, literal + 2, 1, 3, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SQRT, last, last, last, last, 1, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, last, literal + 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_ADD, last, literal + 4, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_DIV, 2, last, last, 3, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, 0, literal + 5, last, 0, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_MUL, literal + 6, 3, last, last, 2, BOPS_COST_LIGHT),
        instruction(BOPS_FUNCTION_SUB, 0, last, last, last, 2, BOPS_COST_LIGHT),
    };
    static constexpr uint32_t result[] = {last, 2, 1, last};
};
using programs = list<swiglu, swiglu_gradient, scale_shift_clamp>;
using reduced = list<product, square, squared_difference, mse>;
using updates = list<adamw, adamw_scaled, adamw_copied, adamw_scaled_copied>;
// clang-format on

} // namespace bops::stock
