// Softmax backward of rows: lines whose elements lie side by side. A thread owns every THREADS-th chunk of 16 bytes of its row.
const SLICE: u32 = THREADS * CHUNKS * ELEMENTS; // elements of one workgroup where rows are split

// The words of a row that were read.
var<private> held_y: array<vec4<u32>, CHUNKS>;
var<private> held_dy: array<vec4<u32>, CHUNKS>;

// 1. The thread's chunks from column `first_col` on.
fn load_row(row: u32, first_col: u32, end_col: u32) {
    let y_row = row_start(row, params.y);
    let dy_row = row_start(row, params.dy);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        held_y[k] = vec4<u32>();
        held_dy[k] = vec4<u32>();
        if (count > 0u) {
            held_y[k] = y_load(y_row + col, count);
            held_dy[k] = dy_load(dy_row + col, count);
        }
    }
}

// 2. The sum of the terms. Elements past the row were loaded as 0.
fn thread_sum() -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            sum += term_of(quad(held_y[k], part), quad(held_dy[k], part));
        }
    }
    return add_up(sum);
}

// 3. dx of chunk k.
fn store_chunk(k: u32, dx_row: u32, first_col: u32, end_col: u32, sum: f32) {
    let col = first_col + k * THREADS * ELEMENTS;
    let count = count_before(end_col, col);
    if (count > 0u) {
        var dx: array<vec4<f32>, QUADS>;
        for (var part = 0u; part < QUADS; part++) {
            dx[part] = gradient_of(quad(held_y[k], part), quad(held_dy[k], part), vec4<f32>(sum));
        }
        dx_store(dx_row + col, count, chunk_of(dx));
    }
}

// Unrolled by hand: drivers keep an array in memory if a loop with this many instructions indexes it.
fn store_row(row: u32, first_col: u32, end_col: u32, sum: f32) {
    let dx_row = row_start(row, params.dx);
    store_chunk(0u, dx_row, first_col, end_col, sum);
    if (CHUNKS > 1u) {
        store_chunk(1u, dx_row, first_col, end_col, sum);
    }
    if (CHUNKS > 2u) {
        store_chunk(2u, dx_row, first_col, end_col, sum);
        store_chunk(3u, dx_row, first_col, end_col, sum);
    }
    for (var k = 4u; k < CHUNKS; k++) {
        store_chunk(k, dx_row, first_col, end_col, sum);
    }
}

// THREADS threads hold the whole row in registers.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_resident(at: Invocation) {
    let thread = thread_index(at);
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_col = thread % THREADS * ELEMENTS;
    let team_row = group * TEAMS + team_of(thread);
    let row = min(team_row, params.rows - 1u);
    let end_col = select(0u, params.dim, team_row < params.rows);
    load_row(row, first_col, end_col);
    store_row(row, first_col, end_col, row_sum(at, thread_sum(), 0u));
}

// First dispatch for rows too long for one workgroup: the sum of each slice, [rows][slices]. WORKGROUP = THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_split_parts(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let item = min(group, params.rows * params.slices - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    load_row(row, first_col, select(0u, min((slice + 1u) * SLICE, params.dim), group == item));
    let sum = row_sum(at, thread_sum(), 0u);
    if (group == item && thread_index(at) == 0u) {
        parts_write(item, vec4<f32>(sum, 0.0, 0.0, 0.0));
    }
}

// Second dispatch: dx. Every workgroup adds up the slices in a fixed order. It goes from the last slice to the first, since the slices that were read
// last may still be cached. WORKGROUP = THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_rows_split_apply(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.rows * params.slices;
    let item = items - 1u - min(group, items - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let end_col = select(0u, min((slice + 1u) * SLICE, params.dim), group < items);
    load_row(row, first_col, end_col);
    var own_sum = 0.0;
    for (var base = 0u; base < params.slices; base += THREADS) {
        let i = base + thread_index(at);
        if (i < params.slices) {
            own_sum += parts_read(row * params.slices + i).x;
        }
    }
    store_row(row, first_col, end_col, row_sum(at, own_sum, 0u));
}
