// What sort and top-k share: keys, sorted and merged runs of records, and where results go.
#pragma once
#include "../bops_order.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../pointwise/walk.cuh"

namespace bops {

constexpr int order_items = BOPS_ORDER_ITEMS;
template <typename K> constexpr int order_threads = sizeof(K) == 8 ? BOPS_ORDER_THREADS_WIDE : BOPS_ORDER_THREADS;
template <typename K> constexpr int order_tile = order_threads<K> *order_items;
template <typename K> constexpr K last_key = K(~K(0)); // no record comes behind it but those of later positions

// Where records lie, keys and positions apart.
template <typename K> struct order_records {
    K *keys;
    uint32_t *positions;
};

// The records of a block. A gap behind every 32 keeps threads that are whole runs apart out of each other's banks.
template <typename K> struct order_shared {
    K key[order_tile<K> + order_tile<K> / 32];
    uint32_t position[order_tile<K> + order_tile<K> / 32];
};
__device__ __forceinline__ uint32_t with_gaps(uint32_t at) { return at + at / 32; }

// ---- keys -------------------------------------------------------------------

template <int bytes> struct order_bits;
template <> struct order_bits<1> { using type = uint8_t; };
template <> struct order_bits<2> { using type = uint16_t; };
template <> struct order_bits<4> { using type = uint32_t; };
template <> struct order_bits<8> { using type = uint64_t; };

// Makes of bits unsigned integers in the order of the elements that have them: 0 and -0 are one, NaN is above every number.
template <typename K, int count> __device__ __forceinline__ void make_keys(const bops_order_keys &of, K (&keys)[count]) {
    const K sign = K(of.sign), infinity = K(of.infinity), all = sign | (sign - 1), turned = of.is_descending ? last_key<K> : 0;
    if (infinity > 0) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const K magnitude = keys[i] & (sign - 1);
            const K number = (keys[i] & sign) != 0 && magnitude > 0 ? keys[i] ^ all : magnitude | sign;
            keys[i] = (magnitude > infinity ? all : number) ^ turned;
        }
    } else {
#pragma unroll
        for (int i = 0; i < count; ++i) keys[i] = (of.is_bool ? K(keys[i] != 0) : keys[i] ^ sign) ^ turned;
    }
}

// The bits of the elements with this key, if all of them have the same.
template <typename K> __device__ __forceinline__ bool bits_of_key(const bops_order_keys &of, K key, K &bits) {
    const K sign = K(of.sign), all = sign | (sign - 1);
    if (of.is_descending) key = K(~key);
    if (of.infinity > 0) {
        bits = (key & sign) != 0 ? key ^ sign : key ^ all;
        return key != sign && key != all;
    }
    bits = key ^ sign;
    return !of.is_bool;
}

// The bits of an element of up to 4 bytes, or of 8.
template <typename K> __device__ __forceinline__ K element_bits(uint32_t bytes, const void *base, uint64_t at) {
    if constexpr (sizeof(K) == 8) return static_cast<const uint64_t *>(base)[at];
    else if (bytes == 4) return static_cast<const uint32_t *>(base)[at];
    else if (bytes == 2) return static_cast<const uint16_t *>(base)[at];
    else return static_cast<const uint8_t *>(base)[at];
}
// The bits of several elements, all of which are loaded before anything is made of them. at(i) says where an element is, and `there` has a bit for each that is.
template <typename T, typename K, int count, typename At>
__device__ __forceinline__ void load_as(const void *base, uint32_t there, const At &at, K (&bits)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) bits[i] = there >> i & 1 ? static_cast<const T *>(base)[at(i)] : T(0);
}
template <typename K, int count, typename At>
__device__ __forceinline__ void load_bits(uint32_t bytes, const void *base, uint32_t there, const At &at, K (&bits)[count]) {
    if constexpr (sizeof(K) == 8) load_as<uint64_t>(base, there, at, bits);
    else if (bytes == 4) load_as<uint32_t>(base, there, at, bits);
    else if (bytes == 2) load_as<uint16_t>(base, there, at, bits);
    else load_as<uint8_t>(base, there, at, bits);
}
// So many bits, of at most 31.
__device__ __forceinline__ uint32_t low_bits(uint32_t count) { return (1u << min(count, 31u)) - 1; }
template <typename K> __device__ __forceinline__ void put_bits(uint32_t bytes, void *base, uint64_t at, K bits) {
    if constexpr (sizeof(K) == 8) static_cast<uint64_t *>(base)[at] = bits;
    else if (bytes == 4) static_cast<uint32_t *>(base)[at] = bits;
    else if (bytes == 2) static_cast<uint16_t *>(base)[at] = uint16_t(bits);
    else static_cast<uint8_t *>(base)[at] = uint8_t(bits);
}

// The least key of a warp's.
template <typename K> __device__ __forceinline__ K least_of_warp(K key) {
    if constexpr (sizeof(K) == 4) return __reduce_min_sync(~0u, key);
    else {
        const uint32_t high = __reduce_min_sync(~0u, uint32_t(key >> 32));
        return K(high) << 32 | __reduce_min_sync(~0u, uint32_t(key >> 32) == high ? uint32_t(key) : ~0u);
    }
}

// ---- merges -----------------------------------------------------------------

// Of the first `diagonal` records of two merged runs, how many come from the left one. Equal keys come from the left run first.
template <typename K>
__device__ __forceinline__ uint32_t left_before(const K *keys, uint32_t left, uint32_t lefts, uint32_t right, uint32_t rights, uint32_t diagonal) {
    uint32_t low = diagonal > rights ? diagonal - rights : 0, high = min(diagonal, lefts);
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (keys[with_gaps(left + middle)] <= keys[with_gaps(right + diagonal - 1 - middle)]) low = middle + 1;
        else high = middle;
    }
    return low;
}

// A thread's records of the merged runs, from the diagonal on.
template <typename K> __device__ __forceinline__ void merge_items(const order_shared<K> &shared, uint32_t left, uint32_t lefts, uint32_t right,
                                                                  uint32_t rights, uint32_t diagonal, K (&key)[order_items],
                                                                  uint32_t (&position)[order_items]) {
    uint32_t i = left_before(shared.key, left, lefts, right, rights, diagonal), j = diagonal - i;
    K of_left = i < lefts ? shared.key[with_gaps(left + i)] : last_key<K>, of_right = j < rights ? shared.key[with_gaps(right + j)] : last_key<K>;
#pragma unroll
    for (int k = 0; k < order_items; ++k) {
        const bool is_left = j >= rights || (i < lefts && of_left <= of_right);
        const uint32_t from = is_left ? left + i : right + j;
        key[k] = is_left ? of_left : of_right;
        position[k] = i < lefts || j < rights ? shared.position[with_gaps(from)] : 0;
        if (is_left) {
            ++i;
            of_left = i < lefts ? shared.key[with_gaps(left + i)] : last_key<K>;
        } else {
            ++j;
            of_right = j < rights ? shared.key[with_gaps(right + j)] : last_key<K>;
        }
    }
}

// Puts a thread's records in order: equal keys are never exchanged.
template <typename K> __device__ __forceinline__ void sort_items(K (&key)[order_items], uint32_t (&position)[order_items]) {
#pragma unroll
    for (int round = 0; round < order_items; ++round)
#pragma unroll
        for (int k = round % 2; k + 1 < order_items; k += 2)
            if (key[k + 1] < key[k]) {
                const K other = key[k];
                const uint32_t of_other = position[k];
                key[k] = key[k + 1], position[k] = position[k + 1];
                key[k + 1] = other, position[k + 1] = of_other;
            }
}

template <typename K> __device__ __forceinline__ void put_items(order_shared<K> &shared, uint32_t first, const K (&key)[order_items],
                                                                const uint32_t (&position)[order_items]) {
#pragma unroll
    for (int k = 0; k < order_items; ++k) {
        shared.key[with_gaps(first + k)] = key[k];
        shared.position[with_gaps(first + k)] = position[k];
    }
}

// ---- results ----------------------------------------------------------------

// Where the sorted records of a line go: to the workspace, or as values and indices.
template <typename K> struct order_output {
    const bops_order_params &params;
    const bops_order_operands &operands;
    uint32_t bytes;
    order_records<K> to; // none in the last launch
    uint64_t line, x;    // of the line: its first record in the workspace, and where it begins in x
    uint64_t values, indices;

    // `at`: place of the line among the lines; `records`: of a line in the workspace.
    __device__ __forceinline__ order_output(const bops_order_params &params, const bops_order_operands &operands, uint32_t bytes,
                                            const order_records<K> &to, uint64_t number, uint64_t records)
        : params(params), operands(operands), bytes(bytes), to(to), line(number * records) {
        const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, number, 1);
        x = at.offset(params.x.lines), values = at.offset(params.values.lines), indices = at.offset(params.indices.lines);
    }
    __device__ __forceinline__ void store(uint64_t number, K key, uint32_t position) const {
        if (to.keys) {
            to.keys[line + number] = key;
            to.positions[line + number] = position;
            return;
        }
        if (operands.values) {
            K bits;
            if (!bits_of_key<K>(params.keys, key, bits)) bits = element_bits<K>(bytes, operands.x, x + position * params.x.step);
            put_bits<K>(bytes, operands.values, values + number * params.values.step, bits);
        }
        if (operands.indices) {
            const uint64_t at = indices + number * params.indices.step;
            if (params.indices.lines.dtype == BOPS_I64) static_cast<uint64_t *>(operands.indices)[at] = position;
            else static_cast<uint32_t *>(operands.indices)[at] = position;
        }
    }
};

// ---- tiles ------------------------------------------------------------------

// A launch over tiles of lines, of elements of x or of records of an earlier launch.
struct order_stage {
    uint64_t length, tiles;   // of a line
    uint64_t kept;            // records of a tile, at most
    uint64_t records;         // of a line, that the tiles keep
    uint32_t threads;         // of a tile
    bool by_position = false; // whether those that are kept end in the order of their positions

    __host__ __device__ order_stage(uint64_t length, uint64_t of_tile, uint32_t threads) : length(length), threads(threads) {
        const uint64_t tile = uint64_t(threads) * order_items;
        tiles = (length + tile - 1) / tile;
        kept = of_tile < tile ? of_tile : tile;
        const uint64_t last = length - (tiles - 1) * tile;
        records = (tiles - 1) * kept + (last < kept ? last : kept);
    }
};

// What a launch reads: records, or the elements of groups of 2^`group` neighbours, which lines of as many of their numbers as are kept name, or all of x.
template <typename K> struct order_source {
    order_records<K> records;
    const uint32_t *groups;
    uint32_t group;
};

// Of threads of a block, the sum of what those before each have, and of all. `sums`: a number for each warp.
__device__ __forceinline__ uint32_t sum_before(uint32_t own, uint32_t *sums, uint32_t &all) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t until = own;
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t before = __shfl_up_sync(~0u, until, step);
        if (lane >= step) until += before;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = until;
    __syncthreads();
    uint32_t earlier = 0;
    all = 0;
    for (uint32_t k = 0; k < warps; ++k) {
        if (k < warp) earlier += sums[k];
        all += sums[k];
    }
    return earlier + until - own;
}

// Leaves in `shared` the first `kept` records of a block's tile, of which those behind the first `left` are none: those of lesser keys than the last one
// that is kept, and of that key those of the least positions, both in the order of positions. The rest of `padded` records are the last ones of all.
template <typename K> __device__ __forceinline__ void select_items(order_shared<K> &shared, uint32_t (&counts)[3], uint32_t *sums, uint32_t left,
                                                                   uint32_t kept, uint32_t padded, const K (&key)[order_items],
                                                                   const uint32_t (&position)[order_items]) {
    kept = min(kept, left);
    // 1. The key of the last one, bit by bit: the greatest number that fewer keys are less than. A count is cleared two rounds before it is used.
    if (threadIdx.x < 3) counts[threadIdx.x] = 0;
    __syncthreads();
    K last = 0;
    for (int bit = int(8 * sizeof(K)) - 1, round = 0; bit >= 0; --bit, ++round) {
        const K next = last | K(1) << bit;
        uint32_t less = 0;
#pragma unroll
        for (int k = 0; k < order_items; ++k) less += key[k] < next;
        less = __reduce_add_sync(~0u, less);
        if (threadIdx.x % 32 == 0 && less > 0) atomicAdd(&counts[round % 3], less);
        __syncthreads();
        if (counts[round % 3] < kept) last = next;
        if (threadIdx.x == 0) counts[(round + 2) % 3] = 0;
    }
    // 2. Where each goes: lesser ones in the low half of a number, equal ones in the high half.
    const uint32_t first = threadIdx.x * order_items;
    uint32_t own = 0;
#pragma unroll
    for (int k = 0; k < order_items; ++k)
        if (first + k < left) own += key[k] < last ? 1 : key[k] == last ? 1 << 16 : 0;
    uint32_t all;
    const uint32_t before = sum_before(own, sums, all);
    uint32_t less = before & 0xffff, equal = (all & 0xffff) + (before >> 16);
#pragma unroll
    for (int k = 0; k < order_items; ++k) {
        if (first + k >= left || key[k] > last) continue;
        const uint32_t to = key[k] < last ? less++ : equal++;
        if (to < kept) shared.key[with_gaps(to)] = key[k], shared.position[with_gaps(to)] = position[k];
    }
    for (uint32_t k = kept + threadIdx.x; k < padded; k += blockDim.x) shared.key[with_gaps(k)] = last_key<K>, shared.position[with_gaps(k)] = 0;
    __syncthreads();
}

// Sorts tiles.
template <typename K, bool is_selected> __global__ void __launch_bounds__(order_threads<K>, 2)
    order_tiles(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes,
                order_stage stage, order_source<K> from, order_records<K> to) {
    __shared__ order_shared<K> shared;
    const uint32_t threads = stage.threads, thread = threadIdx.x % threads, tile_size = threads * order_items;
    const uint64_t number = uint64_t(blockIdx.x) * (blockDim.x / threads) + threadIdx.x / threads;
    const uint64_t line = stage.tiles == 1 ? number : number / stage.tiles, tile = stage.tiles == 1 ? 0 : number - line * stage.tiles;
    const bool is_there = line < params.lines;
    const order_output<K> output(params, operands, bytes, to, is_there ? line : 0, stage.records);
    const uint64_t start = tile * tile_size;
    const uint32_t left = is_there ? uint32_t(min(stage.length - start, uint64_t(tile_size))) : 0;
    // 1. The thread's records, neighbours along the line.
    K key[order_items];
    uint32_t position[order_items];
    const uint32_t first = thread * order_items;
    if (from.records.keys) {
#pragma unroll
        for (int k = 0; k < order_items; ++k) {
            const bool is_record = first + k < left;
            const uint64_t at = line * stage.length + start + first + k;
            key[k] = is_record ? from.records.keys[at] : last_key<K>, position[k] = is_record ? from.records.positions[at] : 0;
        }
    } else {
        uint32_t there = low_bits(left > first ? left - first : 0) & low_bits(order_items);
        if (from.groups) {
#pragma unroll
            for (int k = 0; k < order_items; ++k) {
                const uint64_t at = start + first + k;
                position[k] = 0;
                if (!(there >> k & 1)) continue;
                const uint64_t named = uint64_t(from.groups[line * params.kept + (at >> from.group)]) << from.group | (at & ((1u << from.group) - 1));
                // The last group may have fewer elements: in their places are records behind all others.
                if (named < params.length) position[k] = uint32_t(named);
                else there &= ~(1u << k);
            }
        } else {
#pragma unroll
            for (int k = 0; k < order_items; ++k) position[k] = uint32_t(start) + first + k;
        }
        load_bits<K>(
            bytes, operands.x, there, [&](int k) { return output.x + position[k] * params.x.step; }, key);
        make_keys(params.keys, key);
#pragma unroll
        for (int k = 0; k < order_items; ++k)
            if (!(there >> k & 1)) key[k] = last_key<K>;
    }
    // 2. Those that are kept, if they are few.
    uint32_t sharing = threads; // threads whose records are merged
    if constexpr (is_selected) {
        __shared__ uint32_t counts[3], sums[order_threads<K> / 32];
        while (sharing > 1 && sharing / 2 * order_items >= stage.kept) sharing /= 2;
        select_items<K>(shared, counts, sums, left, uint32_t(stage.kept), sharing * order_items, key, position);
        if (thread < sharing)
#pragma unroll
            for (int k = 0; k < order_items; ++k) {
                position[k] = shared.position[with_gaps(first + k)];
                key[k] = stage.by_position && first + k < min(left, uint32_t(stage.kept)) ? K(position[k]) : shared.key[with_gaps(first + k)];
            }
    }
    // 3. Runs of each thread, which are merged in pairs.
    sort_items<K>(key, position);
    const uint32_t base = threadIdx.x * order_items - first;
    for (uint32_t width = 1; width < sharing; width *= 2) {
        __syncthreads();
        if (thread < sharing) put_items<K>(shared, base + first, key, position);
        __syncthreads();
        if (thread < sharing) {
            const uint32_t run = width * order_items, pair = base + (first & ~(2 * run - 1));
            merge_items<K>(shared, pair, run, pair + run, run, base + first - pair, key, position);
        }
    }
    // 4. The results, side by side.
    __syncthreads();
    if (thread < sharing) put_items<K>(shared, base + first, key, position);
    __syncthreads();
    const uint32_t kept = uint32_t(min(uint64_t(left), stage.kept));
    for (uint32_t k = thread; k < kept; k += threads)
        output.store(tile * stage.kept + k, shared.key[with_gaps(base + k)], shared.position[with_gaps(base + k)]);
}

// Launches it.
template <typename K, bool is_selected, typename Action> bops_status with_tiles(const bops_order_params &params, const bops_order_operands &operands,
                                                                                uint32_t bytes, const order_stage &stage, const order_source<K> &from,
                                                                                const order_records<K> &to, const Action &action) {
    launch_shape shape;
    const uint64_t per_block = order_threads<K> / stage.threads, tiles = params.lines * stage.tiles;
    shape.grid = dim3(uint32_t((tiles + per_block - 1) / per_block)), shape.block = dim3(order_threads<K>);
    return action(order_tiles<K, is_selected>, shape, params, operands, bytes, stage, from, to);
}

// Calls f with a number of the keys' type.
template <typename F> bops_status for_keys(const bops_order_element &of, const F &f) { return of.bytes == 8 ? f(uint64_t(0)) : f(uint32_t(0)); }

// The two buffers of the workspace, whose sizes these are, in records. Launches write to them in turns.
template <typename K> struct order_buffers {
    void *workspace;
    uint64_t first, second;

    order_records<K> of_launch(uint64_t number) const {
        K *keys = static_cast<K *>(workspace);
        uint32_t *positions = reinterpret_cast<uint32_t *>(keys + first + second);
        const uint64_t skipped = number % 2 == 0 ? 0 : first;
        return {keys + skipped, positions + skipped};
    }
    // What lies behind them.
    uint32_t *end() const { return reinterpret_cast<uint32_t *>(static_cast<K *>(workspace) + first + second) + first + second; }
};

} // namespace bops
