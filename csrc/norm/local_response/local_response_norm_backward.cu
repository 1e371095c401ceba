// LocalResponseNorm backward: the forms walk, rows, tile and direct. With e = dy d^-beta, the term of a channel is dy x d^(-beta - 1) = e x / d, and
// dx = e - slope x (sum of the terms of the channels whose windows hold the channel).
// Compiled once for all architectures.
#include "local_response_norm.cuh"

namespace bops {
namespace {

template <typename A> struct backward_arguments
    : response_arguments<A, bops_local_response_norm_backward_params, bops_local_response_norm_backward_operands> {
    A *terms; // direct: those of all elements, in the order in which threads are numbered
};

// Blocks that a multiprocessor has registers for, at least: the bound of registers that the compiler gets. `resident_blocks` in
// local_response_norm/cuda.rs says for how many blocks the kernels compiled under this bound leave registers.
constexpr int backward_walk_places(int size, int parts) { return size == 5 && parts == 2 ? 5 : 2; }

// Form walk: a thread owns the vectors at some positions and walks over the channels of its chunk. With each step one channel enters the window;
// the window of an earlier one is then complete and gives its term, and the terms of a still earlier one are complete and give its dx.
template <typename T, int size, int bytes, int parts, bool roots> __global__ void __launch_bounds__(walk_threads, backward_walk_places(size, parts))
    local_response_norm_backward_walk(const __grid_constant__ backward_arguments<float> a) {
    constexpr int width = bytes / int(sizeof(T)), after = size - size / 2 - 1, distance = walk_place<parts>::distance;
    const walk_place<parts> place(a.p.spatial / width);
    if (place.n >= a.p.batch) return;
    const int channels = int(a.p.channels), first = int(blockIdx.y * a.chunk), end = min(channels, first + int(a.chunk));
    const int64_t x_step = int64_t(a.p.x.channel), dy_step = int64_t(a.p.dy.channel), dx_step = int64_t(a.p.dx.channel);
    const int load_end = min(channels, end + (size - 1));
    int t = first - (size - 1);
    const T *x = static_cast<const T *>(a.o.x) + int64_t(place.n * a.p.x.batch + place.first * width) + t * x_step;
    const T *dy = static_cast<const T *>(a.o.dy) + int64_t(place.n * a.p.dy.batch + place.first * width) + t * dy_step;
    T *dx = static_cast<T *>(a.o.dx) + (place.n * a.p.dx.batch + place.first * width) + first * dx_step;

    // 1. The first loads.
    packed<bytes> x_data[size][parts], dy_data[size][parts];
#pragma unroll
    for (int i = 0; i < size; ++i, x += x_step, dy += dy_step)
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            const bool is_inside = t + i >= 0 && t + i < load_end && place.has(p);
            x_data[i][p] = load_channel<bytes>(x + p * distance, is_inside);
            dy_data[i][p] = load_channel<bytes>(dy + p * distance, is_inside);
        }
    // e_ring holds dy until d is known.
    float x_ring[size][parts][width] = {}, e_ring[size][parts][width] = {}, term_ring[size][parts][width] = {};
    for (; t < end + (size - 1); t += size) {
#pragma unroll
        for (int i = 0; i < size; ++i) {
            constexpr int back = size - after; // (i + back) % size: place of the channel whose window is complete
            const int mid = (i + back) % size;
            const bool has_term = t + i - after >= 0 && t + i - after < channels;
            const int c = t + i - (size - 1);
#pragma unroll
            for (int p = 0; p < parts; ++p) {
                // 2. Channel t + i enters the window, and a later one is loaded.
                unpack<T>(x_data[i][p], x_ring[i][p]);
                unpack<T>(dy_data[i][p], e_ring[i][p]);
                const bool is_inside = t + i + size < load_end && place.has(p);
                x_data[i][p] = load_channel<bytes>(x + p * distance, is_inside);
                dy_data[i][p] = load_channel<bytes>(dy + p * distance, is_inside);
            }
            x += x_step, dy += dy_step;
            // 3. The term of the channel whose window is complete; outside the channels there are none.
#pragma unroll
            for (int p = 0; p < parts; ++p)
#pragma unroll
                for (int j = 0; j < width; ++j) {
                    float sum = 0;
#pragma unroll
                    for (int w = 0; w < size; ++w) sum = fmaf(x_ring[w][p][j], x_ring[w][p][j], sum);
                    const auto r = reduce<roots>(a.r, sum, x_ring[mid][p][j]);
                    float &e = e_ring[mid][p][j];
                    e *= r.power;
                    term_ring[mid][p][j] = has_term ? e * r.ratio : 0.0f;
                }
            // 4. The channel whose terms are complete.
            if (c >= first && c < end) {
                const int oldest = (i + 1) % size;
                float result[parts][width];
#pragma unroll
                for (int p = 0; p < parts; ++p)
#pragma unroll
                    for (int j = 0; j < width; ++j) {
                        float sum = 0;
#pragma unroll
                        for (int w = 0; w < size; ++w) sum += term_ring[w][p][j];
                        result[p][j] = fmaf(-a.r.slope * x_ring[oldest][p][j], sum, e_ring[oldest][p][j]);
                    }
                place.template write<T, bytes>(dx, result);
                dx += dx_step;
            }
        }
    }
}

// Form rows: a position lies in the registers of a row of threads, 16 bytes of channels each.
template <typename T, int size, bool roots> __global__ void __launch_bounds__(response_threads)
    local_response_norm_backward_rows(const __grid_constant__ backward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), before = size / 2, after = size - before - 1;
    const row_place at(a.p.batch, a.p.spatial);
    const uint32_t c = threadIdx.x * width;
    const T *const x = static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position) + c;
    const T *const dy = static_cast<const T *>(a.o.dy) + offset_of(a.p.dy, at.n, 0, at.position) + c;

    const packed<16> x_data = load_channel<16>(x, at.exists), dy_data = load_channel<16>(dy, at.exists);
    float own[width], e[width], terms[width], all[width + 8], result[width];
    unpack<T>(x_data, own);
    unpack<T>(dy_data, e);
    const neighbours<width> shared(0), shared_terms(1);
    shared.put(own);
    __syncthreads();
    shared.get(own, all);
#pragma unroll
    for (int j = 0; j < width; ++j) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < size; ++w) sum = fmaf(all[4 + j - before + w], all[4 + j - before + w], sum);
        const auto r = reduce<roots>(a.r, sum, own[j]);
        e[j] *= r.power;
        terms[j] = e[j] * r.ratio;
    }
    shared_terms.put(terms);
    __syncthreads();
    shared_terms.get(terms, all);
    if (!at.exists) return;
#pragma unroll
    for (int j = 0; j < width; ++j) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < size; ++w) sum += all[4 + j - after + w];
        result[j] = fmaf(-a.r.slope * own[j], sum, e[j]);
    }
    store<16, false>(static_cast<T *>(a.o.dx) + offset_of(a.p.dx, at.n, 0, at.position) + c, pack<T, 16>(result));
}

// Form tile: the threads of a position load a chunk of its channels and their neighbours into shared memory and compute the terms of all channels
// whose windows are there; then a thread owns single channels.
template <typename T, int bytes> __global__ void __launch_bounds__(response_threads)
    local_response_norm_backward_tile(const __grid_constant__ backward_arguments<float> a) {
    constexpr int width = bytes / int(sizeof(T));
    const row_place at(a.p.batch, a.p.spatial);
    const int64_t channels = int64_t(a.p.channels), size = int64_t(a.p.size), before = int64_t(a.p.before), after = size - before - 1;
    const int64_t first = int64_t(blockIdx.y) * a.chunk, end = at.exists ? min(channels, first + a.chunk) : first;
    const int64_t low = max(first - (size - 1), int64_t(0)) / width * width, high = at.exists ? min(channels, end + (size - 1)) : low;
    const uint32_t room = slot_of(a.chunk_room + 31);
    // x, e and the terms.
    float *const values = response_shared + threadIdx.y * 3 * room, *const scaled = values + room, *const terms = scaled + room;
    const T *const from[2] = {static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position),
                              static_cast<const T *>(a.o.dy) + offset_of(a.p.dy, at.n, 0, at.position)};
    T *const dx = static_cast<T *>(a.o.dx) + offset_of(a.p.dx, at.n, 0, at.position);

    // 1. The tile.
    load_tile<bytes>(from, low, high, values, room);
    __syncthreads();
    // 2. The terms that the chunk needs.
    const int64_t term_first = max(first - after, int64_t(0)), term_end = at.exists ? min(channels, end + before) : term_first;
    for (int64_t c = term_first + threadIdx.x; c < term_end; c += blockDim.x) {
        const auto r = reduce_in_tile(a.p, a.r, values, low, c);
        const uint32_t own = slot_of(uint32_t(c - low));
        const float e = scaled[own] * r.power;
        scaled[own] = e;
        terms[own] = e * r.ratio;
    }
    __syncthreads();
    // 3. dx.
    for (int64_t c = first + threadIdx.x; c < end; c += blockDim.x) {
        const window w = window_of(c, after, size, channels);
        const float sum = long_sum<float>(w.first - low, w.end - low, [&](int64_t e) { return terms[slot_of(uint32_t(e))]; });
        const uint32_t own = slot_of(uint32_t(c - low));
        dx[c] = narrow<T>(fmaf(-a.r.slope * values[own], sum, scaled[own]));
    }
}

// Form direct, first launch: a thread owns an element and computes its term.
template <typename T> __global__ void __launch_bounds__(response_threads)
    local_response_norm_backward_direct_terms(const __grid_constant__ backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= a.p.batch * a.p.channels * a.p.spatial) return;
    const element_place at(i, a.p.channels, a.p.spatial, a.channels_first);
    const T *const x = static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position);
    const window w = window_of(int64_t(at.c), int64_t(a.p.before), int64_t(a.p.size), int64_t(a.p.channels));
    const auto r = reduce<false>(a.r, sum_of_squares(x, a.p.x.channel, w), widen(x[at.c * a.p.x.channel]));
    const A dy = widen(static_cast<const T *>(a.o.dy)[offset_of(a.p.dy, at.n, at.c, at.position)]);
    a.terms[i] = dy * r.power * r.ratio;
}

// Form direct, second launch: a thread owns an element and computes its dx.
template <typename T> __global__ void __launch_bounds__(response_threads)
    local_response_norm_backward_direct(const __grid_constant__ backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= a.p.batch * a.p.channels * a.p.spatial) return;
    const element_place at(i, a.p.channels, a.p.spatial, a.channels_first);
    const T *const x = static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position);
    const int64_t size = int64_t(a.p.size), before = int64_t(a.p.before), channels = int64_t(a.p.channels), c = int64_t(at.c);
    const A own = widen(x[at.c * a.p.x.channel]);
    const A power = reduce<false>(a.r, sum_of_squares(x, a.p.x.channel, window_of(c, before, size, channels)), own).power;
    const window w = window_of(c, size - before - 1, size, channels);
    const uint64_t step = a.channels_first ? 1 : a.p.spatial;
    const A *const terms = a.terms + (i - at.c * step);
    const A sum = long_sum<A>(w.first, w.end, [&](int64_t e) { return terms[e * step]; });
    const A dy = widen(static_cast<const T *>(a.o.dy)[offset_of(a.p.dy, at.n, at.c, at.position)]);
    static_cast<T *>(a.o.dx)[offset_of(a.p.dx, at.n, at.c, at.position)] = narrow<T>(fma(-a.r.slope * own, sum, dy * power));
}

struct response_pass {
    using params = bops_local_response_norm_backward_params;
    using operands = bops_local_response_norm_backward_operands;
    template <typename A> using arguments = backward_arguments<A>;
    // Arrays of a value for each channel in shared memory, of the forms rows and tile; halos of size - 1 channels that a chunk of tile reads.
    static constexpr uint32_t rows_arrays = 2, tile_arrays = 3, halos = 2;
    template <typename T, int size, int bytes, int parts, bool roots> static auto walk() {
        return local_response_norm_backward_walk<T, size, bytes, parts, roots>;
    }
    template <typename T, int size, bool roots> static auto rows() { return local_response_norm_backward_rows<T, size, roots>; }
    template <typename T, int bytes> static auto tile() { return local_response_norm_backward_tile<T, bytes>; }
    template <typename T, typename Action>
    static bops_status run_direct(const launch_shape &shape, arguments<accumulator_t<T>> a, void *workspace, const Action &action) {
        a.terms = static_cast<accumulator_t<T> *>(workspace);
        const bops_status status = action(local_response_norm_backward_direct_terms<T>, shape, a);
        return status ? status : action(local_response_norm_backward_direct<T>, shape, a);
    }
};

} // namespace
} // namespace bops

BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(walk, backward_)
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(rows, backward_)
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(tile, backward_)
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(direct, backward_)
