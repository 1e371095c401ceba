// Softmax backward of lines side by side. A thread owns every DEEP-th element of the lines of one chunk.

// 1. The thread's elements.
fn load_lines(place: Place) {
    for (var k = 0u; k < CHUNKS; k++) {
        let index = place.first + k * DEEP;
        if (index < place.end) {
            held_y[k] = y_load(chunk_start(place, params.y, params.y_step, index), place.count);
            held_dy[k] = dy_load(chunk_start(place, params.dy, params.dy_step, index), place.count);
        }
    }
}

// 2. The sums of the terms. Elements past the slice are 0.
fn thread_sum() -> array<vec4<f32>, QUADS> {
    var sum: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            sum[part] += terms_of(k, part);
        }
    }
    return sum;
}

// 3. dx.
fn store_lines(place: Place, sums: array<vec4<f32>, QUADS>) {
    var all_sums = sums;
    for (var k = 0u; k < CHUNKS; k++) {
        let index = place.first + k * DEEP;
        if (index < place.end) {
            var dx: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                dx[part] = gradients_of(k, part, all_sums[part]);
            }
            dx_store(chunk_start(place, params.dx, params.dx_step, index), place.count, chunk_of(dx));
        }
    }
}

// DEEP threads hold the whole lines in registers.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_channels_resident(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    store_lines(place, column_sum(thread, thread_sum()));
}

// The index of the sums of a slice of the lines of a chunk: [blocks][slices][columns].
fn part_at(place: Place, slice: u32) -> u32 {
    return ((place.block * params.slices + slice) * params.columns + place.column) * QUADS;
}

// First dispatch for lines too long for one workgroup: the sums of each slice.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_channels_split_parts(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    var sums = column_sum(thread, thread_sum());
    if (thread < ACROSS && place.end > 0u) {
        for (var part = 0u; part < QUADS; part++) {
            parts_write(part_at(place, place.slice) + part, sums[part]);
        }
    }
}

// Second dispatch: dx. Every workgroup adds up the slices of its lines in a fixed order. The dispatch takes slices from the last to the first,
// since those that were read last may still be cached.
@compute @workgroup_size(WORKGROUP)
fn softmax_backward_channels_split_apply(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let items = params.rows * params.slices * ((params.columns + ACROSS - 1u) / ACROSS);
    let item = workgroup.y * params.groups_x + workgroup.x;
    var place = place_of(thread, items - 1u - min(item, items - 1u));
    place.end = select(0u, place.end, item < items);
    load_lines(place);
    var own_sums: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        own_sums[part] = vec4<f32>();
    }
    if (place.count > 0u) {
        for (var slice = thread / ACROSS; slice < params.slices; slice += DEEP) {
            for (var part = 0u; part < QUADS; part++) {
                own_sums[part] += parts_read(part_at(place, slice) + part);
            }
        }
    }
    store_lines(place, column_sum(thread, own_sums));
}
