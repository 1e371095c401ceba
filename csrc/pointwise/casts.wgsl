// Casts of f32 to integers, as bits, and to bool. The fraction is cut off, numbers beyond the range become the nearest of it, and NaN 0.

fn cast_of_nan(values: vec4<f32>, results: vec4<u32>) -> vec4<u32> {
    return select(results, vec4<u32>(), (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
}

// `most` is a number of f32; numbers from `beyond` on become `greatest`.
fn cast_between(values: vec4<f32>, least: f32, most: f32, beyond: f32, greatest: i32) -> vec4<u32> {
    let cut = vec4<i32>(clamp(values, vec4<f32>(least), vec4<f32>(most)));
    return cast_of_nan(values, bitcast<vec4<u32>>(select(cut, vec4<i32>(greatest), values >= vec4<f32>(beyond))));
}

fn cast_to_i32(values: vec4<f32>) -> vec4<u32> {
    return cast_between(values, -2147483648.0, 2147483520.0, 2147483648.0, 2147483647);
}

fn cast_to_u32(values: vec4<f32>) -> vec4<u32> {
    let cut = vec4<u32>(clamp(values, vec4<f32>(0.0), vec4<f32>(4294967040.0)));
    return cast_of_nan(values, select(cut, vec4<u32>(0xffffffffu), values >= vec4<f32>(4294967296.0)));
}

fn cast_to_u8(values: vec4<f32>) -> vec4<u32> {
    return cast_between(values, 0.0, 255.0, 255.0, 255);
}

fn cast_to_i8(values: vec4<f32>) -> vec4<u32> {
    return cast_between(values, -128.0, 127.0, 127.0, 127);
}

// Everything but 0 is true, also NaN.
fn cast_to_bool(values: vec4<f32>) -> vec4<u32> {
    return select(vec4<u32>(), vec4<u32>(1u), (bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu)) != vec4<u32>());
}
