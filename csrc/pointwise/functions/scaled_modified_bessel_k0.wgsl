// The modified Bessel function of the second kind and order 0, times e^x.
fn f_scaled_modified_bessel_k0(x: vec4<f32>) -> vec4<f32> {
    let near = bessel_k0_near(min(f_abs(x), vec4<f32>(2.0)));
    let far = bessel_k0_far(clamp(x, vec4<f32>(2.0), vec4<f32>(0x1.fffffep+127f)));
    return scaled_bessel_k_of(near, far, x);
}
