// Rows of contiguous elements in tensors whose outer extents collapse to three, with a stride each.

// The first element of a row.
fn row_start(row: u32, strides: vec3<u32>) -> u32 {
    if (params.extent2 == params.rows) {
        return row * strides.z;
    }
    let outer = row / params.extent2;
    return outer / params.extent1 * strides.x + outer % params.extent1 * strides.y + row % params.extent2 * strides.z;
}
