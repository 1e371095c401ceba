// Keys of f32 in the order of the numbers, 0 and -0 alike, or in the opposite order; those of NaN are above all.
fn keys(values: Values) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(values);
    let magnitudes = bits & vec4<u32>(0x7fffffffu);
    let rising = select(bits | vec4<u32>(0x80000000u), ~bits, (bits > magnitudes) & (magnitudes != vec4<u32>()));
    let keys = select(rising, ~rising, vec4<bool>(COMBINE != GREATEST));
    return select(keys, vec4<u32>(0xffffffffu), magnitudes > vec4<u32>(0x7f800000u));
}
