// x / y. A device may multiply by the reciprocal of y, which of a large y is too small for a normal number: such a y is made smaller.
fn quotient(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let magnitude = bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu);
    // Infinity stays what it is, and so does the NaN of two of them.
    let scale = select(vec4<f32>(1.0), vec4<f32>(0x1p-64f), magnitude >= vec4<u32>(bitcast<u32>(0x1p64f)));
    return (x / (y * scale)) * scale;
}

// Quotients with subnormal numbers may be normal.
fn f_div(x: vec4<f32>, divisor: vec4<f32>) -> vec4<f32> {
    let y = hidden(divisor);
    if (any(are_subnormal(x) | are_subnormal(y))) {
        let scale_back = select(vec4<f32>(1.0), vec4<f32>(0x1p64f), are_subnormal(y)) * lifted_by(x);
        return quotient(lifted(x), lifted(y)) * scale_back;
    }
    return quotient(x, y);
}
