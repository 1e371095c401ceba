// Scans along lines in which elements lie next to each other, and of any strides: a team of threads takes a piece of a line, tile by tile. A tile is two
// chunks of each thread, all first ones before all second ones.
// Compiled once for all architectures.
#include "scan.cuh"

namespace bops {
namespace {

constexpr int chunks = BOPS_SCAN_CHUNKS, width = BOPS_SCAN_WIDTH, warps = BOPS_SCAN_THREADS / 32;

template <typename A, int combine> __global__ void __launch_bounds__(BOPS_SCAN_THREADS, sizeof(typename scanned<combine, A>::state) == 16 ? 1
                                                                                        : sizeof(A) == 4                                  ? 3
                                                                                                                                          : 2)
    scan_rows(const __grid_constant__ bops_scan_params params, const __grid_constant__ bops_scan_operands operands,
              typename scanned<combine, A>::state *parts, bool is_of_totals) {
    using M = scanned<combine, A>;
    using state = typename M::state;
    __shared__ state held[2][chunks * warps]; // of each warp and chunk; that of the other tile may still be read
    const uint32_t threads = params.threads, thread = threadIdx.x % threads;
    const uint64_t number = uint64_t(blockIdx.x) * (BOPS_SCAN_THREADS / threads) + threadIdx.x / threads;
    const uint64_t line = params.pieces == 1 ? number : number / params.pieces, piece = params.pieces == 1 ? 0 : number - line * params.pieces;
    const bool is_there = line < params.lines;
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, is_there ? line : 0, 1);
    const uint64_t x = at.offset(params.x.lines), length = is_there ? params.length : 0;
    const scan_output<combine, A> output{params, operands, length, at.offset(params.y.lines),
                                         combine == BOPS_SCAN_GREATEST_AT ? at.offset(params.indices.lines) : 0};
    const uint32_t lanes = threads < 32 ? threads : 32, lane = threadIdx.x % lanes, warp = thread / 32;
    scan_carry<M> carry(params.pieces > 1 && !is_of_totals ? parts[number] : M::none());
    for (uint32_t tile = 0; tile < params.tiles; ++tile) {
        const uint64_t start = (piece * params.tiles + tile) * (uint64_t(threads) * chunks * width);
        if (start >= params.length) break; // teams of several tiles are whole blocks
        // 1. The thread's elements.
        A v[chunks][width];
        uint64_t first[chunks], left[chunks];
#pragma unroll
        for (int k = 0; k < chunks; ++k) {
            first[k] = start + uint64_t(k * threads + thread) * width;
            left[k] = first[k] < length ? length - first[k] : 0;
        }
        bool is_loaded = false;
        if constexpr (std::is_floating_point_v<A>) {
            if (params.x.is_run) {
                is_loaded = true;
                scan_chunk<A> loaded[chunks] = {};
                const auto from = [&](int k) { return x + (params.is_reverse ? params.length - first[k] - width : first[k]); };
                const bool is_half = params.x.lines.dtype != (sizeof(A) == 8 ? BOPS_F64 : BOPS_F32);
#pragma unroll
                for (int k = 0; k < chunks; ++k)
                    if (left[k] > 0) {
                        if (is_half) loaded[k].template load_as<__half>(operands.x, from(k));
                        else loaded[k].template load_as<A>(operands.x, from(k));
                    }
#pragma unroll
                for (int k = 0; k < chunks; ++k) {
                    if constexpr (sizeof(A) == 8) loaded[k].template unpack_as<A>(v[k]);
                    else if (!is_half) loaded[k].template unpack_as<A>(v[k]);
                    else if (params.x.lines.dtype == BOPS_F16) loaded[k].template unpack_as<__half>(v[k]);
                    else loaded[k].template unpack_as<__nv_bfloat16>(v[k]);
                    if (params.is_reverse)
#pragma unroll
                        for (int i = 0; i < width / 2; ++i) {
                            const A kept = v[k][i];
                            v[k][i] = v[k][width - 1 - i], v[k][width - 1 - i] = kept;
                        }
                }
            }
        }
        if (!is_loaded)
#pragma unroll
            for (int k = 0; k < chunks; ++k)
                gather(params.x.lines.dtype, operands.x, x + output.element(first[k]) * params.x.step,
                       params.is_reverse ? 0 - params.x.step : params.x.step, left[k], v[k]);
        // 2. The threads of a warp.
        state before[chunks], of_warp[chunks];
#pragma unroll
        for (int k = 0; k < chunks; ++k) {
            negate_if<combine>(params.is_least, v[k]);
            of_warp[k] = over_lanes<M>(together<combine>(first[k], left[k], v[k]), lane, lanes);
            before[k] = shuffled_up(of_warp[k], 1);
            if (lane == 0) before[k] = M::none();
        }
        // 3. The warps, chunk by chunk.
        state total;
        if (threads > 32) {
            state(&here)[chunks * warps] = held[tile % 2];
            const uint32_t used = threads / 32, first_warp = threadIdx.x / 32 - warp, entries = chunks * used;
            if (lane == 31)
#pragma unroll
                for (int k = 0; k < chunks; ++k) here[(first_warp * chunks) + k * used + warp] = of_warp[k];
            __syncthreads();
            const state all = over_lanes<M>(lane < entries ? here[first_warp * chunks + lane] : M::none(), lane, chunks * warps);
#pragma unroll
            for (int k = 0; k < chunks; ++k) {
                const uint32_t entry = k * used + warp;
                const state earlier = shuffled(all, entry > 0 ? entry - 1 : 0);
                if (entry > 0) before[k] = M::both(earlier, before[k]);
            }
            total = shuffled(all, entries - 1);
        } else {
            const uint32_t last = (threadIdx.x % 32) / lanes * lanes + lanes - 1;
            total = shuffled(of_warp[0], last);
#pragma unroll
            for (int k = 1; k < chunks; ++k) {
                before[k] = M::both(total, before[k]);
                total = M::both(total, shuffled(of_warp[k], last));
            }
        }
        // 4. The results.
        if (!is_of_totals)
#pragma unroll
            for (int k = 0; k < chunks; ++k) output.store(M::both(carry.total(), before[k]), first[k], v[k]);
        carry.add(total);
    }
    if (is_of_totals && thread == 0 && is_there) parts[number] = carry.total();
}

template <typename Action> bops_status with_kernel(bops_dtype computing, const bops_scan_params &params, const bops_scan_choice &choice,
                                                   const bops_scan_operands &operands, void *workspace, const Action &action) {
    return for_scan(computing, choice.combine, [&](auto tag, auto combine) {
        using A = typename decltype(tag)::type;
        launch_shape shape;
        shape.grid = dim3(uint32_t(params.blocks)), shape.block = dim3(BOPS_SCAN_THREADS);
        return with_phases<A, combine>(scan_rows<A, combine>, shape, params, operands, workspace, action);
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scan_rows, bops_dtype, bops_scan_params, bops_scan_choice, bops_scan_operands, bops::with_kernel)
