// Keys of integers in their order, or in the opposite one. The sign bit of signed ones is inverted, which is the identity of the greatest.
fn keys(values: Values) -> vec4<u32> {
    let rising = bitcast<vec4<u32>>(values) ^ vec4<u32>(IDENTITY);
    return select(rising, ~rising, vec4<bool>(COMBINE != GREATEST));
}
