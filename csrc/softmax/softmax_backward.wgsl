// Softmax and log-softmax backward: parameters, and the formula for the four elements of a quad. Rows and channels differ in how lines lie in memory.
//
// dx = scale * y * (dy - sum(dy * y)); LOG: dx = scale * (dy - exp(y) * sum(dy)).
struct Params {
    rows: u32, // rows; blocks of lines, where lines lie side by side
    dim: u32, // elements of a line
    inner: u32, // lines side by side in a block
    extent1: u32,
    extent2: u32,
    y: vec3<u32>,
    dy: vec3<u32>,
    dx: vec3<u32>,
    y_step: u32, // between the elements of a line; rows: 1
    dy_step: u32,
    dx_step: u32,
    scale: f32,
    slices: u32, // parts of a line, of which a workgroup takes one; 1 where a line is held whole
    groups_x: u32,
    columns: u32, // where lines lie side by side: chunks of a block
    rounds: u32, // rows that a team takes one after the other: 1
    all_bits: u32, // all ones, which no compiler knows
}

@group(0) @binding(0) var<uniform> params: Params;

// A thread's chunks of lines as they were read; zeros past the end of a line.
var<private> held_y: array<vec4<u32>, CHUNKS>;
var<private> held_dy: array<vec4<u32>, CHUNKS>;

// The terms of the sum of a line, for quad `part` of chunk k.
fn terms_of(k: u32, part: u32) -> vec4<f32> {
    let dy = quad(held_dy[k], part);
    if (LOG) {
        return dy;
    }
    return dy * quad(held_y[k], part);
}

// dx of a quad, from the sums of its lines.
fn gradients_of(k: u32, part: u32, sum: vec4<f32>) -> vec4<f32> {
    let y = quad(held_y[k], part);
    let dy = quad(held_dy[k], part);
    if (!LOG) {
        return (params.scale * y) * (dy - sum);
    }
    var weight: vec4<f32>;
    if (ELEMENTS == 8u) {
        weight = power_of_two(y * 1.44269504);
    } else {
        weight = exponential(min(y, vec4<f32>(89.0)));
    }
    let is_nan = (bitcast<vec4<u32>>(y) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return params.scale * (dy - select(weight, y, is_nan) * sum);
}
