// x y.
fn f_mul(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return x * y;
}
