// 2^(y log2(|x|)), the logarithm and the product in two parts; the sign, and what has no digits, as IEEE 754 has it.
fn f_pow(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    let size = bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu));
    let parts = fraction_of(size);
    let f = parts.f;
    // f - f^2 / 2, and what is left of log(1 + f): with the square in two parts.
    let square = exact_product(f, f);
    let most = exact_sum(f, -0.5 * square.high);
    let natural = exact_sum(most.high, (most.low - 0.5 * square.low) + logarithm_tail(f));
    let scaled = exact_product(natural.high, vec4<f32>(1.44269502));
    let whole = exact_sum(parts.n, scaled.high);
    let low = whole.low + (scaled.low + (natural.high * 1.92596303e-8 + natural.low * 1.44269502));
    // A larger y makes the same of any number beside 1.
    let factor = clamp(y, vec4<f32>(-0x1p40f), vec4<f32>(0x1p40f));
    let product = exact_product(whole.high, factor);
    let exponent = clamp(product.high, vec4<f32>(-200.0), vec4<f32>(200.0));
    let rest = select(vec4<f32>(), product.low + low * factor, exponent == product.high);
    let n = floor(exponent + 0.5);
    let power = times_power(vec4<f32>(1.0), scaled_power(exp2((exponent - n) + rest), n));
    let bits_of_y = bitcast<vec4<u32>>(y);
    let magnitude_of_y = bits_of_y & vec4<u32>(0x7fffffffu);
    // 0 and infinity become 0 or infinity.
    let is_zero = bitcast<vec4<u32>>(size) == vec4<u32>();
    let is_infinite = bitcast<vec4<u32>>(size) == vec4<u32>(0x7f800000u);
    let is_below = bits_of_y >= vec4<u32>(0x80000000u);
    let limit = select(vec4<f32>(), literal(0x7f800000u), is_zero == is_below);
    let magnitude = select(power, limit, is_zero | is_infinite);
    let is_negative = bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u);
    let is_whole = floor(y) == y;
    let half = 0.5 * y;
    let is_odd = is_whole & (floor(half) != half) & (magnitude_of_y < vec4<u32>(0x7f800000u));
    let sign = select(vec4<u32>(), vec4<u32>(0x80000000u), is_negative & is_odd);
    let signed = bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | sign);
    let is_defined = is_whole | !is_negative | is_zero | is_infinite | (magnitude_of_y == vec4<u32>(0x7f800000u));
    let value = unless_nan(unless_nan(select(literal(0x7fc00000u), signed, is_defined), x), y);
    let is_one = (bitcast<vec4<u32>>(x) == vec4<u32>(0x3f800000u)) | (magnitude_of_y == vec4<u32>());
    return select(value, vec4<f32>(1.0), is_one);
}
