// The last entry of each key goes to y: a team of threads takes an entry, and moves it where the next one has another key.
// Compiled once for all architectures.
#include "scatter.cuh"

namespace bops {
namespace {

template <int unit_bytes> __global__ void __launch_bounds__(movement_threads)
    scatter_set(const __grid_constant__ bops_scatter_set_params params, scatter_pairs pairs, const unit_t<unit_bytes> *source,
                unit_t<unit_bytes> *y) {
    const bops_scatter_rows &rows = params.rows;
    const scatter_place at(rows);
    if (at.share >= rows.entries || at.unit >= rows.units) return;
    const uint32_t key = pairs.keys[at.share];
    if (key >= rows.keys || (at.share + 1 < rows.entries && pairs.keys[at.share + 1] == key)) return;
    y[key * rows.key + at.y] = source[pairs.places[at.share] * rows.place + at.source];
}

template <typename Action> bops_status with_kernel(uint32_t, const bops_scatter_set_params &params, const bops_scatter_choice &choice,
                                                   const bops_scatter_operands &operands, void *workspace, const Action &action) {
    return for_value<1, 2, 4, 8, 16>(choice.unit_bytes, [&](auto unit_bytes) {
        using unit = unit_t<unit_bytes>;
        return action(scatter_set<unit_bytes>, scatter_shape(params.rows), params, pairs_in(params.rows, workspace),
                      static_cast<const unit *>(operands.source), static_cast<unit *>(operands.y));
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_scatter_set, uint32_t, bops_scatter_set_params, bops_scatter_choice, bops_scatter_operands, bops::with_kernel)
