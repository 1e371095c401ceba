// Rows of contiguous elements in tensors with three outer strides, in chunks of 16 bytes.

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

// Zeros for the elements of a quad that lie past `count`, the number of elements in its chunk.
fn keep(values: vec4<f32>, part: u32, count: u32) -> vec4<f32> {
    if (WHOLE_CHUNKS) {
        return select(vec4<f32>(), values, count > 0u);
    }
    let slots = vec4<u32>(0u, 1u, 2u, 3u) + 4u * part;
    return select(vec4<f32>(), values, slots < vec4<u32>(count));
}

fn add_up(values: vec4<f32>) -> f32 {
    return (values.x + values.y) + (values.z + values.w);
}
