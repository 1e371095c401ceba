// Below 0 the logarithm of e^(x^2 / 2) times the integral, less x^2 / 2, which have the same sign; above, that of 1 less the tail.
fn f_log_ndtr(x: vec4<f32>) -> vec4<f32> {
    // Beyond 1e20 the square is infinite.
    let size = min(f_abs(x), vec4<f32>(1e20));
    let half = 0.5 * scaled_tail(size * 0.707106769);
    let below = f_log(half) - (0.5 * size) * size;
    let tail = times_power(half, power_of_square(min(size, vec4<f32>(20.0)), 0.5));
    let value = select(f_log1p(-tail), below, bitcast<vec4<u32>>(x) > vec4<u32>(0x80000000u));
    return unless_nan(select(value, literal(0xff800000u), bitcast<vec4<u32>>(x) == vec4<u32>(0xff800000u)), x);
}
