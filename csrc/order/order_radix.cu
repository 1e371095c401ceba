// Long lines, sorted digit by digit of their keys, of which the first pass makes them from x. What each pass writes lies next to what its neighbours write.
// Compiled once for all architectures.
#include "../common/sort.cuh"
#include "order.cuh"

namespace bops {
namespace {

template <typename K> constexpr int radix_items = order_tile<K> / sort_threads;

// A thread's keys of its tile.
template <typename K, int items> __device__ __forceinline__ void load_keys(const bops_order_params &params, const bops_order_operands &operands,
                                                                           uint32_t bytes, const sort_pass &pass, const order_records<K> &from,
                                                                           uint32_t present, K (&keys)[items]) {
    const uint64_t start = uint64_t(pass.tile()) * order_tile<K>;
    if (from.keys) {
        const K *const own = from.keys + pass.line() * params.length + start;
#pragma unroll
        for (int i = 0; i < items; ++i) keys[i] = sort_item<items>(i) < present ? own[sort_item<items>(i)] : 0;
        return;
    }
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, pass.line(), 1);
    const uint64_t x = at.offset(params.x.lines);
    const uint32_t item = sort_item<items>(0), there = low_bits(present > item ? (present - item + 31) / 32 : 0);
    const uint64_t first = x + (start + item) * params.x.step, row = 32 * params.x.step;
    load_bits<K>(
        bytes, operands.x, there, [&](int i) { return first + i * row; }, keys);
    make_keys(params.keys, keys);
}

template <typename K> __global__ void __launch_bounds__(sort_threads)
    order_count(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes,
                sort_pass pass, order_records<K> from) {
    __shared__ uint32_t counts[sort_digits];
    const uint32_t present = pass.present(order_tile<K>);
    K keys[radix_items<K>];
    load_keys(params, operands, bytes, pass, from, present, keys);
    count_digits(pass, keys, present, counts);
}

template <typename K> __global__ void __launch_bounds__(sort_threads, 3)
    order_move(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes, sort_pass pass,
               order_records<K> from, order_records<K> to) {
    constexpr int items = radix_items<K>;
    __shared__ sort_shared<K, items> shared;
    const uint32_t present = pass.present(order_tile<K>);
    const uint64_t start = uint64_t(pass.tile()) * order_tile<K>, first = pass.line() * params.length + start;
    K keys[items];
    load_keys(params, operands, bytes, pass, from, present, keys);
    const auto position = [&](int i) { return from.keys ? from.positions[first + sort_item<items>(i)] : uint32_t(start) + sort_item<items>(i); };
    move_pairs(pass, keys, position, present, shared, [&] {
        const order_output<K> output(params, operands, bytes, to, pass.line(), params.length);
        return [&, output](uint32_t at, K key, uint32_t position) {
            if (to.keys || at < params.kept) output.store(at, key, position);
        };
    });
}

template <typename Action> bops_status with_kernel(bops_order_element of, const bops_order_params &params, const bops_order_choice &,
                                                   const bops_order_operands &operands, void *workspace, const Action &action) {
    return for_keys(of, [&](auto zero) -> bops_status {
        using K = decltype(zero);
        const uint64_t records = params.lines * params.length, tiles = (params.length + order_tile<K> - 1) / order_tile<K>;
        const order_buffers<K> buffers{workspace, of.bytes > 1 ? records : 0, of.bytes > 2 ? records : 0};
        sort_pass pass = {buffers.end(), params.length, params.lines, uint32_t(tiles), 0};
        launch_shape shape;
        shape.grid = dim3(uint32_t(params.lines * tiles)), shape.block = dim3(sort_threads);
        order_records<K> from{nullptr, nullptr};
        for (uint32_t number = 0; number < of.bytes; ++number) {
            const order_records<K> to = number + 1 < of.bytes ? buffers.of_launch(number) : order_records<K>{nullptr, nullptr};
            pass.shift = 8 * number;
            bops_status status = action(order_count<K>, shape, params, operands, of.bytes, pass, from);
            if (status == 0) status = scan_counts(pass, action);
            if (status == 0) status = action(order_move<K>, shape, params, operands, of.bytes, pass, from, to);
            if (status != 0) return status;
            from = to;
        }
        return 0;
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_order_radix, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_kernel)
