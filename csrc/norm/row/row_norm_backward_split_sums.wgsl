// The first dispatch of split: sum(g) and sum(g * xhat) of each slice of a row, [rows][slices]. WORKGROUP = THREADS.
@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_split_sums(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let item = min(workgroup, params.rows * params.sum_slices - 1u);
    let row = item / params.sum_slices;
    let slice = item % params.sum_slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let place = place_of(row, select(0u, min((slice + 1u) * SLICE, params.cols), workgroup == item));
    load_row(place, first_col);
    let sums = row_sums(at, thread_sums(place, first_col, mean_of(row), rstd_of(row)), 0u);
    if (workgroup == item && thread_index(at) == 0u) {
        work_write(item, vec4<f32>(sums, 0.0, 0.0));
    }
}
