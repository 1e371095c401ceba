// LocalResponseNorm forward: the forms walk, rows, tile and direct.
// Compiled once for all architectures.
#include "local_response_norm.cuh"

namespace bops {
namespace {

template <typename A> using forward_arguments = response_arguments<A, bops_local_response_norm_params, bops_local_response_norm_operands>;

// Form walk: a thread owns the vectors at some positions and walks over the channels of its chunk. The window is a ring of registers; as many
// loads are in flight as the window has channels.
template <typename T, int size, int bytes, int parts, bool roots> __global__ void __launch_bounds__(walk_threads)
    local_response_norm_walk(const __grid_constant__ forward_arguments<float> a) {
    static_assert(size % 2 == 1, "walking down takes windows that reach as far before as after their channel");
    constexpr int width = bytes / int(sizeof(T)), after = size / 2, distance = walk_place<parts>::distance;
    const walk_place<parts> place(a.p.spatial / width);
    if (place.n >= a.p.batch) return;
    const int channels = int(a.p.channels), first = int(blockIdx.y * a.chunk), end = min(channels, first + int(a.chunk));
    // Every other chunk is walked from its last channel down, so that neighbouring chunks read the channels at their border at about the same time.
    // On the way down t counts as if the channels of the chunk were in reverse order.
    const bool is_down = parts > 1 && blockIdx.y % 2 == 1;
    const int sign = is_down ? -1 : 1, start = is_down ? end - 1 : first;
    const int64_t x_step = sign * int64_t(a.p.x.channel), y_step = sign * int64_t(a.p.y.channel);
    const int below = min(first, after), above = min(channels - end, after);
    const int load_begin = first - (is_down ? above : below), load_end = end + (is_down ? below : above);
    int t = first - after;
    // Pointers to the channel that is loaded next and to the one that is stored next.
    const T *x =
        static_cast<const T *>(a.o.x) + int64_t(place.n * a.p.x.batch + place.first * width) + (start * int64_t(a.p.x.channel) - after * x_step);
    T *y = static_cast<T *>(a.o.y) + (place.n * a.p.y.batch + place.first * width) + start * int64_t(a.p.y.channel);

    // 1. The first loads.
    packed<bytes> data[size][parts];
#pragma unroll
    for (int i = 0; i < size; ++i, x += x_step)
#pragma unroll
        for (int p = 0; p < parts; ++p) data[i][p] = load_channel<bytes>(x + p * distance, t + i >= load_begin && t + i < load_end && place.has(p));
    float ring[size][parts][width] = {};
    for (; t < end + after; t += size) {
#pragma unroll
        for (int i = 0; i < size; ++i) {
            // 2. Channel t + i enters the window, and a later one is loaded.
#pragma unroll
            for (int p = 0; p < parts; ++p) {
                unpack<T>(data[i][p], ring[i][p]);
                data[i][p] = load_channel<bytes>(x + p * distance, t + i + size < load_end && place.has(p));
            }
            x += x_step;
            // 3. The channel whose window is complete.
            const int c = t + i - after;
            if (c >= first && c < end) {
                float result[parts][width];
#pragma unroll
                for (int p = 0; p < parts; ++p)
#pragma unroll
                    for (int j = 0; j < width; ++j) {
                        float sum = 0;
#pragma unroll
                        for (int w = 0; w < size; ++w) sum = fmaf(ring[w][p][j], ring[w][p][j], sum);
                        const float own = ring[(i + size - after) % size][p][j];
                        result[p][j] = own * reduce<roots>(a.r, sum, own).power;
                    }
                place.template write<T, bytes>(y, result);
                y += y_step;
            }
        }
    }
}

// Form rows: a position lies in the registers of a row of threads, 16 bytes of channels each.
template <typename T, int size, bool roots> __global__ void __launch_bounds__(response_threads)
    local_response_norm_rows(const __grid_constant__ forward_arguments<float> a) {
    constexpr int width = 16 / int(sizeof(T)), before = size / 2;
    const row_place at(a.p.batch, a.p.spatial);
    const uint32_t c = threadIdx.x * width;
    const T *const x = static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position) + c;

    float own[width], all[width + 8], result[width];
    unpack<T>(load_channel<16>(x, at.exists), own);
    const neighbours<width> shared(0);
    shared.put(own);
    __syncthreads();
    shared.get(own, all);
    if (!at.exists) return;
#pragma unroll
    for (int j = 0; j < width; ++j) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < size; ++w) sum = fmaf(all[4 + j - before + w], all[4 + j - before + w], sum);
        result[j] = own[j] * reduce<roots>(a.r, sum, own[j]).power;
    }
    store<16, false>(static_cast<T *>(a.o.y) + offset_of(a.p.y, at.n, 0, at.position) + c, pack<T, 16>(result));
}

// Form tile: the threads of a position load a chunk of its channels and their neighbours into shared memory; then a thread owns
// single channels.
template <typename T, int bytes> __global__ void __launch_bounds__(response_threads)
    local_response_norm_tile(const __grid_constant__ forward_arguments<float> a) {
    constexpr int width = bytes / int(sizeof(T));
    const row_place at(a.p.batch, a.p.spatial);
    const int64_t channels = int64_t(a.p.channels), size = int64_t(a.p.size), before = int64_t(a.p.before);
    const int64_t first = int64_t(blockIdx.y) * a.chunk, end = at.exists ? min(channels, first + a.chunk) : first;
    const int64_t low = max(first - before, int64_t(0)) / width * width, high = at.exists ? min(channels, end + (size - before - 1)) : low;
    const uint32_t room = slot_of(a.chunk_room + 31);
    float *const values = response_shared + threadIdx.y * room;
    const T *const from[1] = {static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position)};
    T *const y = static_cast<T *>(a.o.y) + offset_of(a.p.y, at.n, 0, at.position);

    // 1. The tile.
    load_tile<bytes>(from, low, high, values, room);
    __syncthreads();
    // 2. The windows.
    for (int64_t c = first + threadIdx.x; c < end; c += blockDim.x)
        y[c] = narrow<T>(values[slot_of(uint32_t(c - low))] * reduce_in_tile(a.p, a.r, values, low, c).power);
}

// Form direct: a thread owns an element.
template <typename T> __global__ void __launch_bounds__(response_threads)
    local_response_norm_direct(const __grid_constant__ forward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= a.p.batch * a.p.channels * a.p.spatial) return;
    const element_place at(i, a.p.channels, a.p.spatial, a.channels_first);
    const T *const x = static_cast<const T *>(a.o.x) + offset_of(a.p.x, at.n, 0, at.position);
    const window w = window_of(int64_t(at.c), int64_t(a.p.before), int64_t(a.p.size), int64_t(a.p.channels));
    const A own = widen(x[at.c * a.p.x.channel]);
    const A power = reduce<false>(a.r, sum_of_squares(x, a.p.x.channel, w), own).power;
    static_cast<T *>(a.o.y)[offset_of(a.p.y, at.n, at.c, at.position)] = narrow<T>(own * power);
}

struct response_pass {
    using params = bops_local_response_norm_params;
    using operands = bops_local_response_norm_operands;
    template <typename A> using arguments = forward_arguments<A>;
    // Arrays of a value for each channel in shared memory, of the forms rows and tile; halos of size - 1 channels that a chunk of tile reads.
    static constexpr uint32_t rows_arrays = 1, tile_arrays = 1, halos = 1;
    template <typename T, int size, int bytes, int parts, bool roots> static auto walk() {
        return local_response_norm_walk<T, size, bytes, parts, roots>;
    }
    template <typename T, int size, bool roots> static auto rows() { return local_response_norm_rows<T, size, roots>; }
    template <typename T, int bytes> static auto tile() { return local_response_norm_tile<T, bytes>; }
    template <typename T, typename Action>
    static bops_status run_direct(const launch_shape &shape, const arguments<accumulator_t<T>> &a, void *, const Action &action) {
        return action(local_response_norm_direct<T>, shape, a);
    }
};

} // namespace
} // namespace bops

BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(walk, )
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(rows, )
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(tile, )
BOPS_DEFINE_LOCAL_RESPONSE_NORM_FORM(direct, )
