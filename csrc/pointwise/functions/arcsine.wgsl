// asin(s) for s up to 1/2, of which z is the square.
fn small_arcsine(s: vec4<f32>, z: vec4<f32>) -> vec4<f32> {
    var p = 0.0422185473 * z + 0.0241476111;
    p = p * z + 0.045477096;
    p = p * z + 0.0749524161;
    p = p * z + 0.166667536;
    return s + (s * z) * p;
}

// NaN of numbers beyond 1 and -1, and of NaN.
fn nan_beyond_one(results: vec4<f32>, values: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(values);
    return select(results, bitcast<vec4<f32>>(bits | vec4<u32>(0x7fc00000u)), (bits & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x3f800000u));
}
