// What goes to one row of y is combined. Entries lie in the order of their keys; a team of threads takes a part of a fixed number of them, whatever their keys.
// A run is the entries of a key: where it lies within a part its row is complete, else the part keeps its share of it in accumulators, and the part in which it
// begins gathers the others in a second launch.
// Compiled once for all architectures.
#include "scatter.cuh"

namespace bops {
namespace {

constexpr int batch = 4, of_chain = 32;

template <typename A, int width> __device__ __forceinline__ void combine_all(bops_scatter_combine combine, A (&x)[width], const A (&y)[width]) {
#pragma unroll
    for (int w = 0; w < width; ++w) x[w] = combined(combine, x[w], y[w]);
}

// What a part keeps of a run: `side` 0 where the run began before it, 1 where it begins in it.
template <typename A, int width> __device__ __forceinline__ A *kept(A *parts, const bops_scatter_rows &rows, uint64_t part, int side, uint64_t unit) {
    return parts + ((2 * part + side) * rows.units + unit) * width;
}

// Completes a row of y.
template <typename T, int bytes, int width> __device__ __forceinline__ void put_row(const bops_scatter_params &params, T *y, uint32_t key,
                                                                                    const scatter_place &at, accumulator_t<T> (&value)[width]) {
    using A = accumulator_t<T>;
    T *const to = y + (key * params.rows.key + at.y) * width;
    if (params.has_base) {
        A base[width];
        unpack<T>(load<bytes, false>(to), base);
        combine_all(params.combine, base, value);
#pragma unroll
        for (int w = 0; w < width; ++w) value[w] = base[w];
    }
    store<bytes, false>(to, pack<T, bytes>(value));
}

template <typename T, int bytes> __global__ void __launch_bounds__(movement_threads)
    scatter(const __grid_constant__ bops_scatter_params params, scatter_pairs pairs, const T *source, T *y, accumulator_t<T> *parts) {
    using A = accumulator_t<T>;
    constexpr int width = bytes / int(sizeof(T));
    const bops_scatter_rows &rows = params.rows;
    const scatter_place at(rows);
    const uint64_t first = at.share * params.part, last = first + params.part < rows.entries ? first + params.part : rows.entries;
    if (first >= rows.entries || at.unit >= rows.units) return;
    uint32_t key = pairs.keys[first];
    if (key >= rows.keys) return;
    bool begins = first == 0 || pairs.keys[first - 1] != key, is_new = true;
    A held[width];
#pragma unroll 1
    for (uint64_t i = first; i < last; i += batch) {
        // 1. Some entries.
        uint32_t keys[batch];
        packed<bytes> loaded[batch] = {};
#pragma unroll
        for (int b = 0; b < batch; ++b) {
            keys[b] = i + b < last ? pairs.keys[i + b] : rows.keys;
            if (keys[b] < rows.keys) loaded[b] = load<bytes, false>(source + (pairs.places[i + b] * rows.place + at.source) * width);
        }
        // 2. Each with those of its run before it.
#pragma unroll
        for (int b = 0; b < batch; ++b) {
            if (keys[b] >= rows.keys) continue;
            A value[width];
            unpack<T>(loaded[b], value);
            if (keys[b] != key) {
                if (begins) {
                    put_row<T, bytes>(params, y, key, at, held);
                } else {
                    A *const to = kept<A, width>(parts, rows, at.share, 0, at.unit);
#pragma unroll
                    for (int w = 0; w < width; ++w) to[w] = held[w];
                }
                key = keys[b], begins = true, is_new = true;
            }
            if (is_new) {
#pragma unroll
                for (int w = 0; w < width; ++w) held[w] = value[w];
            } else {
                combine_all(params.combine, held, value);
            }
            is_new = false;
        }
    }
    // 3. The last run.
    if (begins && (last == rows.entries || pairs.keys[last] != key)) {
        put_row<T, bytes>(params, y, key, at, held);
    } else {
        A *const to = kept<A, width>(parts, rows, at.share, begins ? 1 : 0, at.unit);
#pragma unroll
        for (int w = 0; w < width; ++w) to[w] = held[w];
    }
}

// Rows of runs that begin in one part and end in another.
template <typename T, int bytes> __global__ void __launch_bounds__(movement_threads)
    scatter_gather(const __grid_constant__ bops_scatter_params params, scatter_pairs pairs, T *y, accumulator_t<T> *parts) {
    using A = accumulator_t<T>;
    constexpr int width = bytes / int(sizeof(T));
    const bops_scatter_rows &rows = params.rows;
    const scatter_place at(rows);
    const uint64_t first = at.share * params.part, next = first + params.part;
    if (next >= rows.entries || at.unit >= rows.units) return;
    const uint32_t key = pairs.keys[next - 1];
    if (key >= rows.keys || pairs.keys[next] != key || (first > 0 && pairs.keys[first - 1] == key)) return;
    // 1. The last part that the run reaches.
    uint64_t reached = at.share + 1, beyond = (rows.entries + params.part - 1) / params.part;
    while (beyond - reached > 1) {
        const uint64_t middle = reached + (beyond - reached) / 2;
        if (pairs.keys[middle * params.part] == key) reached = middle;
        else beyond = middle;
    }
    // 2. Chains of a fixed number of parts, one after another, of which sums however many lose nothing.
    A total[width], held[width], lost[width] = {};
    const A *const own = kept<A, width>(parts, rows, at.share, 1, at.unit);
#pragma unroll
    for (int w = 0; w < width; ++w) total[w] = own[w];
#pragma unroll 1
    for (uint64_t chain = at.share + 1; chain <= reached; chain += of_chain) {
        const uint64_t end = chain + of_chain <= reached + 1 ? chain + of_chain : reached + 1;
        const A *from = kept<A, width>(parts, rows, chain, 0, at.unit);
#pragma unroll
        for (int w = 0; w < width; ++w) held[w] = from[w];
#pragma unroll 4
        for (uint64_t part = chain + 1; part < end; ++part) {
            from = kept<A, width>(parts, rows, part, 0, at.unit);
            A value[width];
#pragma unroll
            for (int w = 0; w < width; ++w) value[w] = from[w];
            combine_all(params.combine, held, value);
        }
#pragma unroll
        for (int w = 0; w < width; ++w) {
            const A before = total[w], part = held[w];
            total[w] = combined(params.combine, before, part);
            if constexpr (!std::is_integral_v<A>) {
                // What the addition lost, exactly: D. E. Knuth, "The Art of Computer Programming", volume 2, theorem 4.2.2 B.
                const A added = total[w] - before;
                if (params.combine == BOPS_SCATTER_ADD) lost[w] += (before - (total[w] - added)) + (part - added);
            }
        }
    }
    // Of infinity and NaN nothing is lost, and a sum of -0 stays that.
#pragma unroll
    for (int w = 0; w < width; ++w)
        if (lost[w] != 0 && total[w] - total[w] == 0) total[w] += lost[w];
    put_row<T, bytes>(params, y, key, at, total);
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_scatter_params &params, const bops_scatter_choice &choice,
                                                   const bops_scatter_operands &operands, void *workspace, const Action &action) {
    return for_combined(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return for_value<int(sizeof(T)), 16>(choice.unit_bytes, [&](auto bytes) {
            const scatter_pairs pairs = pairs_in(params.rows, workspace);
            accumulator_t<T> *const parts = reinterpret_cast<accumulator_t<T> *>(static_cast<char *>(workspace) + params.parts);
            const launch_shape shape = scatter_shape(params.rows);
            T *const y = static_cast<T *>(operands.y);
            const bops_status status = action(scatter<T, bytes>, shape, params, pairs, static_cast<const T *>(operands.source), y, parts);
            if (status != 0 || params.rows.entries <= params.part) return status;
            return action(scatter_gather<T, bytes>, shape, params, pairs, y, parts);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scatter, bops_dtype, bops_scatter_params, bops_scatter_choice, bops_scatter_operands, bops::with_kernel)
