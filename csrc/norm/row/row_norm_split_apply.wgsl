// The second dispatch of split: merges the moments of a row's slices, and writes y.

// Merges the slices of a row in a fixed order about the mean of their means (Chan). Every workgroup does it for its row.
fn merge_moments(at: Invocation, row: u32) -> Statistics {
    let first = row * params.slices;
    var means = 0.0;
    for (var slice = member_index(at); slice < params.slices; slice += member_count(at)) {
        let slice_moments = moments_read(first + slice);
        means += slice_cols(slice) * params.reciprocal_cols * select(slice_moments.z, slice_moments.x, CENTERED);
    }
    let shift = members_sum(at, means, 0u);
    if (!CENTERED) {
        return finish_statistics(0.0, 0.0, shift);
    }
    var total = vec2<f32>();
    for (var slice = member_index(at); slice < params.slices; slice += member_count(at)) {
        let slice_moments = moments_read(first + slice);
        let d = (slice_moments.x - shift) + slice_moments.y;
        let variance = without_sign(slice_moments.z - slice_moments.y * slice_moments.y);
        total += slice_cols(slice) * params.reciprocal_cols * vec2<f32>(d, variance + d * d);
    }
    let merged = members_sums(at, total, 1u);
    return finish_statistics(shift, merged.x, merged.y);
}

// Slices come last to first: those that the first dispatch read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn row_norm_split_apply(at: Invocation) {
    let own = slice_part(at, params.slices, params.cols, true);
    load_row(own);
    store_row(own, merge_moments(at, own.row));
}
