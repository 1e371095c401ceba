// The first records of each line: of every tile a few, until one tile holds those of a line. A line that a tile holds is sorted at once. Of long lines groups of
// neighbours are looked at first: only those whose least keys come first have elements that do.
// Compiled once for all architectures.
#include "order.cuh"

namespace bops {
namespace {

template <typename Action> bops_status with_kernel(bops_order_element of, const bops_order_params &params, const bops_order_choice &choice,
                                                   const bops_order_operands &operands, void *workspace, const Action &action) {
    return for_keys(of, [&](auto zero) {
        using K = decltype(zero);
        order_stage stage(params.length, params.kept, choice.threads);
        const order_stage second(stage.records, params.kept, choice.threads);
        const order_buffers<K> buffers{workspace, params.lines * stage.records, second.tiles == 1 ? 0 : params.lines * second.records};
        order_records<K> from{nullptr, nullptr};
        for (uint64_t number = 0;; ++number) {
            const bool is_last = stage.tiles == 1;
            const order_records<K> to = is_last ? order_records<K>{nullptr, nullptr} : buffers.of_launch(number);
            const bops_status status = for_flag(choice.is_selected, [&](auto is_selected) {
                return with_tiles<K, is_selected>(params, operands, of.bytes, stage, {from, nullptr, 0}, to, action);
            });
            if (status != 0 || is_last) return status;
            from = to;
            stage = order_stage(stage.records, params.kept, choice.threads);
        }
    });
}

// Rows of 32 elements that a warp reads at once.
constexpr int group_rows = 16, group_threads = 256;
static_assert(32 * group_rows == BOPS_ORDER_GROUP_MOST, "a warp has whole groups");

// The least key of each group of 2^`group` neighbours.
template <typename K> __global__ void __launch_bounds__(group_threads)
    order_groups(const __grid_constant__ bops_order_params params, const __grid_constant__ bops_order_operands operands, uint32_t bytes,
                 uint32_t group, order_records<K> to) {
    const uint32_t lane = threadIdx.x % 32, rows = 1u << group >> 5;
    const uint64_t parts = (params.length + 32 * group_rows - 1) / (32 * group_rows), groups = (params.length + (1u << group) - 1) >> group;
    const uint64_t number = uint64_t(blockIdx.x) * (group_threads / 32) + threadIdx.x / 32, line = number / parts;
    if (line >= params.lines) return;
    const place<BOPS_POINTWISE_EXTENTS, true> at(params.walk, line, 1);
    const uint64_t x = at.offset(params.x.lines), start = (number - line * parts) * (32 * group_rows);
    K key[group_rows];
    const uint64_t left = params.length - start, first_element = x + (start + lane) * params.x.step, row = 32 * params.x.step;
    const uint32_t there = low_bits(left > lane ? uint32_t(min(left - lane + 31, uint64_t(1024))) / 32 : 0);
    load_bits<K>(
        bytes, operands.x, there, [&](int i) { return first_element + i * row; }, key);
    make_keys(params.keys, key);
    K least = last_key<K>, own = last_key<K>;
#pragma unroll
    for (int i = 0; i < group_rows; ++i) {
        if (there >> i & 1) least = min(least, key[i]);
        if ((i + 1) % rows != 0) continue;
        least = least_of_warp(least);
        if (lane == i / rows) own = least;
        least = last_key<K>;
    }
    const uint64_t first = start >> group;
    if (lane < group_rows / rows && first + lane < groups) {
        to.keys[line * groups + first + lane] = own;
        to.positions[line * groups + first + lane] = uint32_t(first + lane);
    }
}

template <typename Action> bops_status with_groups(bops_order_element of, const bops_order_params &params, const bops_order_choice &choice,
                                                   const bops_order_operands &operands, void *workspace, const Action &action) {
    return for_keys(of, [&](auto zero) -> bops_status {
        using K = decltype(zero);
        const uint64_t groups = (params.length + (1ull << choice.group) - 1) >> choice.group, wanted = params.kept << choice.group;
        // 1. What the launches write but the last, in turns.
        uint64_t written[2] = {groups, 0};
        uint64_t number = 1;
        const auto each = [&](uint64_t length, const auto &f) -> bops_status {
            for (;; ++number) {
                const order_stage stage(length, params.kept, choice.threads);
                const bops_status status = f(stage);
                if (status != 0 || stage.tiles == 1) return status;
                length = stage.records;
            }
        };
        const auto count = [&](const order_stage &stage) -> bops_status {
            if (stage.records > written[number % 2]) written[number % 2] = stage.records;
            return 0;
        };
        each(groups, count), ++number;
        each(wanted, count), number = 0;
        const order_buffers<K> buffers{workspace, params.lines * written[0], params.lines * written[1]};
        // 2. The groups.
        const uint64_t parts = (params.length + BOPS_ORDER_GROUP_MOST - 1) / BOPS_ORDER_GROUP_MOST;
        launch_shape shape;
        shape.grid = dim3(uint32_t((params.lines * parts + group_threads / 32 - 1) / (group_threads / 32))), shape.block = dim3(group_threads);
        order_source<K> from{buffers.of_launch(0), nullptr, 0};
        bops_status status = action(order_groups<K>, shape, params, operands, of.bytes, choice.group, from.records);
        ++number;
        // 3. Those that come first, at last in the order of their positions.
        if (status == 0)
            status = each(groups, [&](const order_stage &stage) {
                order_stage own = stage;
                own.by_position = stage.tiles == 1;
                const order_records<K> to = buffers.of_launch(number);
                const bops_status status = with_tiles<K, true>(params, operands, of.bytes, own, from, to, action);
                from.records = to;
                return status;
            });
        ++number;
        // 4. Their elements.
        from = {{nullptr, nullptr}, from.records.positions, choice.group};
        if (status != 0) return status;
        return each(wanted, [&](const order_stage &stage) {
            const order_records<K> to = stage.tiles == 1 ? order_records<K>{nullptr, nullptr} : buffers.of_launch(number);
            const bops_status status = with_tiles<K, true>(params, operands, of.bytes, stage, from, to, action);
            from = {to, nullptr, 0};
            return status;
        });
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_order_tiles, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_kernel)
BOPS_DEFINE_FORM(bops_order_groups, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_groups)
