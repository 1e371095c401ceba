// The first dispatch of split: sum(g) and sum(g * xhat) of each slice of a row, [rows][slices].
@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_split_sums(at: Invocation) {
    let own = slice_part(at, params.sum_slices, params.cols, false);
    let place = place_of(own.row, own.end_col);
    load_row(place, own.first_col);
    let sums = row_sums(at, thread_sums(place, own.first_col, mean_of(own.row), rstd_of(own.row)), 0u);
    if (own.exists && thread_index(at) == 0u) {
        work_write(own.item, vec4<f32>(sums, 0.0, 0.0));
    }
}
