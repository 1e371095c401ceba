// The modified Bessel function of the second kind and order 1, times e^x.
fn f_scaled_modified_bessel_k1(x: vec4<f32>) -> vec4<f32> {
    let near = bessel_k1_near(min(f_abs(x), vec4<f32>(2.0)));
    let far = bessel_k1_far(clamp(x, vec4<f32>(2.0), vec4<f32>(0x1.fffffep+127f)));
    return scaled_bessel_k_of(near, far, x);
}
