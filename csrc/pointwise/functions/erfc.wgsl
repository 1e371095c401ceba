// The complementary error function, from e^(z^2) erfc(z): s times a polynomial of s = 1 / (1 + 0.3 z) up to 10.6.
fn scaled_complement(z: vec4<f32>) -> vec4<f32> {
    let s = 1.0 / (1.0 + 0.3 * z);
    var p = 0.0050033615 * s - 0.157530904;
    p = p * s + 0.553697407;
    p = p * s - 0.606672704;
    p = p * s + 0.62967068;
    p = p * s - 0.140815765;
    p = p * s + 0.231776312;
    p = p * s + 0.144501328;
    p = p * s + 0.171209678;
    p = p * s + 0.169160575;
    return p * s;
}

// exp(-scale size^2) for size up to 20 and a scale that is a power of two: the square of the upper half of its digits is exact.
fn power_of_square(size: vec4<f32>, scale: f32) -> Power {
    let head = bitcast<vec4<f32>>(bitcast<vec4<u32>>(size) & vec4<u32>(0xfffff000u));
    return power_of_sum(-scale * (head * head), -scale * ((size - head) * (size + head)));
}

// Of numbers that are not negative.
fn complement(size: vec4<f32>) -> vec4<f32> {
    let bounded = min(size, vec4<f32>(20.0));
    return times_power(scaled_complement(bounded), power_of_square(bounded, 1.0));
}

fn f_erfc(x: vec4<f32>) -> vec4<f32> {
    let tail = complement(abs(x));
    return unless_nan(select(tail, 2.0 - tail, x < vec4<f32>()), x);
}
