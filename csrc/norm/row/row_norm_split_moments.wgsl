// The first dispatch of split: the moments of each slice of a row, [rows][slices]. Of LayerNorm the mean before correction, its correction and the
// mean of the squared differences; of RMSNorm the mean of the squares, in the same place. The workgroup is one team: WORKGROUP is THREADS.
@compute @workgroup_size(WORKGROUP)
fn row_norm_split_moments(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let item = min(workgroup, params.rows * params.slices - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let is_last = slice + 1u == params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let end_col = select(0u, slice * SLICE + select(SLICE, params.tail_cols, is_last), workgroup == item);
    let reciprocal = 1.0 / f32(select(SLICE, params.tail_cols, is_last));
    load_row(row, first_col, end_col);
    let first = row_sum(at, thread_sum(!CENTERED) * reciprocal, 0u);
    var moments = vec4<f32>(0.0, 0.0, first, 0.0);
    if (CENTERED) {
        let corrected = row_sums(at, thread_moments(first, first_col, end_col) * reciprocal, 1u);
        moments = vec4<f32>(first, corrected, 0.0);
    }
    if (workgroup == item && thread_index(at) == 0u) {
        moments_write(item, moments);
    }
}
