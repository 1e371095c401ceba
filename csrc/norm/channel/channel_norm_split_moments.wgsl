// Forms split_merge and split_fused, first dispatch: the moments of each slice. They are its mean before correction, the correction, the mean of the
// squared differences from the former, and the number of elements.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_split_moments(at: Invocation) {
    let thread = thread_index(at);
    let slice = slice_of((at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread), thread);
    let x_start = segment_start(slice, params.x);
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        counts[k] = count_before(slice.end, first);
        if (counts[k] > 0u) {
            chunks[k] = x_load(x_start + first, counts[k]);
        }
    }
    let reciprocal = 1.0 / f32(slice.count);
    // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
    let shift = row_sum(at, thread_sum(false) * reciprocal, 0u);
    let moments = row_sums(at, thread_moments(shift) * reciprocal, 1u);
    if (slice.end > 0u && thread % THREADS == 0u) {
        moments_write(part_of(slice.batch, slice.channel, slice.index), vec4<f32>(shift, moments, f32(slice.count)));
    }
}
