// Elements that go along a line of y, which a block holds on chip. Of the elements that go to one place it takes the first in the order of the source, round by
// round, so that they are combined in that order. Places to which many go are left after some rounds: the block combines what is left place by place.
// Compiled once for all architectures.
#include "scatter.cuh"

namespace bops {
namespace {

// Entries of a thread at once, and the most of a block, of which a claim has the number in its low bits.
constexpr int of_thread = 4;
constexpr uint32_t claim_bits = 10, last_claim = (1u << claim_bits) - 1;
constexpr uint32_t most_rounds = 16; // for the entries that a block has at once
static_assert(of_thread * movement_threads == 1 << claim_bits, "a claim has room for the number of each entry of a block");

// Where a block's line begins, in elements of the operands.
struct scatter_line {
    uint64_t index = 0, source = 0, y = 0;
    __device__ __forceinline__ explicit scatter_line(const bops_scatter_lines_params &params) {
        uint64_t rest = blockIdx.x;
        for (int k = 0; k < params.rank; ++k) {
            uint64_t i = rest;
            if (k + 1 < params.rank) {
                const split_number split(params.inner[k], false, rest);
                i = split.rest, rest = split.quotient;
            }
            index += i * params.strides[k].index, source += i * params.strides[k].place, y += i * params.strides[k].key;
        }
    }
};

// What leaves any value as it is that is combined with it.
template <typename A> __device__ __forceinline__ A neutral(bops_scatter_combine combine) {
    if constexpr (std::is_integral_v<A>) {
        const A least = std::is_signed_v<A> ? A(std::make_unsigned_t<A>(1) << (8 * sizeof(A) - 1)) : A(0);
        return combine == BOPS_SCATTER_ADD ? A(0) : combine == BOPS_SCATTER_MULTIPLY ? A(1) : combine == BOPS_SCATTER_MIN ? A(~least) : least;
    } else {
        const A infinity = A(__int_as_float(0x7f800000));
        return combine == BOPS_SCATTER_ADD ? A(-0.0f) : combine == BOPS_SCATTER_MULTIPLY ? A(1) : combine == BOPS_SCATTER_MIN ? infinity : -infinity;
    }
}

// A line on chip: what is held of each element, and who claims it.
template <typename A> struct scatter_held {
    A *values;
    uint32_t *claims;
};

template <typename T, int width> struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) neighbours { T of[width]; };

// Writes `count` units of a line, each with what is held of its elements.
template <typename T, int width> __device__ __forceinline__ void put_line(const bops_scatter_lines_params &params, const T *base, T *y,
                                                                          uint32_t count, const scatter_held<accumulator_t<T>> &held) {
    using A = accumulator_t<T>;
    constexpr int bytes = width * int(sizeof(T)), batch = width > 8 ? 1 : width > 4 ? 2 : 4;
    const uint64_t step = width == 1 ? params.axis.apart : 1;
    for (uint32_t first = threadIdx.x; first < count; first += batch * blockDim.x) {
        packed<bytes> before[batch] = {};
#pragma unroll
        for (int b = 0; b < batch; ++b) {
            const uint32_t unit = first + b * blockDim.x;
            if (params.has_base && unit < count) before[b] = load<bytes, false>(base + unit * step * width);
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) {
            const uint32_t unit = first + b * blockDim.x;
            if (unit >= count) break;
            const neighbours<A, width> values = reinterpret_cast<const neighbours<A, width> *>(held.values)[unit];
            const neighbours<uint32_t, width> claimed = reinterpret_cast<const neighbours<uint32_t, width> *>(held.claims)[unit];
            A value[width];
            unpack<T>(before[b], value);
            bool any = false;
#pragma unroll
            for (int w = 0; w < width; ++w)
                if (claimed.of[w] != 0) value[w] = params.has_base ? combined(params.combine, value[w], values.of[w]) : values.of[w], any = true;
            // What nothing goes to keeps its bits.
            store<bytes, false>(y + unit * step * width, any ? pack<T, bytes>(value) : before[b]);
        }
    }
}

template <typename T> constexpr int lines_at_once = sizeof(T) == 4 ? 6 : sizeof(T) == 2 ? 5 : 4; // blocks of an SM

template <typename T> __global__ void __launch_bounds__(movement_threads, lines_at_once<T>)
    scatter_lines(const __grid_constant__ bops_scatter_lines_params params, bops_scatter_lines_operands operands, bool is_wide) {
    using A = accumulator_t<T>;
    extern __shared__ uint4 of_line[];
    const uint32_t extent = uint32_t(params.axis.extent), room = (extent + 3) / 4 * 4;
    A *const values = reinterpret_cast<A *>(of_line);
    const scatter_held<A> held = {values, reinterpret_cast<uint32_t *>(values + room)};
    __shared__ uint32_t least[2];
    __shared__ A of_warps[movement_threads / 32];
    const scatter_line line(params);
    const T *const source = static_cast<const T *>(operands.source) + line.source;
    // 1. Nothing goes anywhere yet.
    const A none = neutral<A>(params.combine);
    const neighbours<A, 4> nothing = {none, none, none, none};
    for (uint32_t i = threadIdx.x; i < room / 4; i += blockDim.x) {
        reinterpret_cast<neighbours<A, 4> *>(held.values)[i] = nothing;
        reinterpret_cast<uint4 *>(held.claims)[i] = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x < 2) least[threadIdx.x] = ~0u;
    __syncthreads();
    uint32_t round = 0, turn = 0;
    for (uint64_t first = 0; first < params.entries; first += of_thread * blockDim.x) {
        // 2. Some entries.
        uint32_t position[of_thread], waiting = 0;
        A value[of_thread];
#pragma unroll
        for (int k = 0; k < of_thread; ++k) {
            const uint64_t entry = first + k * blockDim.x + threadIdx.x;
            position[k] = 0, value[k] = none;
            if (entry >= params.entries) continue;
            const uint64_t named = named_position(params.axis, operands.indices, line.index + entry * params.step.index);
            value[k] = widen<T>(source[entry * params.step.place]);
            if (named != no_position) position[k] = uint32_t(named), waiting |= 1u << k;
        }
        // 3. In each round places are claimed: by a later round before earlier ones, in one round by the first entry. Whoever has the claim is combined.
        const uint32_t last_round = round + most_rounds;
        bool is_left;
        do {
            ++round;
#pragma unroll
            for (int k = 0; k < of_thread; ++k)
                if (waiting >> k & 1) atomicMax(&held.claims[position[k]], round << claim_bits | (last_claim - (k * blockDim.x + threadIdx.x)));
            __syncthreads();
#pragma unroll
            for (int k = 0; k < of_thread; ++k)
                if (waiting >> k & 1 && held.claims[position[k]] == (round << claim_bits | (last_claim - (k * blockDim.x + threadIdx.x)))) {
                    held.values[position[k]] = combined(params.combine, held.values[position[k]], value[k]);
                    waiting &= ~(1u << k);
                }
            is_left = __syncthreads_or(waiting != 0);
        } while (is_left && round < last_round);
        // 4. What still waits, from the first place on: each thread's, then those of a warp, then those of the block.
        while (is_left) {
            uint32_t own = ~0u;
#pragma unroll
            for (int k = 0; k < of_thread; ++k)
                if (waiting >> k & 1) own = min(own, position[k]);
            own = __reduce_min_sync(~0u, own);
            if (threadIdx.x % 32 == 0) atomicMin(&least[turn], own);
            __syncthreads();
            const uint32_t place = least[turn];
            A sum = none;
#pragma unroll
            for (int k = 0; k < of_thread; ++k)
                if (waiting >> k & 1 && position[k] == place) sum = combined(params.combine, sum, value[k]), waiting &= ~(1u << k);
#pragma unroll
            for (int step = 1; step < 32; step *= 2) sum = combined(params.combine, sum, A(__shfl_down_sync(~0u, sum, step)));
            if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
            turn ^= 1;
            __syncthreads();
            if (threadIdx.x == 0) {
                for (uint32_t w = 1; w < blockDim.x / 32; ++w) sum = combined(params.combine, sum, of_warps[w]);
                held.values[place] = combined(params.combine, held.values[place], sum);
                least[turn ^ 1] = ~0u;
            }
            is_left = __syncthreads_or(waiting != 0);
        }
    }
    // 5. The line.
    const T *const base = static_cast<const T *>(operands.base) + line.y;
    T *const y = static_cast<T *>(operands.y) + line.y;
    if (is_wide) put_line<T, 16 / int(sizeof(T))>(params, base, y, extent / (16 / int(sizeof(T))), held);
    else put_line<T, 1>(params, base, y, extent, held);
}

// The last entry of each place.
template <int unit_bytes> __global__ void __launch_bounds__(movement_threads)
    scatter_set_lines(const __grid_constant__ bops_scatter_lines_params params, bops_scatter_lines_operands operands) {
    using unit = unit_t<unit_bytes>;
    extern __shared__ uint4 of_line[];
    uint32_t *const claims = reinterpret_cast<uint32_t *>(of_line);
    const uint32_t extent = uint32_t(params.axis.extent);
    const scatter_line line(params);
    for (uint32_t i = threadIdx.x; i < extent; i += blockDim.x) claims[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (uint32_t entry = threadIdx.x; entry < params.entries; entry += blockDim.x) {
        const uint64_t named = named_position(params.axis, operands.indices, line.index + entry * params.step.index);
        if (named != no_position) atomicMax(&claims[named], entry + 1);
    }
    __syncthreads();
    const unit *const source = static_cast<const unit *>(operands.source) + line.source;
    const unit *const base = static_cast<const unit *>(operands.base) + line.y;
    unit *const y = static_cast<unit *>(operands.y) + line.y;
    constexpr int batch = 8;
    for (uint32_t first = threadIdx.x; first < extent; first += batch * blockDim.x) {
        unit value[batch];
#pragma unroll
        for (int b = 0; b < batch; ++b) {
            const uint32_t i = first + b * blockDim.x;
            value[b] = constant<unit_bytes>(0);
            if (i >= extent) continue;
            if (claims[i] != 0) value[b] = source[(claims[i] - 1) * params.step.place];
            else if (params.has_base) value[b] = base[i * params.axis.apart];
        }
#pragma unroll
        for (int b = 0; b < batch; ++b)
            if (first + b * blockDim.x < extent) y[(first + b * blockDim.x) * params.axis.apart] = value[b];
    }
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_scatter_lines_params &params, const bops_scatter_lines_choice &choice,
                                                   const bops_scatter_lines_operands &operands, void *, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(uint32_t(params.lines)), shape.block = dim3(choice.threads);
    const uint32_t room = uint32_t(params.axis.extent + 3) / 4 * 4;
    if (choice.set_bytes > 0) {
        shape.shared_bytes = 4 * room;
        return for_value<1, 2, 4, 8>(choice.set_bytes, [&](auto bytes) { return action(scatter_set_lines<bytes>, shape, params, operands); });
    }
    return for_combined(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using A = accumulator_t<T>;
        shape.shared_bytes = (4 + uint32_t(sizeof(A))) * room;
        return action(scatter_lines<T>, shape, params, operands, choice.is_wide != 0);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scatter_lines, bops_dtype, bops_scatter_lines_params, bops_scatter_lines_choice, bops_scatter_lines_operands, bops::with_kernel)
