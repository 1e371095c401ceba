// The angle of the point with the ordinate x and the abscissa y, from that in the first eighth of a turn.
fn f_atan2(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let rise = abs(x);
    let run = abs(y);
    let is_steep = rise > run;
    let more = select(run, rise, is_steep);
    let less = select(rise, run, is_steep);
    // Quotients of zeros and of infinities.
    let is_zero = more == vec4<f32>();
    let is_infinite = bitcast<vec4<u32>>(less) == vec4<u32>(0x7f800000u);
    // Of subnormal numbers that are no zeros here the quotient has the factor that both have.
    let quotient_of_sizes = quotient(hidden(less), select(more, vec4<f32>(1.0), is_zero));
    let angle = arctangent_of_quotient(select(select(quotient_of_sizes, vec4<f32>(1.0), is_infinite), vec4<f32>(), is_zero));
    let steep = select(angle, 1.57079637 - angle, is_steep);
    let magnitude = select(steep, 3.14159274 - steep, bitcast<vec4<u32>>(y) >= vec4<u32>(0x80000000u));
    let sign = bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u);
    return unless_nan(unless_nan(bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign), x), y);
}
