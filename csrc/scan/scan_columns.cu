// Scans across lines that lie next to each other: threads side by side have neighbouring lines, and up to 32 threads share a line, tile by tile.
// Compiled once for all architectures.
#include "scan.cuh"

namespace bops {
namespace {

constexpr int across = BOPS_SCAN_ACROSS, most_deep = BOPS_SCAN_DEEP;

template <typename A, int combine> __global__ void __launch_bounds__(across *most_deep, sizeof(typename scanned<combine, A>::state) == 16 ? 1 : 2)
    scan_columns(const __grid_constant__ bops_scan_params params, const __grid_constant__ bops_scan_operands operands,
                 typename scanned<combine, A>::state *parts, bool is_of_totals) {
    using M = scanned<combine, A>;
    using state = typename M::state;
    constexpr int steps = sizeof(A) == 4 ? BOPS_SCAN_STEPS_F32 : BOPS_SCAN_STEPS;
    __shared__ state held[across][most_deep + 1]; // of each thread, then of those before it
    __shared__ state far[across], near[across];   // of the tiles before
    const uint32_t deep = params.threads, lane = threadIdx.x % across, thread = threadIdx.x / across;
    const uint64_t piece = params.pieces == 1 ? 0 : blockIdx.x / params.groups, group = blockIdx.x - piece * params.groups;
    const uint64_t line = group * across + lane;
    const bool is_there = line < params.lines;
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, is_there ? line : 0, 1);
    const uint64_t x = at.offset(params.x.lines), length = is_there ? params.length : 0;
    const scan_output<combine, A> output{params, operands, length, at.offset(params.y.lines),
                                         combine == BOPS_SCAN_GREATEST_AT ? at.offset(params.indices.lines) : 0};
    if (thread == 0) {
        far[lane] = params.pieces > 1 && !is_of_totals && is_there ? parts[line * params.pieces + piece] : M::none();
        near[lane] = M::none();
    }
    __syncthreads();
    for (uint32_t tile = 0; tile < params.tiles; ++tile) {
        const uint64_t start = (piece * params.tiles + tile) * (uint64_t(deep) * steps);
        if (start >= params.length) break;
        // 1. The thread's elements.
        A v[steps];
        const uint64_t first = start + thread * steps, left = first < length ? length - first : 0;
        gather(params.x.lines.dtype, operands.x, x + output.element(first) * params.x.step, params.is_reverse ? 0 - params.x.step : params.x.step,
               left, v);
        negate_if<combine>(params.is_least, v);
        held[lane][thread] = together<combine>(first, left, v);
        __syncthreads();
        // 2. The threads of each line, by a warp.
        const uint32_t of_line = threadIdx.x % 32;
        for (uint32_t own = threadIdx.x / 32; own < across; own += blockDim.x / 32) {
            const state until = over_lanes<M>(of_line < deep ? held[own][of_line] : M::none(), of_line, 32);
            state before = shuffled_up(until, 1);
            if (of_line == 0) before = M::none();
            const state total = shuffled(until, 31), earlier = M::both(far[own], near[own]);
            if (of_line < deep) held[own][of_line] = M::both(earlier, before);
            __syncwarp();
            if (of_line == 0) {
                const bool is_full = (tile + 1) % BOPS_SCAN_CHAIN == 0;
                const state together = M::both(near[own], total);
                if (is_full) far[own] = M::both(far[own], together);
                near[own] = is_full ? M::none() : together;
            }
        }
        __syncthreads();
        // 3. The results.
        if (!is_of_totals) output.store(held[lane][thread], first, v);
    }
    if (is_of_totals && thread == 0 && is_there) parts[line * params.pieces + piece] = M::both(far[lane], near[lane]);
}

template <typename Action> bops_status with_kernel(bops_dtype computing, const bops_scan_params &params, const bops_scan_choice &choice,
                                                   const bops_scan_operands &operands, void *workspace, const Action &action) {
    return for_scan(computing, choice.combine, [&](auto tag, auto combine) {
        using A = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid = dim3(uint32_t(params.blocks)), shape.block = dim3(across * params.threads);
        return with_phases<A, combine>(scan_columns<A, combine>, shape, params, operands, workspace, action);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scan_columns, bops_dtype, bops_scan_params, bops_scan_choice, bops_scan_operands, bops::with_kernel)
