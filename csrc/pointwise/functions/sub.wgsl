// The sign bit of y is inverted by what no compiler knows: of a difference of equal numbers it could make 0, also where they are infinite or NaN.
fn f_sub(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return x + negated(y);
}
