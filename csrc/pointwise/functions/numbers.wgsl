// What functions of programs share: numbers and NaN by their bits. WGSL lets implementations assume that there are no NaN, replace a product and a sum by a
// fused operation, and compute at compile time with numbers that they see. `params.all_bits` is all ones, which no compiler knows.

// A number of the program, from the bits of f32. No compiler knows it, not even 0, of which it could take every product for 0.
fn literal(bits: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(bits ^ ~params.all_bits));
}

// The same values, of which no compiler knows that they are the same: it could take the quotient of equal ones for 1, also where they are infinite. The bits
// are added here and not combined as in `literal`: of the same operation twice a compiler knows that it is none, and it would see the number again.
fn hidden(values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) + vec4<u32>(~params.all_bits));
}

// A result as it was rounded: what follows is not merged with the operation that made it.
fn rounded(values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) & vec4<u32>(params.all_bits));
}

// The sign bit is inverted, also that of 0 and of numbers that a device may take as 0.
fn negated(values: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) ^ vec4<u32>(0x80000000u & params.all_bits));
}

// Values where they are NaN, else results.
fn unless_nan(results: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    let are_nan = (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(results, values, are_nan);
}

// Whether numbers are greater than 0 and finite.
fn are_positive(values: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(values) - vec4<u32>(1u) < vec4<u32>(0x7f7fffffu);
}

// Whether numbers are greater than 0, infinity among them.
fn are_above_zero(values: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(values) - vec4<u32>(1u) < vec4<u32>(0x7f800000u);
}

// NaN of NaN and of numbers below 0.
fn nan_if_negative(results: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(values);
    let are_negative = bits > vec4<u32>(0x80000000u);
    return unless_nan(select(results, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), are_negative), values);
}
