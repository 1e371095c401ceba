// Softmax forward of rows: lines whose elements lie side by side. A thread owns every THREADS-th chunk of 16 bytes of its row.
var<private> trace: vec4<f32>;

// 1. The thread's chunks.
fn load_row(own: RowPart) {
    let x_row = row_start(own.row, params.x);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = own.first_col + k * THREADS * ELEMENTS;
        let count = count_before(own.end_col, col);
        chunks[k] = vec4<u32>();
        if (count > 0u) {
            chunks[k] = x_load(x_row + col, count);
        }
    }
}

// 2. The largest element, and the trace of all.
fn thread_max(own: RowPart) -> f32 {
    var most = least();
    trace = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(own.end_col, own.first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            let present = are_present(part, count);
            let v = unpacked(k, part, present);
            most = max(most, v);
            trace = traced(trace, counted(v, present));
        }
    }
    return max(max(most.x, most.y), max(most.z, most.w));
}

// 3. The sum of exp(t), NaN if the row has no result.
fn thread_sum(shift: vec4<f32>, own: RowPart) -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(own.end_col, own.first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            sum += weights_of(k, part, are_present(part, count), shift);
        }
    }
    return add_up(with_trace(sum, trace));
}

// 4. y.
fn store_row(own: RowPart, line: Line) {
    let y_row = row_start(own.row, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = own.first_col + k * THREADS * ELEMENTS;
        let count = count_before(own.end_col, col);
        if (count > 0u) {
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                y[part] = outputs_of(k, part, are_present(part, count), line);
            }
            y_store(y_row + col, count, chunk_of(y));
        }
    }
}

// THREADS threads hold the whole row in registers. A team takes `rounds` rows, one after the other; with PREFETCH it reads the next row while it
// finishes one.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_resident(at: Invocation) {
    for (var round = 0u; round < params.rounds; round++) {
        let own = team_part(at, round, params.dim);
        if (!PREFETCH || round == 0u) {
            load_row(own);
        }
        let own_most = thread_max(own);
        if (PREFETCH) {
            load_row(team_part(at, round + 1u, params.dim));
        }
        let most = vec4<f32>(row_max(at, own_most, 0u));
        let sum = row_sum(at, thread_sum(shift_of(most), own), 1u);
        store_row(own, line_of(most, vec4<f32>(sum)));
    }
}

// Rows too long for registers: a workgroup reads a row twice, slice after slice. The first pass finds the largest element and the sum. The second
// goes backwards, since the slices that were read last may still be cached. WORKGROUP = THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_twice(at: Invocation) {
    var own = team_part(at, 0u, params.dim);
    var own_most = least();
    var own_sum = 0.0;
    for (var slice = 0u; slice < params.slices; slice++) {
        load_row(own);
        let larger = max(own_most, vec4<f32>(thread_max(own)));
        own_sum = own_sum * kept_of(own_most, larger).x + thread_sum(shift_of(larger), own);
        own_most = larger;
        own.first_col += SLICE;
    }
    let most = vec4<f32>(row_max(at, own_most.x, 0u));
    let line = line_of(most, vec4<f32>(row_sum(at, own_sum * kept_of(own_most, most).x, 1u)));
    for (var rest = params.slices; rest > 0u; rest--) {
        own.first_col -= SLICE;
        load_row(own);
        store_row(own, line);
    }
}

// First dispatch for rows too long for one workgroup: the largest element and the sum of each slice, [rows][slices].
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_split_parts(at: Invocation) {
    let own = slice_part(at, params.slices, params.dim, false);
    load_row(own);
    let most = row_max(at, thread_max(own), 0u);
    let sum = row_sum(at, thread_sum(shift_of(vec4<f32>(most)), own), 1u);
    if (own.exists && thread_index(at) == 0u) {
        parts_write(own.item, vec4<f32>(most, sum, 0.0, 0.0));
    }
}

// Merges the slices of a row in a fixed order. Every workgroup that writes a slice of the row does this.
fn merge_parts(at: Invocation, row: u32) -> Line {
    let first = row * params.slices;
    var own_most = least().x;
    for (var slice = thread_index(at); slice < params.slices; slice += THREADS) {
        own_most = max(own_most, parts_read(first + slice).x);
    }
    let most = vec4<f32>(row_max(at, own_most, 0u));
    let shift = shift_of(most);
    var own_sum = 0.0;
    for (var slice = thread_index(at); slice < params.slices; slice += THREADS) {
        let part = parts_read(first + slice);
        own_sum += part.y * weight_of(vec4<f32>(part.x) - shift).x;
    }
    return line_of(most, vec4<f32>(row_sum(at, own_sum, 1u)));
}

// Second dispatch: y, from the last slice to the first, since the slices that were read last may still be cached.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_split_apply(at: Invocation) {
    let own = slice_part(at, params.slices, params.dim, true);
    load_row(own);
    store_row(own, merge_parts(at, own.row));
}
