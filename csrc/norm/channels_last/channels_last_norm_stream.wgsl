// Channels last, split forms, first dispatch: the moments of each channel in each slice. They are its mean before correction, the correction, the
// mean of the squared differences from the former, and the number of rows.
//
// A thread takes its rows in batches and loads the next one while it computes: the moments of a batch about its own mean are merged with those of
// the rows before. All elements are taken as differences from the thread's first row, so that a large mean costs no accuracy.
// Rows that a thread merges at a time; the loop over them is written out for 4. With fewer, the chain of merges would be longer, and each merge has a
// division; with more, a thread would take more registers for the chunks of this batch and of the next.
const BATCH: u32 = 4u;

var<private> chunks: array<vec4<u32>, BATCH>;
var<private> ahead: array<vec4<u32>, BATCH>;

fn load_batch(columns: Columns, first: u32) {
    for (var k = 0u; k < BATCH; k++) {
        let row = first + k * LANES;
        ahead[k] = vec4<u32>();
        if (columns.count > 0u && row < columns.end) {
            ahead[k] = x_load(chunk_start(columns, row, params.x), columns.count);
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_stream(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let columns = columns_of(workgroup.y * params.groups_x + workgroup.x, thread);
    let own_rows = select(0u, (columns.end - columns.first + LANES - 1u) / LANES, columns.first < columns.end);
    var mean: array<vec4<f32>, QUADS>;
    var square: array<vec4<f32>, QUADS>;
    load_batch(columns, columns.first);
    var base: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        base[part] = quad(ahead[0], part);
    }
    let whole = own_rows / BATCH;
    for (var turn = 0u; turn < whole; turn++) {
        chunks = ahead;
        load_batch(columns, columns.first + (turn + 1u) * BATCH * LANES);
        let share = 1.0 / f32(turn + 1u);
        let weight = f32(BATCH) * f32(turn) * share;
        for (var part = 0u; part < QUADS; part++) {
            let v0 = quad(chunks[0], part) - base[part];
            let v1 = quad(chunks[1], part) - base[part];
            let v2 = quad(chunks[2], part) - base[part];
            let v3 = quad(chunks[3], part) - base[part];
            let own = ((v0 + v1) + (v2 + v3)) * 0.25;
            let d0 = v0 - own;
            let d1 = v1 - own;
            let d2 = v2 - own;
            let d3 = v3 - own;
            let delta = own - mean[part];
            mean[part] += delta * share;
            square[part] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3) + delta * delta * weight;
        }
    }
    // The rows past the last whole batch, one after the other.
    for (var k = 0u; k < BATCH; k++) {
        let row = whole * BATCH + k;
        if (row < own_rows) {
            let share = 1.0 / f32(row + 1u);
            let weight = f32(row) * share;
            for (var part = 0u; part < QUADS; part++) {
                let delta = (quad(ahead[k], part) - base[part]) - mean[part];
                mean[part] += delta * share;
                square[part] += delta * delta * weight;
            }
        }
    }
    // The share of a thread without rows is 0.
    let reciprocal = 1.0 / f32(columns.rows);
    let own_share = f32(own_rows) * reciprocal;
    for (var part = 0u; part < QUADS; part++) {
        // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
        column_sums[part * WORKGROUP + thread] = (base[part] + mean[part]) * own_share;
    }
    let shift = merge_means(thread);
    for (var part = 0u; part < QUADS; part++) {
        // 0 in a thread without rows, since the square of the shift may be infinite, which a share of 0 makes NaN.
        let d = select(vec4<f32>(), (base[part] - shift[part]) + mean[part], own_rows > 0u);
        column_sums[part * WORKGROUP + thread] = d * own_share;
        column_sums[(QUADS + part) * WORKGROUP + thread] = square[part] * reciprocal + d * d * own_share;
    }
    put_moments(thread, columns, shift);
}
