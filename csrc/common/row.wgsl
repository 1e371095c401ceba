// Rows of contiguous elements in tensors with three outer strides, in chunks of 16 bytes.

// Rows that a workgroup takes at a time, each with a team of THREADS threads.
const TEAMS: u32 = WORKGROUP / THREADS;

// Plainly the same for all threads where there is one team.
fn team_of(thread: u32) -> u32 {
    return select(thread / THREADS, 0u, TEAMS == 1u);
}

// Where a row starts, in elements.
fn row_start(row: u32, strides: vec3<u32>) -> u32 {
    if (params.extent2 == params.rows) {
        return row * strides.z;
    }
    let outer = row / params.extent2;
    return outer / params.extent1 * strides.x + outer % params.extent1 * strides.y + row % params.extent2 * strides.z;
}

// How many elements of the chunk at `first` lie before `end`; WHOLE_CHUNKS says that no chunk is cut.
fn count_before(end: u32, first: u32) -> u32 {
    if (WHOLE_CHUNKS) {
        return select(0u, ELEMENTS, first < end);
    }
    return select(0u, min(end - first, ELEMENTS), first < end);
}

// `value` for the elements of a quad that lie before `count`, the number of elements in its chunk, 0 for the others.
fn within(value: f32, part: u32, count: u32) -> vec4<f32> {
    if (WHOLE_CHUNKS) {
        return vec4<f32>(select(0.0, value, count > 0u));
    }
    let slots = vec4<u32>(0u, 1u, 2u, 3u) + 4u * part;
    return select(vec4<f32>(), vec4<f32>(value), slots < vec4<u32>(count));
}

// Zeros for the elements of a quad that lie past `count`; a chunk that is used at all is whole where all are.
fn keep(values: vec4<f32>, part: u32, count: u32) -> vec4<f32> {
    if (WHOLE_CHUNKS) {
        return values;
    }
    let slots = vec4<u32>(0u, 1u, 2u, 3u) + 4u * part;
    return select(vec4<f32>(), values, slots < vec4<u32>(count));
}

fn add_up(values: vec4<f32>) -> f32 {
    return (values.x + values.y) + (values.z + values.w);
}
