// x above 0, else y (e^z - 1), z = x / y. Where z is near 0 it is x times (e^z - 1) / z, which needs no normal z. A positive z, which a negative y makes, may
// be large: what its rounding loses is added.
fn f_celu(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let scale = select(vec4<f32>(1.0), vec4<f32>(0x1p64f), abs(x) < vec4<f32>(0x1p-40f));
    let of_x = hidden(x) * scale;
    let of_y = y * scale;
    let z = quotient(of_x, of_y);
    let bounded = clamp(z, vec4<f32>(-35.0), vec4<f32>(194.0));
    let product = exact_product(bounded, of_y);
    let lost = quotient((of_x - product.high) - product.low, of_y);
    // Near 0 nothing that counts is lost, and y may be infinite by its scale.
    let is_rounded = (bounded == z) & (abs(z) > vec4<f32>(0.25));
    let n = floor(bounded * 1.44269504 + 0.5);
    let r = ((bounded - n * 0.693359375) + n * 2.12194440e-4) + select(vec4<f32>(), lost, is_rounded);
    let less = less_one(r);
    // Where r is too small for a normal number, the quotient is 1.
    let ratio = select(less / r, vec4<f32>(1.0), abs(r) < vec4<f32>(1e-9));
    // From 2^100 on the 1 does not count, and 2^64 is multiplied early.
    let large = times_power(y * 0x1p64f, scaled_power(1.0 + less, max(n, vec4<f32>(100.0)) - 64.0));
    let power = bitcast<vec4<f32>>((vec4<i32>(min(n, vec4<f32>(100.0))) + 127) << vec4<u32>(23u));
    let medium = y * (less * power + (power - 1.0));
    let value = select(select(medium, large, n > vec4<f32>(100.0)), x * ratio, n == vec4<f32>());
    let unbounded = select(value, y * literal(0x7f800000u), bitcast<vec4<u32>>(z) == vec4<u32>(0x7f800000u));
    return select(unless_nan(unbounded, z), x, are_above_zero(x));
}
