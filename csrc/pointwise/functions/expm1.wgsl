// e^r - 1 for the rest r of a power.
fn less_one(r: vec4<f32>) -> vec4<f32> {
    var p = 0.00138824829 * r + 0.00836669188;
    p = p * r + 0.0416672044;
    p = p * r + 0.16666542;
    p = p * r + 0.49999997;
    return r + (r * r) * p;
}

// (e^r - 1) 2^n + (2^n - 1), of which half is made first, since 2^128 is no number. Below -18 it is -1.
fn f_expm1(x: vec4<f32>) -> vec4<f32> {
    let bounded = clamp(x, vec4<f32>(-18.0), vec4<f32>(89.0));
    let n = floor(bounded * 1.44269504 + 0.5);
    let less = less_one((bounded - n * 0.693359375) + n * 2.12194440e-4);
    let half = bitcast<vec4<f32>>((vec4<i32>(n) + 126) << vec4<u32>(23u));
    let magnitude = abs(select(2.0 * (less * half + (half - 0.5)), less, n == vec4<f32>()));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x);
}
