// Products with factors and of numbers that may be subnormal, which a device may take as 0: these are made from their bits, times 2^64.

fn are_subnormal(values: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(values) & vec4<u32>(0x7f800000u)) == vec4<u32>();
}

// Numbers, of which subnormal ones and 0 are multiplied by 2^64.
fn lifted(values: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(values);
    let magnitudes = vec4<f32>(bits & vec4<u32>(0x007fffffu)) * 0x1p-85f;
    let lifted = select(magnitudes, -magnitudes, bits >= vec4<u32>(0x80000000u));
    return select(values, lifted, are_subnormal(values));
}

// What takes the factor of `lifted` away.
fn lifted_by(values: vec4<f32>) -> vec4<f32> {
    return select(vec4<f32>(1.0), vec4<f32>(0x1p-64f), are_subnormal(values));
}

// A factor that may be subnormal times numbers that count as 0 where they are.
fn times(factor: f32, values: vec4<f32>) -> vec4<f32> {
    return lifted(vec4<f32>(factor)) * values * lifted_by(vec4<f32>(factor));
}

// Beta times what is there, each of which may be subnormal.
fn times_before(beta: f32, before: vec4<f32>) -> vec4<f32> {
    return times(beta, lifted(before)) * lifted_by(before);
}

fn is_nonzero(factor: f32) -> bool {
    return (bitcast<u32>(factor) & 0x7fffffffu) != 0u;
}
