// A root of (q + k)^-s, which is a number where the power times q + k is, with what the sum q + k loses.
fn zeta_root(s: vec4<f32>, q: vec4<f32>, k: f32) -> vec4<f32> {
    let a = rounded(q + k);
    let lost = select(q - rounded(a - k), k - rounded(a - q), q > vec4<f32>(k));
    let half = 0.5 * s;
    let root = f_pow(a, negated(half));
    let is_own = (magnitudes(root) == vec4<u32>()) | (magnitudes(root) == vec4<u32>(0x7f800000u));
    return select(root - root * (half * (lost / a)), root, is_own);
}

// Hurwitz's zeta function: the first terms until those that follow are smooth, and the rest by Euler and Maclaurin's formula, unless it does not count.
fn f_zeta(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    // A larger one makes the same of every number but 1.
    let s = clamp(x, vec4<f32>(1.0), vec4<f32>(1e18));
    let less = max(s - 1.0, vec4<f32>(1e-8));
    var total = vec4<f32>();
    var is_done = vec4<bool>(false);
    for (var k = 0.0; k < 5.5; k += 1.0) {
        let root = zeta_root(s, y, k);
        total = select(total + root * root, total, is_done);
        // What follows is at most a term and the integral.
        let most = (root * (1.0 + (y + k) / less)) * root;
        is_done = is_done | !(most > total * 1e-8);
    }
    let a = y + 6.0;
    let root = zeta_root(s, y, 6.0);
    let power = root * root;
    var series = vec4<f32>(1.0);
    var quotient = array<f32, 3>(60.0, 42.0, 40.0);
    for (var k = 3; k > 0; k--) {
        let more = s + 2.0 * f32(k);
        series = 1.0 - ((more - 1.0) / a) * (more / a) * series / quotient[k - 1];
    }
    let rest = ((a * root) / less) * root + power * (0.5 + (s / a) * 0.0833333358 * series);
    let value = select(total + rest, total, is_done);
    let is_one = bitcast<vec4<u32>>(x) == vec4<u32>(0x3f800000u);
    let is_below = bitcast<vec4<u32>>(y) > vec4<u32>(0x80000000u);
    let is_whole = bitcast<vec4<u32>>(f_floor(y)) == bitcast<vec4<u32>>(y);
    let is_pole = is_one | (magnitudes(y) == vec4<u32>()) | (is_below & is_whole);
    let is_undefined = are_less(x, vec4<f32>(1.0)) | (is_below & !is_pole);
    let bounded = select(value, vec4<f32>(), bitcast<vec4<u32>>(y) == vec4<u32>(0x7f800000u));
    let inside = select(bounded, literal(0x7f800000u), is_pole);
    return unless_nan(unless_nan(select(inside, literal(0x7fc00000u), is_undefined), y), x);
}
