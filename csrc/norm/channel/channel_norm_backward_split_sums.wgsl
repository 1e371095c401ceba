// Forms split_merge and split_fused, first dispatch: sum(dpre) and sum(dpre * xhat) of each slice.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_split_sums(at: Invocation) {
    let thread = thread_index(at);
    let slice = slice_of((at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread), thread);
    hold_slice(slice);
    let terms = terms_of(slice.channel, vec4<f32>(0.0, 0.0, statistics_of(slice.batch, slice.channel)));
    var total = vec2<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = slice_count(slice, k);
        if (count > 0u) {
            total += segment_chunk_sums(k, count, terms);
        }
    }
    let sums = row_sums(at, total, 0u);
    if (slice.end > 0u && thread % THREADS == 0u) {
        sums_write(part_of(slice.batch, slice.channel, slice.index), vec4<f32>(sums, 0.0, 0.0));
    }
}
