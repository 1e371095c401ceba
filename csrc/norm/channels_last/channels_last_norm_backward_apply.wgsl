// Channels last, last dispatch: dx and dresidual. prepare_columns, channel_means and put_remaining come from channels_last_norm_backward_known, or
// from channels_last_norm_backward_merging and channel_norm_backward_merge_held.
//
// Slices are taken in reverse order: what the sums read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_backward_apply(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.slices * params.column_blocks;
    if (workgroup >= items) {
        put_remaining(at, thread, workgroup - items);
        return;
    }
    let columns = columns_of(items - 1u - workgroup, thread);
    if (READS_FIRST) {
        hold_rows(columns, columns.first);
    }
    prepare_columns(at, thread, columns);
    if (columns.count == 0u) {
        return;
    }
    let terms = row_chunk_terms(columns.batch, columns.first_channel);
    for (var first = columns.first; first < columns.end; first += AHEAD * LANES) {
        if (!READS_FIRST || first > columns.first) {
            hold_rows(columns, first);
        }
        for (var k = 0u; k < AHEAD; k++) {
            let row = first + k * LANES;
            if (row < columns.end) {
                put_row_chunk(k, columns.batch, columns.first_channel, row, columns.count, terms);
            }
        }
    }
}
