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

// The elements of quad `part` of chunk k, which has `count` elements; -infinity pads it.
fn elements_of(k: u32, part: u32, count: u32) -> vec4<f32> {
    return select(least(), prepared(quad(chunks[k], part)), are_present(part, count));
}

// 2. The largest element, and the trace of all.
fn thread_max(own: RowPart) -> f32 {
    var most = least();
    trace = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(own.end_col, own.first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            let v = elements_of(k, part, count);
            if (UNPACKED) {
                values[k * QUADS + part] = v;
            }
            most = max(most, v);
            if (FLAT) {
                trace = traced(trace, select(vec4<f32>(), v, are_present(part, count)));
            } else {
                trace = traced(trace, v);
            }
        }
    }
    return max(max(most.x, most.y), max(most.z, most.w));
}

// 3. The sum of exp(t), NaN if the row has no result.
fn thread_sum(shift: f32, own: RowPart) -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(own.end_col, own.first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            var d: vec4<f32>;
            if (UNPACKED) {
                d = values[k * QUADS + part] - shift;
            } else {
                d = elements_of(k, part, count) - shift;
            }
            // Padding needs no 0 unless FLAT: its exponential is 0.
            var weight = weight_of(d);
            if (FLAT) {
                weight = select(vec4<f32>(), weight, are_present(part, count));
            }
            if (UNPACKED) {
                values[k * QUADS + part] = select(weight, d, LOG);
            }
            sum += weight;
        }
    }
    return add_up(with_trace(sum, trace));
}

// 4. y of chunk k.
fn outputs_of(k: u32, count: u32, line: Line) -> vec4<u32> {
    var y: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        if (!UNPACKED) {
            y[part] = result_of(elements_of(k, part, count) - line.shift, line);
        } else if (LOG) {
            y[part] = result_of(values[k * QUADS + part], line);
        } else {
            y[part] = values[k * QUADS + part] * line.factor;
        }
    }
    return chunk_of(y);
}

fn store_row(own: RowPart, line: Line) {
    let y_row = row_start(own.row, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = own.first_col + k * THREADS * ELEMENTS;
        let count = count_before(own.end_col, col);
        if (count > 0u) {
            y_store(y_row + col, count, outputs_of(k, count, line));
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
        let sum = row_sum(at, thread_sum(shift_of(most).x, own), 1u);
        store_row(own, line_of(most, vec4<f32>(sum)));
    }
}

// What the thread has of slice `slice` of a row.
fn slice_of(row: RowPart, slice: u32) -> RowPart {
    return RowPart(row.item, row.row, row.exists, slice * SLICE + row.first_col, row.end_col);
}

// Rows too long for registers: a workgroup reads a row twice, slice after slice. The first pass finds the largest element and the sum. The second
// goes backwards, since the slices that were read last may still be cached. WORKGROUP = THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_twice(at: Invocation) {
    let row = team_part(at, 0u, params.dim);
    var own_most = least();
    var own_sum = 0.0;
    for (var slice = 0u; slice < params.slices; slice++) {
        let own = slice_of(row, slice);
        load_row(own);
        let larger = max(own_most, vec4<f32>(thread_max(own)));
        own_sum = own_sum * kept_of(own_most, larger).x + thread_sum(shift_of(larger).x, own);
        own_most = larger;
    }
    let most = vec4<f32>(row_max(at, own_most.x, 0u));
    let line = line_of(most, vec4<f32>(row_sum(at, own_sum * kept_of(own_most, most).x, 1u)));
    for (var rest = params.slices; rest > 0u; rest--) {
        let own = slice_of(row, rest - 1u);
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
    let sum = row_sum(at, thread_sum(shift_of(vec4<f32>(most)).x, own), 1u);
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
