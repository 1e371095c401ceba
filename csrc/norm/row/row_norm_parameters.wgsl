// The parameters of a row norm: one for each column.
fn parameter_elements() -> u32 {
    return params.cols;
}

// Values of the four columns from `col` on times their weights, or the values if there is no weight.
fn weighted(values: vec4<f32>, col: u32) -> vec4<f32> {
    if (!HAS_weight) {
        return values;
    }
    var weight = weight_quad(col);
    if (!CENTERED) {
        weight = weight + params.weight_offset;
    }
    return values * weight;
}
