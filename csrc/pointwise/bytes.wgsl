// Elements of one byte: four in a word, the first in the lowest byte. `Values` are those of the type in which the program computes.

fn bytes_bool(word: u32) -> Values {
    return Values(select(vec4<u32>(), vec4<u32>(1u), (vec4<u32>(word) & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u)) != vec4<u32>()));
}

fn bytes_u8(word: u32) -> Values {
    return Values((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}

fn bytes_i8(word: u32) -> Values {
    return Values(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// The low bytes.
fn packed_bytes(bits: vec4<u32>) -> u32 {
    let bytes = (bits & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}
