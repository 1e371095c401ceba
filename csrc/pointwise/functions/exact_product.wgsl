// A number in two parts, of which the second is what the first leaves out.
struct Parts {
    high: vec4<f32>,
    low: vec4<f32>,
}

// The upper half of the digits.
fn head(values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) & vec4<u32>(0xfffff000u));
}

// The product without an error, unless what is left out is no normal number: products of halves are exact.
fn exact_product(x: vec4<f32>, y: vec4<f32>) -> Parts {
    let high = rounded(x * y);
    let x_head = head(x);
    let y_head = head(y);
    let x_rest = x - x_head;
    let y_rest = y - y_head;
    return Parts(high, ((x_head * y_head - high) + (x_head * y_rest + x_rest * y_head)) + x_rest * y_rest);
}

// The sum without an error, |x| >= |y|.
fn exact_sum(x: vec4<f32>, y: vec4<f32>) -> Parts {
    let high = rounded(x + y);
    return Parts(high, y - (high - x));
}
