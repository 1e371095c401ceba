// Chunks of 16 bytes, of which the last of a row or segment may be cut.

// How many elements of the chunk at `first` lie before `end`; WHOLE_CHUNKS says that no chunk is cut, wherever it lies.
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
