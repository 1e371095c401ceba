// The second dispatch of split: merges the moments of a row's slices, and writes y. The workgroup is one team: WORKGROUP is THREADS.

// Merges the slices of a row in a fixed order about the mean of their means (Chan). Every workgroup does it for its row.
fn merge_moments(at: Invocation, row: u32) -> Statistics {
    let first = row * params.slices;
    var means = 0.0;
    for (var base = 0u; base < params.slices; base += member_count(at)) {
        let slice = base + member_index(at);
        if (slice < params.slices) {
            let share = select(f32(SLICE), f32(params.tail_cols), slice + 1u == params.slices) * params.reciprocal_cols;
            let slice_moments = moments_read(first + slice);
            means += share * select(slice_moments.z, slice_moments.x, CENTERED);
        }
    }
    let shift = members_sum(at, means, 0u);
    if (!CENTERED) {
        return finish_statistics(0.0, 0.0, shift);
    }
    var total = vec2<f32>();
    for (var base = 0u; base < params.slices; base += member_count(at)) {
        let slice = base + member_index(at);
        if (slice < params.slices) {
            let share = select(f32(SLICE), f32(params.tail_cols), slice + 1u == params.slices) * params.reciprocal_cols;
            let slice_moments = moments_read(first + slice);
            let d = (slice_moments.x - shift) + slice_moments.y;
            let variance = without_sign(slice_moments.z - slice_moments.y * slice_moments.y);
            total += share * vec2<f32>(d, variance + d * d);
        }
    }
    let merged = members_sums(at, total, 1u);
    return finish_statistics(shift, merged.x, merged.y);
}

// Slices come last to first: those that the first dispatch read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn row_norm_split_apply(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.rows * params.slices;
    let item = items - 1u - min(workgroup, items - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let end_col = select(0u, min((slice + 1u) * SLICE, params.cols), workgroup < items);
    load_row(row, first_col, end_col);
    let statistics = merge_moments(at, row);
    if (workgroup < items && slice == 0u && thread_index(at) == 0u) {
        save_statistics(row, statistics);
    }
    let y_row = row_start(row, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        if (count > 0u) {
            y_store(y_row + col, count, normalize(k, col, statistics));
        }
    }
}
