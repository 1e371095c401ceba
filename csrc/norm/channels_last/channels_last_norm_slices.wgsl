// Channels last, split forms, first dispatch: the moments of each channel in a slice, from those of the threads below each other. They are the
// channel's mean before correction, the correction, the mean of the squared differences from the former, and the number of rows.

// The sums of what column_sums has of the mean. Every thread of the workgroup calls it.
fn merge_means(thread: u32) -> array<vec4<f32>, QUADS> {
    sum_columns(thread, QUADS);
    var shift: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        shift[part] = column_sums[part * WORKGROUP + thread % COLUMNS];
    }
    workgroupBarrier();
    return shift;
}

// Adds up what column_sums has of the correction and of the squares, and writes the moments. Every thread of the workgroup calls it.
fn put_moments(thread: u32, columns: Columns, shift: array<vec4<f32>, QUADS>) {
    sum_columns(thread, 2u * QUADS);
    for (var element = 0u; element < ELEMENTS; element++) {
        if (thread / COLUMNS == element % LANES && element < columns.count) {
            let part = element / 4u;
            let correction = column_sums[part * WORKGROUP + thread % COLUMNS][element % 4u];
            let squares = column_sums[(QUADS + part) * WORKGROUP + thread % COLUMNS][element % 4u];
            let moments = vec4<f32>(shift[part][element % 4u], correction, squares, f32(columns.rows));
            moments_write(part_of(columns.batch, columns.first_channel + element, columns.slice), moments);
        }
    }
}
