// atan(q) for q from 0 to 1: from tan(pi / 8) on by the angle to pi / 4.
fn arctangent_of_quotient(q: vec4<f32>) -> vec4<f32> {
    let are_large = q > vec4<f32>(0.414213574);
    let t = select(q, (q - 1.0) / (q + 1.0), are_large);
    let z = t * t;
    var p = 0.0805786699 * z - 0.138791487;
    p = p * z + 0.199778661;
    p = p * z - 0.333329529;
    let angle = t + (t * z) * p;
    return select(angle, 0.785398185 + angle, are_large);
}
