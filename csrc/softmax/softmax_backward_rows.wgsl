// Softmax backward of rows: lines whose elements lie side by side. A thread owns every THREADS-th chunk of 16 bytes of its row.

// 1. The thread's chunks.
fn load_row(own: RowPart) {
    let y_row = row_start(own.row, params.y);
    let dy_row = row_start(own.row, params.dy);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = own.first_col + k * THREADS * ELEMENTS;
        let count = count_before(own.end_col, col);
        if (count > 0u) {
            held_y[k] = y_load(y_row + col, count);
            held_dy[k] = dy_load(dy_row + col, count);
        }
    }
}

// 2. The sum of the terms. Elements past the row are 0.
fn thread_sum() -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            sum += terms_of(k, part);
        }
    }
    return add_up(sum);
}

// 3. dx of chunk k.
fn store_chunk(k: u32, own: RowPart, dx_row: u32, sum: f32) {
    let col = own.first_col + k * THREADS * ELEMENTS;
    let count = count_before(own.end_col, col);
    if (count > 0u) {
        var dx: array<vec4<f32>, QUADS>;
        for (var part = 0u; part < QUADS; part++) {
            dx[part] = gradients_of(k, part, vec4<f32>(sum));
        }
        dx_store(dx_row + col, count, chunk_of(dx));
    }
}

// Unrolled by hand: drivers keep an array in memory if a loop with this many instructions indexes it. CHUNKS is 1, 2, or 4 and more.
fn store_row(own: RowPart, sum: f32) {
    let dx_row = row_start(own.row, params.dx);
    store_chunk(0u, own, dx_row, sum);
    if (CHUNKS > 1u) {
        store_chunk(1u, own, dx_row, sum);
    }
    if (CHUNKS > 2u) {
        store_chunk(2u, own, dx_row, sum);
        store_chunk(3u, own, dx_row, sum);
    }
    for (var k = 4u; k < CHUNKS; k++) {
        store_chunk(k, own, dx_row, sum);
    }
}

// THREADS threads hold the whole row in registers.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_resident(at: Invocation) {
    let own = team_part(at, 0u, params.dim);
    load_row(own);
    store_row(own, row_sum(at, thread_sum(), 0u));
}

// First dispatch for rows too long for one workgroup: the sum of each slice, [rows][slices].
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_split_parts(at: Invocation) {
    let own = slice_part(at, params.slices, params.dim, false);
    load_row(own);
    let sum = row_sum(at, thread_sum(), 0u);
    if (own.exists && thread_index(at) == 0u) {
        parts_write(own.item, vec4<f32>(sum, 0.0, 0.0, 0.0));
    }
}

// Second dispatch: dx. Every workgroup adds up the slices in a fixed order. It goes from the last slice to the first, since the slices that were read
// last may still be cached.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_split_apply(at: Invocation) {
    let own = slice_part(at, params.slices, params.dim, true);
    load_row(own);
    var own_sum = 0.0;
    for (var slice = thread_index(at); slice < params.slices; slice += THREADS) {
        own_sum += parts_read(own.row * params.slices + slice).x;
    }
    store_row(own, row_sum(at, own_sum, 0u));
}
