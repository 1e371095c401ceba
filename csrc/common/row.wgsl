// Rows of contiguous elements in tensors with three outer strides.

// Where a row starts, in elements.
fn row_start(row: u32, strides: vec3<u32>) -> u32 {
    if (params.extent2 == params.rows) {
        return row * strides.z;
    }
    let outer = row / params.extent2;
    return outer / params.extent1 * strides.x + outer % params.extent1 * strides.y + row % params.extent2 * strides.z;
}
