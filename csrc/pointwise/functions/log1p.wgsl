// With u = 1 + x = 2^n (1 + f): n log(2) + log(1 + f), where what u has lost of x is added to f.
fn f_log1p(x: vec4<f32>) -> vec4<f32> {
    let u = rounded(1.0 + x);
    let lost = select(x - rounded(u - 1.0), 1.0 - rounded(u - x), x > vec4<f32>(1.0));
    let bits = bitcast<vec4<i32>>(u);
    let n = (bits - vec4<i32>(0x3f3504f3)) >> vec4<u32>(23u);
    // Of large numbers nothing that counts is lost.
    let scale = bitcast<vec4<f32>>(max(vec4<i32>(127) - n, vec4<i32>()) << vec4<u32>(23u));
    let f = (bitcast<vec4<f32>>(bits - (n << vec4<u32>(23u))) - 1.0) + lost * scale;
    let twos = vec4<f32>(n);
    let value = twos * 0.693145752 + (f + (twos * 1.42860677e-6 + logarithm_rest(f)));
    let is_zero = (bitcast<vec4<u32>>(u) & vec4<u32>(0x7fffffffu)) == vec4<u32>();
    let special = nan_if_negative(select(select(u, literal(0xff800000u), is_zero), value, are_positive(u)), u);
    return select(special, x, abs(x) < vec4<f32>(1e-8));
}
