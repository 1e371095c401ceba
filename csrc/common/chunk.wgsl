// Chunks: ELEMENTS neighbouring elements. The last chunk of a row or segment may be cut, which means that it has fewer elements; WHOLE_CHUNKS
// says that none is.

// How many elements of the chunk that begins at element `first` lie before element `end`.
fn count_before(end: u32, first: u32) -> u32 {
    if (WHOLE_CHUNKS) {
        return select(0u, ELEMENTS, first < end);
    }
    return select(0u, min(end - first, ELEMENTS), first < end);
}

// Which elements of quad `part` of a chunk are among the chunk's `count` elements.
fn are_present(part: u32, count: u32) -> vec4<bool> {
    if (WHOLE_CHUNKS) {
        return vec4<bool>(count > 0u);
    }
    return vec4<u32>(0u, 1u, 2u, 3u) + 4u * part < vec4<u32>(count);
}

// For each element of quad `part` of a chunk: `value` if it is one of the chunk's `count` elements, otherwise 0.
fn within(value: f32, part: u32, count: u32) -> vec4<f32> {
    return select(vec4<f32>(), vec4<f32>(value), are_present(part, count));
}

// The values of quad `part` of a chunk, 0 past its `count` elements. The caller has a chunk with at least one element.
fn keep(values: vec4<f32>, part: u32, count: u32) -> vec4<f32> {
    if (WHOLE_CHUNKS) {
        return values;
    }
    return select(vec4<f32>(), values, are_present(part, count));
}

fn add_up(values: vec4<f32>) -> f32 {
    return (values.x + values.y) + (values.z + values.w);
}
