// Softmax and log-softmax forward. A line lies along the axis: in a row its elements are neighbours in memory; of channels it is the elements of many
// lines that are neighbours. Each form has a section.
#include "softmax.cuh"

namespace bops {
namespace {

// Kernels compute with elements of type T, which y has; those of x may be narrower, of type In.

// The line of element i of a vector, whose elements belong to one line, or to lines side by side.
template <typename T> __device__ __forceinline__ const softmax_line<T> &line_of(const softmax_line<T> &line, int) { return line; }
template <typename T, int width> __device__ __forceinline__ const softmax_line<T> &line_of(const softmax_line<T> (&line)[width], int i) {
    return line[i];
}

// The y of one vector.
template <typename T, int vec_bytes, typename Line>
__device__ __forceinline__ packed<vec_bytes> finish(const packed<vec_bytes> &x, const Line &line, const exponential<T> &e, bool is_log) {
    constexpr int width = vec_bytes / int(sizeof(T));
    accumulator_t<T> y[width];
    unpack<T>(x, y);
    if (is_log) {
#pragma unroll
        for (int i = 0; i < width; ++i) y[i] = e.log(y[i], line_of<T>(line, i).shift, line_of<T>(line, i).last);
    } else {
#pragma unroll
        for (int i = 0; i < width; ++i) y[i] = e(y[i], line_of<T>(line, i).shift) * line_of<T>(line, i).last;
    }
    return pack<T, vec_bytes>(y);
}

// ---- rows resident: a row in registers --------------------------------------------------------------------------------------

// blockDim = (threads of a row, rows). whole: every vector of every thread lies inside its row. held: registers keep the exponentials as well.
template <typename T, int vec_bytes, int vectors, bool whole, bool held, typename In> __global__ void __launch_bounds__(softmax_threads_limit)
    softmax_rows_resident(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    constexpr bool streamed = vectors > 2; // short or few rows stay cached for the kernel that follows
    __shared__ A slots[2][team_slots];     // [maxima, sums][warp]
    if (a.overlaps) follow_previous();
    const row_team team;
    const exponential<T> e = {a.scale};
    const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y, count = uint32_t(a.dim) / width;
    const bool has_row = row < a.outer;
    const auto is_column = [&](int v) { return whole || team.position<vectors>(v) < count; };
    const auto column = [&](int v) { return team.position<vectors>(v) * width; };

    // 1. The row in registers.
    packed<vec_bytes> data[vectors];
    const In *const x = static_cast<const In *>(a.in[0]) + row_offset(row, a.strides[0], a.extent1, a.extent2);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        data[v] = {};
        if (has_row && is_column(v)) {
            if constexpr (streamed && vec_bytes == 16 && std::is_same_v<T, In>) data[v] = load_kept(x + column(v));
            else data[v] = load_as<T, vec_bytes, streamed>(x + column(v));
        }
    }
    if (a.is_negative)
#pragma unroll
        for (int v = 0; v < vectors; ++v) negate<T>(data[v]);

    // 2. Its maximum and its sum, of each warp about its own maximum.
    packed<vec_bytes> most = least<T, vec_bytes>();
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_column(v)) most = larger<T>(most, data[v]);
    const uint32_t lanes = team.threads < 32 ? team.threads : 32;
    A part[width], sum, max = e.maximum(warp_max(largest<T>(most), lanes));
    const A own_max = max;
    const softmax_shift<A> shift = e.shift(max);
    A sums[width] = {}, values[held ? vectors * width : 1];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        unpack<T>(data[v], part);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const A power = e(part[i], shift);
            if (is_column(v)) sums[i] += power;
            if constexpr (held) values[v * width + i] = a.is_log ? part[i] : power;
        }
    }
    A one[1] = {tree_sum(sums)};
    warp_sum(one, lanes);
    sum = one[0];
    if (team.warps > 1) {
        if (team.lane == 0) slots[0][team.slot + team.warp] = max, slots[1][team.slot + team.warp] = sum;
        __syncthreads();
        merge_parts<T>(slots[0] + team.slot, slots[1] + team.slot, 1, team.warps, max, sum, e);
    }

    // 3. Its output.
    const softmax_line<T> line(max, softmax_line<T>::last_of(max, sum, e, a.is_log), e, a.is_log);
    T *const y = static_cast<T *>(a.out) + row_offset(row, a.strides[1], a.extent1, a.extent2);
    if constexpr (held) {
        if (a.is_log) {
#pragma unroll
            for (int c = 0; c < vectors * width; ++c) values[c] = e.log(values[c], line.shift, line.last);
        } else {
            const A factor = line.last * e.between(own_max, max);
#pragma unroll
            for (int c = 0; c < vectors * width; ++c) values[c] *= factor;
        }
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
#pragma unroll
            for (int i = 0; i < width; ++i) part[i] = values[v * width + i];
            if (has_row && is_column(v)) store<vec_bytes, streamed>(y + column(v), pack<T, vec_bytes>(part));
        }
    } else {
        keep_packed<T>(data);
#pragma unroll
        for (int v = 0; v < vectors; ++v)
            if (has_row && is_column(v)) store<vec_bytes, streamed>(y + column(v), finish<T>(data[v], line, e, a.is_log));
    }
}

// ---- rows shared: a row in the shared memory of a cluster -----------------------------------------------------------------------

// Registers are limited so that enough blocks share an SM to hide the exchange within a cluster. A thread reads back only the vectors that it copied,
// so that its own wait for the copies suffices. In f32, exponentials replace their elements in shared memory.
constexpr int softmax_shared_threads = 1536; // of an SM, those of the blocks that share it: they leave a thread 40 registers, and 2048 would leave 32
template <typename T, int threads> __global__ void __launch_bounds__(threads, softmax_shared_threads / threads)
    softmax_rows_shared(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    if (!has_sm_90) return;
    constexpr int width = 16 / int(sizeof(T));
    constexpr bool has_room = sizeof(T) == sizeof(float);
    __shared__ float slots[2][team_slots]; // [maxima, sums][warp]
    __shared__ cluster_exchange exchange;
    const row_team team;
    const exponential<T> e = {a.scale};
    const uint32_t rank = cluster_rank(), all = uint32_t(a.dim) / width, first = rank * a.slice_vectors, row = blockIdx.x;
    const uint32_t count = all > first ? min(all - first, a.slice_vectors) : 0;
    uint4 *const data = reinterpret_cast<uint4 *>(dynamic_shared);
    const auto vector = [&](uint32_t i) -> packed<16> {
        const uint4 v = data[i];
        packed<16> to = {{v.x, v.y, v.z, v.w}};
        if (a.is_negative) negate<T>(to);
        return to;
    };
    exchange.initialize(threadIdx.x);
    cluster_arrive();

    // 1. The row in shared memory. Its lines in the L2 are evicted last, after those that are written.
    const uint64_t kept = evict_last();
    const T *const x = static_cast<const T *>(a.in[0]) + row_offset(row, a.strides[0], a.extent1, a.extent2) + uint64_t(first) * width;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < count; i += threads) copy_async_cached(data + i, x + i * width, kept);
    copy_commit();
    cluster_wait();
    copy_wait(0);

    // 2. Its maximum and its sum, of each warp about its own maximum.
    packed<16> most = least<T, 16>();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += threads) most = larger<T>(most, vector(i));
    float part[width], sum, max = e.maximum(warp_max(largest<T>(most), 32));
    const float own_max = max;
    const softmax_shift<float> shift = e.shift(max);
    float sums[4] = {};
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < count; i += threads) {
        unpack<T>(vector(i), part);
#pragma unroll
        for (int j = 0; j < width; ++j) {
            part[j] = e(part[j], shift);
            sums[j % 4] += part[j];
        }
        if constexpr (has_room)
            if (!a.is_log) {
                const packed<16> powers = pack<T, 16>(part);
                data[i] = make_uint4(powers.word[0], powers.word[1], powers.word[2], powers.word[3]);
            }
    }
    float one[1] = {tree_sum(sums)};
    warp_sum(one, 32);
    if (team.lane == 0) slots[0][team.warp] = max, slots[1][team.warp] = one[0];
    __syncthreads();
    if (team.warp == 0) {
        merge_parts<T>(slots[0], slots[1], 1, team.warps, max, sum, e);
        exchange.send({max, sum, 0, 0}, 0, rank, a.cluster, threadIdx.x);
    }
    const float(*const blocks)[4] = exchange.wait(0);
    merge_parts<T>(&blocks[0][0], &blocks[0][1], 4, a.cluster, max, sum, e);

    // 3. Its output.
    const softmax_line<T> line(max, softmax_line<T>::last_of(max, sum, e, a.is_log), e, a.is_log);
    T *const y = static_cast<T *>(a.out) + row_offset(row, a.strides[1], a.extent1, a.extent2) + uint64_t(first) * width;
    if (has_room && !a.is_log) {
        const float factor = line.last * e.between(own_max, max);
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < count; i += threads) {
            unpack<T>(shared_vector(i), part);
#pragma unroll
            for (int j = 0; j < width; ++j) part[j] *= factor;
            store_whole(y + i * width, pack<T, 16>(part));
        }
        return;
    }
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < count; i += threads) store_whole(y + i * width, finish<T>(vector(i), line, e, a.is_log));
}

// ---- rows split: three kernels over chunks of rows ----------------------------------------------------------------------------

template <typename T, int vec_bytes, typename In> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_rows_split_parts(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    __shared__ A slots[2][team_slots]; // [maxima, sums][warp]
    const row_team team;
    const exponential<T> e = {a.scale};
    const uint64_t items = a.outer * a.chunks;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const row_chunk<T, vec_bytes> chunk(item, a.dim, a.chunks);
        packed<vec_bytes> data[softmax_split_vectors];
        chunk.template load<In>(data, a, 0);
        packed<vec_bytes> most = least<T, vec_bytes>();
#pragma unroll
        for (int v = 0; v < softmax_split_vectors; ++v)
            if (chunk.has(v)) most = larger<T>(most, data[v]);
        A part[width], sums[width] = {}, max = e.maximum(warp_max(largest<T>(most), 32));
        const softmax_shift<A> shift = e.shift(max);
#pragma unroll
        for (int v = 0; v < softmax_split_vectors; ++v) {
            unpack<T>(data[v], part);
            if (chunk.has(v))
#pragma unroll
                for (int i = 0; i < width; ++i) sums[i] += e(part[i], shift);
        }
        A one[1] = {tree_sum(sums)};
        warp_sum(one, 32);
        if (team.lane == 0) slots[0][team.warp] = max, slots[1][team.warp] = one[0];
        __syncthreads();
        if (team.warp == 0) {
            A sum;
            merge_parts<T>(slots[0], slots[1], 1, team.warps, max, sum, e);
            if (team.lane == 0) a.parts[item] = max, a.parts[items + item] = sum;
        }
        __syncthreads();
    }
}

template <typename T> __global__ void __launch_bounds__(softmax_merge_threads)
    softmax_rows_split_merge(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    __shared__ A slots[2][team_slots]; // [maxima, sums][warp]
    const row_team team;
    const exponential<T> e = {a.scale};
    const uint64_t items = a.outer * a.chunks;
    for (uint64_t row = blockIdx.x; row < a.outer; row += gridDim.x) {
        const A *const maxima = a.parts + row * a.chunks, *const sums = maxima + items;
        A max = -A(INFINITY);
        for (uint32_t c = threadIdx.x; c < a.chunks; c += softmax_merge_threads) max = larger(max, maxima[c]);
        max = warp_max(max, 32);
        cascade<A> total;
        for (uint32_t c = threadIdx.x; c < a.chunks; c += softmax_merge_threads) {
            A sum = sums[c];
            e.rescale(sum, maxima[c], max);
            total.add(sum);
        }
        A one[1] = {total.total()};
        warp_sum(one, 32);
        if (team.lane == 0) slots[0][team.warp] = max, slots[1][team.warp] = one[0];
        __syncthreads();
        A sum;
        merge_parts<T>(slots[0], slots[1], 1, team.warps, max, sum, e);
        if (threadIdx.x == 0) a.totals[row] = max, a.totals[a.outer + row] = softmax_line<T>::last_of(max, sum, e, a.is_log);
        __syncthreads();
    }
}

template <typename T, int vec_bytes, typename In> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_rows_split_apply(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    const exponential<T> e = {a.scale};
    const uint64_t items = a.outer * a.chunks;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const row_chunk<T, vec_bytes> chunk(item, a.dim, a.chunks);
        packed<vec_bytes> data[softmax_split_vectors];
        chunk.template load<In>(data, a, 0);
        const softmax_line<T> line(a.totals[chunk.row], a.totals[a.outer + chunk.row], e, a.is_log);
        T *const y = static_cast<T *>(a.out) + row_offset(uint32_t(chunk.row), a.strides[1], a.extent1, a.extent2);
#pragma unroll
        for (int v = 0; v < softmax_split_vectors; ++v)
            if (chunk.has(v)) store(y + chunk.column(v), finish<T>(data[v], line, e, a.is_log));
    }
}

// ---- channels resident: lines in the registers of a block ----------------------------------------------------------------------

// Threads of the largest block, and the least number of those blocks that an SM is to have room for. They leave a thread 65536 / (threads * blocks)
// registers, rounded down to a multiple of 8.
struct block_bounds {
    int threads, blocks;
};

// The bounds of a kernel whose elements take `registers` registers of a thread. More threads would hide more latency, but leave each of them fewer
// registers beside those of its elements.
constexpr block_bounds channel_block_bounds(int registers, bool is_f32, bool whole) {
    if (whole) return {128, 5};                     // 96 registers: elements take 64, and no access is guarded
    if (registers <= 16) return {1024, 1};          // 64 registers
    if (registers <= 32 && is_f32) return {512, 2}; // 64 registers
    if (registers <= 32) return {256, 3};           // 80 registers
    if (registers <= 48) return {256, 2};           // 128 registers
    return {512, 1};                                // 128 registers
}

// How a thread holds its elements, and the bounds of the block. registers: those that the elements take.
template <typename T, int vec_bytes, int vectors, bool whole> struct channel_bounds {
    static constexpr bool held = sizeof(T) == 4 || vectors * vec_bytes / int(sizeof(T)) <= 32; // exponentials stay in registers
    static constexpr int registers = vectors * vec_bytes / (held ? int(sizeof(T)) : 4);
    static constexpr bool is_large = sizeof(T) == 4 && registers == 32; // two blocks of 512 threads share an SM
    static constexpr block_bounds bounds = channel_block_bounds(registers, sizeof(T) == 4, whole);
    static constexpr int threads = bounds.threads, blocks = bounds.blocks;
};

// whole: every vector of every thread lies inside the tensor.
template <typename T, int vec_bytes, int vectors, int tiles, bool whole, bool is_log, typename In>
__global__ void __launch_bounds__(channel_bounds<T, vec_bytes, vectors, whole>::threads, channel_bounds<T, vec_bytes, vectors, whole>::blocks)
    softmax_channels_resident(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T));
    constexpr bool held = channel_bounds<T, vec_bytes, vectors, whole>::held;
    if (a.overlaps) follow_previous();
    const exponential<T> e = {a.scale};
    const uint32_t inner_vectors = uint32_t(a.inner / width), columns = uint32_t(a.outer) * inner_vectors;
    const uint32_t along = blockDim.x / a.across;
    uint32_t position = threadIdx.x / a.across;
    const uint32_t column = (tile_of_block<tiles>() * gridDim.x + blockIdx.x) * a.across + threadIdx.x % a.across;
    const bool has_column = whole || column < columns;
    const channel_column at(has_column ? column : 0, inner_vectors);
    const auto is_element = [&](int v) { return whole || v * along + position < a.dim; };

    // 1. The lines in registers.
    await_turn<tiles>();
    packed<vec_bytes> data[vectors];
    const In *x = static_cast<const In *>(a.in[0]) + row_offset(at.block, a.strides[0], a.extent1, a.extent2) + uint64_t(at.vector) * width +
                  position * a.steps[0];
#pragma unroll
    for (int v = 0; v < vectors; ++v, x += along * a.steps[0]) {
        data[v] = {};
        if (has_column && is_element(v)) {
            if constexpr (tiles == 2) data[v] = load_leaving(x);
            else if constexpr (vec_bytes == 8) data[v] = load_line<8>(x);
            else data[v] = load_as<T, vec_bytes>(x);
        }
    }
    pass_turn<tiles>();
    if (a.is_negative)
#pragma unroll
        for (int v = 0; v < vectors; ++v) negate<T>(data[v]);

    // 2. Their maxima and sums. Each thread sums about its own maxima, so that it starts while the other threads still wait for their vectors.
    packed<vec_bytes> most = least<T, vec_bytes>();
#pragma unroll
    for (int v = 0; v < vectors; ++v)
        if (is_element(v)) most = larger<T>(most, data[v]);
    A own[width], sum[width] = {}, values[held ? vectors : 1][width];
    softmax_shift<A> shift[width];
    unpack<T>(most, own);
#pragma unroll
    for (int i = 0; i < width; ++i) own[i] = e.maximum(own[i]);
    e.shifts(own, shift);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        A part[width];
        unpack<T>(data[v], part);
#pragma unroll
        for (int i = 0; i < width; ++i) {
            const A power = e(part[i], shift[i]);
            if (is_element(v)) sum[i] += power;
            if constexpr (held) values[v][i] = is_log ? part[i] : power;
        }
    }
    // In f32 no register is left for both, and the offset stands for the maximum. They differ only in lines of -infinity, which become NaN.
    A max[width];
#pragma unroll
    for (int i = 0; i < width; ++i) max[i] = own[i] = sizeof(T) == 4 ? shift[i].offset : own[i];
    const auto last = [&](A max, A sum) { return softmax_line<T>::last_of(max, sum, e, is_log); };
    float *const scratch = reinterpret_cast<float *>(dynamic_shared + tile_of_block<tiles>() * a.scratch_bytes);
    merge_channels<tiles>(max, sum, a.across, scratch, e, last);

    // 3. Their output.
    softmax_line<T> line[width];
#pragma unroll
    for (int i = 0; i < width; ++i) {
        line[i] = softmax_line<T>(max[i], sum[i], e, is_log);
        if constexpr (held && !is_log) line[i].last *= e.between(own[i], max[i]);
    }
    uint32_t number = has_column ? column : 0;
    // Recomputes the addresses where registers are few; the asm keeps the compiler from holding them since the loads.
    if constexpr (channel_bounds<T, vec_bytes, vectors, whole>::is_large) asm volatile("" : "+r"(number), "+r"(position));
    const channel_column to(number, inner_vectors);
    T *y = static_cast<T *>(a.out) + row_offset(to.block, a.strides[1], a.extent1, a.extent2) + uint64_t(to.vector) * width + position * a.steps[1];
    const auto store_next = [&](int v, const packed<vec_bytes> &value) {
        if (has_column && is_element(v)) {
            if constexpr (vec_bytes == 8) store_whole(y, value);
            else store(y, value);
        }
        y += along * a.steps[1];
    };
    if constexpr (!held) {
        keep_packed<T>(data);
#pragma unroll
        for (int v = 0; v < vectors; ++v) store_next(v, finish<T>(data[v], line, e, is_log));
    } else if constexpr (is_log) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
#pragma unroll
            for (int i = 0; i < width; ++i) values[v][i] = e.log(values[v][i], line[i].shift, line[i].last);
            store_next(v, pack<T, vec_bytes>(values[v]));
        }
    } else {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
#pragma unroll
            for (int i = 0; i < width; ++i) values[v][i] *= line[i].last;
            store_next(v, pack<T, vec_bytes>(values[v]));
        }
    }
}

// ---- channels split: three kernels over chunks of lines -------------------------------------------------------------------------

template <typename T, int vec_bytes, typename In> __global__ void __launch_bounds__(softmax_split_threads)
    softmax_channels_split_parts(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    constexpr int width = vec_bytes / int(sizeof(T)), batch = 4; // batch: elements of a line that a thread loads together
    const exponential<T> e = {a.scale};
    const uint64_t items = channel_items(a, width), sums = a.outer * a.chunks * a.inner;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_chunk<T, vec_bytes> chunk(item, a.inner, a.chunks);
        if (!chunk.has(a.inner)) continue;
        const In *const x = static_cast<const In *>(a.in[0]) + chunk.offset(a, 0);
        const uint32_t elements = chunk.elements(a.dim);
        A max[width], sum[width] = {};
#pragma unroll
        for (int i = 0; i < width; ++i) max[i] = -A(INFINITY);
        for (uint32_t from = 0; from < elements; from += batch) {
            packed<vec_bytes> data[batch];
#pragma unroll
            for (int v = 0; v < batch; ++v) {
                data[v] = {};
                if (from + v < elements) data[v] = load_as<T, vec_bytes>(x + (from + v) * a.steps[0]);
            }
            if (a.is_negative)
#pragma unroll
                for (int v = 0; v < batch; ++v) negate<T>(data[v]);
            packed<vec_bytes> most = data[0];
#pragma unroll
            for (int v = 1; v < batch; ++v)
                if (from + v < elements) most = larger<T>(most, data[v]);
            A whole[width], part[width];
            unpack<T>(most, whole);
#pragma unroll
            for (int i = 0; i < width; ++i) {
                whole[i] = larger(e.maximum(whole[i]), max[i]);
                e.rescale(sum[i], max[i], whole[i]);
                max[i] = whole[i];
            }
            softmax_shift<A> shift[width];
            e.shifts(max, shift);
#pragma unroll
            for (int v = 0; v < batch; ++v) {
                unpack<T>(data[v], part);
                if (from + v < elements)
#pragma unroll
                    for (int i = 0; i < width; ++i) sum[i] += e(part[i], shift[i]);
            }
        }
        A *const to = a.parts + (chunk.block * a.chunks + chunk.chunk) * a.inner + chunk.vector * width;
#pragma unroll
        for (int i = 0; i < width; ++i) to[i] = max[i], to[sums + i] = sum[i];
    }
}

template <typename T> __global__ void __launch_bounds__(softmax_merge_threads)
    softmax_channels_split_merge(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    const exponential<T> e = {a.scale};
    const uint64_t lines = a.outer * a.inner, sums = lines * a.chunks, stride = uint64_t(gridDim.x) * softmax_merge_threads;
    for (uint64_t number = blockIdx.x * uint64_t(softmax_merge_threads) + threadIdx.x; number < lines; number += stride) {
        const uint64_t block = number / a.inner;
        const A *const maxima = a.parts + block * a.chunks * a.inner + (number - block * a.inner);
        A max = -A(INFINITY);
        for (uint64_t c = 0; c < a.chunks; ++c) max = larger(max, maxima[c * a.inner]);
        cascade<A> total;
        for (uint64_t c = 0; c < a.chunks; ++c) {
            A sum = maxima[sums + c * a.inner];
            e.rescale(sum, maxima[c * a.inner], max);
            total.add(sum);
        }
        a.totals[number] = max, a.totals[lines + number] = softmax_line<T>::last_of(max, total.total(), e, a.is_log);
    }
}

// Four blocks per SM leave a thread 64 registers, which suffice without spills.
template <typename T, int vec_bytes, typename In> __global__ void __launch_bounds__(softmax_split_threads, 4)
    softmax_channels_split_apply(const __grid_constant__ softmax_arguments<accumulator_t<T>> a) {
    constexpr int width = vec_bytes / int(sizeof(T));
    const exponential<T> e = {a.scale};
    const uint64_t items = channel_items(a, width);
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const channel_chunk<T, vec_bytes> chunk(item, a.inner, a.chunks);
        if (!chunk.has(a.inner)) continue;
        const In *const x = static_cast<const In *>(a.in[0]) + chunk.offset(a, 0);
        T *const y = static_cast<T *>(a.out) + chunk.offset(a, 1);
        softmax_line<T> line[width];
        const auto *const totals = a.totals + chunk.block * a.inner + chunk.vector * width;
#pragma unroll
        for (int i = 0; i < width; ++i) line[i] = softmax_line<T>(totals[i], totals[a.outer * a.inner + i], e, a.is_log);
        const uint32_t elements = chunk.elements(a.dim);
#pragma unroll 4
        for (uint32_t d = 0; d < elements; ++d) {
            packed<vec_bytes> v = load_as<T, vec_bytes>(x + d * a.steps[0]);
            if (a.is_negative) negate<T>(v);
            store(y + d * a.steps[1], finish<T>(v, line, e, a.is_log));
        }
    }
}

// ---- host -----------------------------------------------------------------------------------------------------------------

template <typename T> softmax_arguments<accumulator_t<T>> arguments_of(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                                       const bops_softmax_operands &o) {
    auto a = lines_of<T>(of, p);
    a.in[0] = o.x, a.out = o.y;
    a.scale = split_scale<T>(p.scale);
    a.is_negative = p.scale < 0;
    return a;
}

// Each of the following hands action(kernel, shape, arguments) the kernels of a form.

template <typename Action> bops_status rows_resident(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                     const bops_softmax_rows_resident_choice &c, const bops_softmax_operands &o, void *,
                                                     const Action &action) {
    return for_types_on_chip(of, c.vec_bytes, [&](auto of_y, auto of_x, auto bytes) -> bops_status {
        using T = typename decltype(of_y)::type;
        using In = typename decltype(of_x)::type;
        constexpr int vec_bytes = bytes, width = vec_bytes / int(sizeof(T));
        auto a = arguments_of<T>(of, p, o);
        const launch_shape shape = rows_resident_shape(a, c, width);
        const bool whole = uint64_t(c.threads_per_row) * c.vectors * width == p.dim;
        const auto run = [&](auto vectors, auto held) -> bops_status {
            constexpr bool may_be_whole = vec_bytes == 16 && std::is_same_v<T, In>;
            return whole ? action(softmax_rows_resident<T, vec_bytes, vectors, may_be_whole, held, In>, shape, a)
                         : action(softmax_rows_resident<T, vec_bytes, vectors, false, held, In>, shape, a);
        };
        const auto run_held = [&](auto vectors) { return run(vectors, std::true_type()); };
        const auto run_held_of_f32 = [&](auto vectors) { return run(vectors, std::bool_constant<sizeof(T) != 2>()); };
        // 8 vectors of 16-bit elements, or 4 in a block of more than 256 threads: held exponentials would leave room for too few blocks, since they
        // take 64 or 32 registers of a thread. Without them each exponential is computed twice.
        const bool has_room = c.vectors == 2 || (c.vectors == 4 && c.threads_per_row <= 256);
        if constexpr (vec_bytes < 16) return for_value<16>(c.vectors, run_held);
        else return has_room ? for_value<2, 4>(c.vectors, run_held) : for_value<4, 8>(c.vectors, run_held_of_f32);
    });
}

template <typename Action> bops_status rows_shared(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                   const bops_softmax_rows_shared_choice &c, const bops_softmax_operands &o, void *,
                                                   const Action &action) {
    return for_types(of, [&](auto of_y, auto of_x) -> bops_status {
        using T = typename decltype(of_y)::type;
        if constexpr (sizeof(T) < 8 && std::is_same_v<T, typename decltype(of_x)::type>) {
            auto a = arguments_of<T>(of, p, o);
            const launch_shape shape = rows_shared_shape(a, c, 16 / sizeof(T));
            return c.threads == 512 ? action(softmax_rows_shared<T, 512>, shape, a) : action(softmax_rows_shared<T, 256>, shape, a);
        } else {
            return bops_status(cudaErrorInvalidValue);
        }
    });
}

// channels_resident with accesses of vec_bytes bytes and n vectors a thread.
template <typename T, typename In, int vec_bytes, int n, typename Action>
bops_status channels_resident_vectors(bool is_log, bool is_whole, uint32_t tiles, uint32_t threads, const launch_shape &shape,
                                      const softmax_arguments<accumulator_t<T>> &a, const Action &action) {
    const auto with = [&](auto tiles, auto whole) {
        return is_log ? action(softmax_channels_resident<T, vec_bytes, n, tiles, whole, true, In>, shape, a)
                      : action(softmax_channels_resident<T, vec_bytes, n, tiles, whole, false, In>, shape, a);
    };
    using one = std::integral_constant<int, 1>;
    if constexpr (n == 32) {
        if (tiles == 2) return with(std::integral_constant<int, 2>(), std::false_type());
        if (is_whole && threads <= channel_bounds<T, vec_bytes, n, true>::threads) return with(one(), std::true_type());
    }
    return with(one(), std::false_type());
}

template <typename Action> bops_status channels_resident(const bops_softmax_specialisation &of, const bops_softmax_params &p,
                                                         const bops_softmax_channels_resident_choice &c, const bops_softmax_operands &o, void *,
                                                         const Action &action) {
    return for_types(of, [&](auto of_y, auto of_x) -> bops_status {
        using T = typename decltype(of_y)::type;
        using In = typename decltype(of_x)::type;
        const auto with_access = [&](auto bytes) -> bops_status {
            constexpr int vec_bytes = bytes, width = vec_bytes / int(sizeof(T));
            auto a = arguments_of<T>(of, p, o);
            const launch_shape shape = channels_shape(a, c, width, merge_floats);
            const bool is_whole = uint64_t(c.threads / c.across) * c.vectors == p.dim && uint64_t(c.grid) * c.across * width == p.outer * p.inner;
            const auto run = [&](auto vectors) {
                return channels_resident_vectors<T, In, vec_bytes, vectors>(of.is_log, is_whole, c.tiles, c.threads, shape, a, action);
            };
            if constexpr (width < 4) return for_value<16>(c.vectors, run);
            else if constexpr (sizeof(T) == 4) return for_value<4, 8, 12, 16>(c.vectors, run);
            else return for_value<4, 8, 16, 24, 32>(c.vectors, run);
        };
        if constexpr (sizeof(T) == 8) return bops_status(cudaErrorInvalidValue);
        else if constexpr (sizeof(T) == 4) return for_value<16, 4>(c.vec_bytes, with_access);
        else return for_value<8, 4, 2>(c.vec_bytes, with_access);
    });
}

template <typename Action> bops_status split(const bops_softmax_specialisation &of, const bops_softmax_params &p, const bops_softmax_split_choice &c,
                                             const bops_softmax_operands &o, void *workspace, const Action &action) {
    return for_types(of, [&](auto of_y, auto of_x) -> bops_status {
        using T = typename decltype(of_y)::type;
        using In = typename decltype(of_x)::type;
        return for_access<T>(c.vec_bytes, [&](auto bytes) {
            constexpr int vec_bytes = bytes;
            auto a = arguments_of<T>(of, p, o);
            const launch_shape shape = split_shape(a, c, 2, workspace);
            if (p.inner == 1)
                return run_split(action, shape, a, softmax_rows_split_parts<T, vec_bytes, In>, softmax_rows_split_merge<T>,
                                 softmax_rows_split_apply<T, vec_bytes, In>);
            return run_split(action, shape, a, softmax_channels_split_parts<T, vec_bytes, In>, softmax_channels_split_merge<T>,
                             softmax_channels_split_apply<T, vec_bytes, In>);
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_SOFTMAX_FORM(rows_resident, )
BOPS_DEFINE_SOFTMAX_FORM(rows_shared, )
BOPS_DEFINE_SOFTMAX_FORM(channels_resident, )
BOPS_DEFINE_SOFTMAX_FORM(split, )
