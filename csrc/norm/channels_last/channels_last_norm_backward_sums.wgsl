// Channels last, split forms, first dispatch: sum(dpre) and sum(dpre * xhat) of each channel in each slice.
@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_backward_sums(at: Invocation) {
    let thread = thread_index(at);
    let columns = columns_of(at.workgroup.y * params.groups_x + at.workgroup.x, thread);
    if (columns.count > 0u) {
        let terms = row_chunk_terms(columns.batch, columns.first_channel);
        for (var first = columns.first; first < columns.end; first += AHEAD * LANES) {
            hold_rows(columns, first);
            for (var k = 0u; k < AHEAD; k++) {
                if (first + k * LANES < columns.end) {
                    add_row_chunk(k, terms);
                }
            }
        }
    }
    for (var j = 0u; j < 2u * QUADS; j++) {
        column_sums[j * WORKGROUP + thread] = row_chunk_sums[j];
    }
    sum_columns(thread, 2u * QUADS);
    for (var element = 0u; element < ELEMENTS; element++) {
        if (thread / COLUMNS == element % LANES && element < columns.count) {
            let first = element / 4u * WORKGROUP + thread % COLUMNS;
            let sums = vec2<f32>(column_sums[first][element % 4u], column_sums[first + QUADS * WORKGROUP][element % 4u]);
            sums_write(part_of(columns.batch, columns.first_channel + element, columns.slice), vec4<f32>(sums, 0.0, 0.0));
        }
    }
}
