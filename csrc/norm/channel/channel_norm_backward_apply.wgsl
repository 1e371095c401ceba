// Contiguous segments, last dispatch: dx and dresidual. segment_means and put_remaining come from channel_norm_backward_apply_known, or from
// channel_norm_backward_apply_merging and channel_norm_backward_merge_held.
//
// Slices are taken in reverse order: what the sums read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_apply(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.channels * params.slices;
    let last = (items - 1u) / TEAMS;
    if (workgroup > last) {
        put_remaining(at, thread, workgroup - last - 1u);
        return;
    }
    let slice = slice_of((last - workgroup) * TEAMS + team_of(thread), thread);
    hold_slice(slice);
    let terms = terms_of(slice.channel, segment_means(at, thread, slice));
    let dx_start = segment_start(slice, params.dx);
    let dresidual_start = segment_start(slice, params.dresidual);
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = slice_count(slice, k);
        if (count > 0u) {
            put_segment_chunk(k, count, terms, dx_start + first, dresidual_start + first);
        }
    }
}
