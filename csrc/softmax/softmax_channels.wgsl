// Softmax forward of lines side by side. A thread owns every DEEP-th element of the lines of one chunk.

var<private> trace: array<vec4<f32>, QUADS>;

// 1. The thread's elements.
fn load_lines(place: Place) {
    for (var k = 0u; k < CHUNKS; k++) {
        let index = place.first + k * DEEP;
        chunks[k] = vec4<u32>();
        if (index < place.end) {
            chunks[k] = x_load(chunk_start(place, params.x, params.x_step, index), place.count);
        }
    }
}

// The elements of quad `part` of chunk k; -infinity past the end of the lines.
fn elements_of(k: u32, part: u32, place: Place) -> vec4<f32> {
    return select(least(), prepared(quad(chunks[k], part)), place.first + k * DEEP < place.end);
}

// 2. The largest elements, and the trace of all.
fn thread_max(place: Place) -> array<vec4<f32>, QUADS> {
    var most: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        most[part] = least();
        trace[part] = vec4<f32>();
    }
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            let v = elements_of(k, part, place);
            if (UNPACKED) {
                values[k * QUADS + part] = v;
            }
            most[part] = max(most[part], v);
            if (FLAT) {
                trace[part] = traced(trace[part], select(vec4<f32>(), v, place.first + k * DEEP < place.end));
            } else {
                trace[part] = traced(trace[part], v);
            }
        }
    }
    return most;
}

// 3. The sums of exp(t), NaN where a line has no result.
fn thread_sum(place: Place, most: array<vec4<f32>, QUADS>) -> array<vec4<f32>, QUADS> {
    var shift = most;
    var sum: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        shift[part] = shift_of(shift[part]);
        sum[part] = vec4<f32>();
    }
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            var d: vec4<f32>;
            if (UNPACKED) {
                d = values[k * QUADS + part] - shift[part];
            } else {
                d = elements_of(k, part, place) - shift[part];
            }
            // Padding needs no 0 unless FLAT: its exponential is 0.
            var weight = weight_of(d);
            if (FLAT) {
                weight = select(vec4<f32>(), weight, place.first + k * DEEP < place.end);
            }
            if (UNPACKED) {
                values[k * QUADS + part] = select(weight, d, LOG);
            }
            sum[part] += weight;
        }
    }
    for (var part = 0u; part < QUADS; part++) {
        sum[part] = with_trace(sum[part], trace[part]);
    }
    return sum;
}

// 4. y.
fn store_lines(place: Place, most: array<vec4<f32>, QUADS>, sums: array<vec4<f32>, QUADS>) {
    var all_most = most;
    var all_sums = sums;
    var lines: array<Line, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        lines[part] = line_of(all_most[part], all_sums[part]);
    }
    for (var k = 0u; k < CHUNKS; k++) {
        let index = place.first + k * DEEP;
        if (index < place.end) {
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let line = lines[part];
                if (!UNPACKED) {
                    y[part] = result_of(elements_of(k, part, place) - line.shift, line);
                } else if (LOG) {
                    y[part] = result_of(values[k * QUADS + part], line);
                } else {
                    y[part] = values[k * QUADS + part] * line.factor;
                }
            }
            y_store(chunk_start(place, params.y, params.y_step, index), place.count, chunk_of(y));
        }
    }
}

// DEEP threads hold the whole lines in registers.
@compute @workgroup_size(WORKGROUP)
fn softmax_channels_resident(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    let most = column_max(thread, thread_max(place));
    let sums = column_sum(thread, thread_sum(place, most));
    store_lines(place, most, sums);
}

// The index of the largest elements and the sums of a slice of the lines of a chunk: [blocks][slices][columns].
fn part_at(place: Place, slice: u32) -> u32 {
    return ((place.block * params.slices + slice) * params.columns + place.column) * 2u * QUADS;
}

// First dispatch for lines too long for one workgroup: the largest element and the sum of each slice.
@compute @workgroup_size(WORKGROUP)
fn softmax_channels_split_parts(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    var most = column_max(thread, thread_max(place));
    var sums = column_sum(thread, thread_sum(place, most));
    if (thread < ACROSS && place.end > 0u) {
        let first = part_at(place, place.slice);
        for (var part = 0u; part < QUADS; part++) {
            parts_write(first + 2u * part, most[part]);
            parts_write(first + 2u * part + 1u, sums[part]);
        }
    }
}

// Second dispatch: y. Every workgroup merges the slices of its lines in a fixed order. The dispatch takes slices from the last to
// the first, since those that were read last may still be cached.
@compute @workgroup_size(WORKGROUP)
fn softmax_channels_split_apply(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, items - 1u - min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    var own_most: array<vec4<f32>, QUADS>;
    var own_sums: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        own_most[part] = least();
        own_sums[part] = vec4<f32>();
    }
    if (place.count > 0u) {
        for (var slice = thread / ACROSS; slice < params.slices; slice += DEEP) {
            for (var part = 0u; part < QUADS; part++) {
                own_most[part] = max(own_most[part], parts_read(part_at(place, slice) + 2u * part));
            }
        }
    }
    var most = column_max(thread, own_most);
    if (place.count > 0u) {
        for (var slice = thread / ACROSS; slice < params.slices; slice += DEEP) {
            for (var part = 0u; part < QUADS; part++) {
                let first = part_at(place, slice) + 2u * part;
                own_sums[part] += parts_read(first + 1u) * weight_of(parts_read(first) - shift_of(most[part]));
            }
        }
    }
    store_lines(place, most, column_sum(thread, own_sums));
}
