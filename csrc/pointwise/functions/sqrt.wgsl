// Roots of subnormal numbers are normal. 0 of both signs and infinity are their own roots, which a root made from inverseSqrt need not give.
fn f_sqrt(x: vec4<f32>) -> vec4<f32> {
    let root = sqrt(lifted(x)) * select(vec4<f32>(1.0), vec4<f32>(0x1p-32f), are_subnormal(x));
    return nan_if_negative(select(x, root, are_positive(x)), x);
}
