// The first records of each line: of every tile a few, until one tile holds those of a line. A line that a tile holds is sorted at once.
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
                return with_tiles<K, is_selected>(params, operands, of.bytes, stage, from, to, action);
            });
            if (status != 0 || is_last) return status;
            from = to;
            stage = order_stage(stage.records, params.kept, choice.threads);
        }
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_order_tiles, bops_order_element, bops_order_params, bops_order_choice, bops_order_operands, bops::with_kernel)
