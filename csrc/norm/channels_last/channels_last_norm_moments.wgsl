// Channels last, split forms, first dispatch: the moments of each channel in each slice. They are its mean before correction, the correction, the
// mean of the squared differences from the former, and the number of rows. A thread holds its CHUNKS rows in registers.
@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_moments(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let columns = columns_of(workgroup.y * params.groups_x + workgroup.x, thread);
    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let row = columns.first + k * LANES;
        if (columns.count > 0u && row < columns.end) {
            chunks[k] = x_load(chunk_start(columns, row, params.x), columns.count);
        }
    }
    let reciprocal = 1.0 / f32(columns.rows);
    var sum: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            sum[part] += quad(chunks[k], part);
        }
    }
    for (var part = 0u; part < QUADS; part++) {
        // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
        column_sums[part * WORKGROUP + thread] = sum[part] * reciprocal;
    }
    let shift = merge_means(thread);
    sum = array<vec4<f32>, QUADS>();
    var square: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let is_row = columns.first + k * LANES < columns.end;
        for (var part = 0u; part < QUADS; part++) {
            let d = quad(chunks[k], part) - select(vec4<f32>(), shift[part], is_row);
            sum[part] += d;
            square[part] += d * d;
        }
    }
    for (var part = 0u; part < QUADS; part++) {
        column_sums[part * WORKGROUP + thread] = sum[part] * reciprocal;
        column_sums[(QUADS + part) * WORKGROUP + thread] = square[part] * reciprocal;
    }
    put_moments(thread, columns, shift);
}
