// e^t for t from -infinity to infinity; NaN counts as any number. WGSL bounds the error of exp2 by 3 + 2 |x| ulp, so that |x| is kept below 1/2; the
// power of 2 that is split off is exact, in two factors, since 2^128 is no number and numbers below 2^-126 are not normal.
fn natural_power(t: vec4<f32>) -> vec4<f32> {
    // e^-104 is 0 and e^89 infinite.
    let bounded = clamp(t, vec4<f32>(-104.0), vec4<f32>(89.0));
    let n = floor(bounded * 1.44269504 + 0.5);
    // log(2) in two parts, of which the first has so few bits that its product with n is exact.
    let rest = (bounded - n * 0.693359375) + n * 2.12194440e-4;
    let twos = vec4<i32>(n);
    let half = twos >> vec4<u32>(1u);
    let low = bitcast<vec4<f32>>((half + 127) << vec4<u32>(23u));
    let high = bitcast<vec4<f32>>((twos - half + 127) << vec4<u32>(23u));
    return (exp2(rest * 1.44269504) * low) * high;
}
