// Softmax forward of rows: lines whose elements lie side by side. A thread owns every THREADS-th chunk of 16 bytes of its row.
var<private> trace: vec4<f32>;

// 1. The thread's chunks from column `first_col` on.
fn load_row(row: u32, first_col: u32, end_col: u32) {
    let x_row = row_start(row, params.x);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
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
fn thread_max(first_col: u32, end_col: u32) -> f32 {
    var most = least();
    trace = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(end_col, first_col + k * THREADS * ELEMENTS);
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
fn thread_sum(shift: f32, first_col: u32, end_col: u32) -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(end_col, first_col + k * THREADS * ELEMENTS);
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

fn store_row(row: u32, first_col: u32, end_col: u32, line: Line) {
    let y_row = row_start(row, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        if (count > 0u) {
            y_store(y_row + col, count, outputs_of(k, count, line));
        }
    }
}

// THREADS threads hold the whole row in registers. A team takes `rounds` rows, one after the other; with PREFETCH it reads the next row while it
// finishes one.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_resident(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_col = thread % THREADS * ELEMENTS;
    for (var round = 0u; round < params.rounds; round++) {
        let team_row = (workgroup * params.rounds + round) * TEAMS + team_of(thread);
        let row = min(team_row, params.rows - 1u);
        let end_col = select(0u, params.dim, team_row < params.rows);
        if (!PREFETCH || round == 0u) {
            load_row(row, first_col, end_col);
        }
        let own_most = thread_max(first_col, end_col);
        if (PREFETCH) {
            let next_row = team_row + TEAMS;
            let is_next = next_row < params.rows && round + 1u < params.rounds;
            load_row(min(next_row, params.rows - 1u), first_col, select(0u, params.dim, is_next));
        }
        let most = vec4<f32>(row_max(at, own_most, 0u));
        let sum = row_sum(at, thread_sum(shift_of(most).x, first_col, end_col), 1u);
        store_row(row, first_col, end_col, line_of(most, vec4<f32>(sum)));
    }
}

// Rows too long for registers: a workgroup reads a row twice, slice after slice. The first pass finds the largest element and the sum. The second
// goes backwards, since the slices that were read last may still be cached. The workgroup is one team: WORKGROUP is THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_twice(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let row = min(workgroup, params.rows - 1u);
    let end_col = select(0u, params.dim, workgroup == row);
    let thread_col = thread_index(at) * ELEMENTS;
    var own_most = least();
    var own_sum = 0.0;
    for (var slice = 0u; slice < params.slices; slice++) {
        let first_col = slice * SLICE + thread_col;
        load_row(row, first_col, end_col);
        let larger = max(own_most, vec4<f32>(thread_max(first_col, end_col)));
        own_sum = own_sum * kept_of(own_most, larger).x + thread_sum(shift_of(larger).x, first_col, end_col);
        own_most = larger;
    }
    let most = vec4<f32>(row_max(at, own_most.x, 0u));
    let line = line_of(most, vec4<f32>(row_sum(at, own_sum * kept_of(own_most, most).x, 1u)));
    for (var rest = params.slices; rest > 0u; rest--) {
        let first_col = (rest - 1u) * SLICE + thread_col;
        load_row(row, first_col, end_col);
        store_row(row, first_col, end_col, line);
    }
}

// First dispatch for rows too long for one workgroup: the largest element and the sum of each slice, [rows][slices]. The workgroup is
// one team: WORKGROUP is THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_split_parts(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let item = min(workgroup, params.rows * params.slices - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let end_col = select(0u, min((slice + 1u) * SLICE, params.dim), workgroup == item);
    load_row(row, first_col, end_col);
    let most = row_max(at, thread_max(first_col, end_col), 0u);
    let sum = row_sum(at, thread_sum(shift_of(vec4<f32>(most)).x, first_col, end_col), 1u);
    if (workgroup == item && thread_index(at) == 0u) {
        parts_write(item, vec4<f32>(most, sum, 0.0, 0.0));
    }
}

// Merges the slices of a row in a fixed order. Every workgroup that writes a slice of a row merges all of the row's slices.
fn merge_parts(at: Invocation, row: u32) -> Line {
    let first = row * params.slices;
    var own_most = least().x;
    for (var base = 0u; base < params.slices; base += THREADS) {
        let slice = base + thread_index(at);
        if (slice < params.slices) {
            own_most = max(own_most, parts_read(first + slice).x);
        }
    }
    let most = vec4<f32>(row_max(at, own_most, 0u));
    let shift = shift_of(most);
    var own_sum = 0.0;
    for (var base = 0u; base < params.slices; base += THREADS) {
        let slice = base + thread_index(at);
        if (slice < params.slices) {
            let part = parts_read(first + slice);
            own_sum += part.y * weight_of(vec4<f32>(part.x) - shift).x;
        }
    }
    return line_of(most, vec4<f32>(row_sum(at, own_sum, 1u)));
}

// Second dispatch: y, from the last slice to the first, since the slices that were read last may still be cached. The
// workgroup is one team: WORKGROUP is THREADS.
@compute @workgroup_size(WORKGROUP)
fn softmax_rows_split_apply(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.rows * params.slices;
    let item = items - 1u - min(workgroup, items - 1u);
    let row = item / params.slices;
    let slice = item % params.slices;
    let first_col = slice * SLICE + thread_index(at) * ELEMENTS;
    let end_col = select(0u, min((slice + 1u) * SLICE, params.dim), workgroup < items);
    load_row(row, first_col, end_col);
    store_row(row, first_col, end_col, merge_parts(at, row));
}
