// x times a polynomial of w = -log(1 - x^2), or where that is 5 or more of its root (M. Giles, "Approximating the erfinv function", 2010).
fn f_erfinv(x: vec4<f32>) -> vec4<f32> {
    let size = f_abs(x);
    let bounded = min(size, vec4<f32>(0.99999994));
    let w = -f_log((1.0 - bounded) * (1.0 + bounded));
    let a = w - 2.5;
    var near = vec4<f32>(2.81022636e-8);
    near = near * a + 3.43273939e-7;
    near = near * a - 3.5233877e-6;
    near = near * a - 4.39150654e-6;
    near = near * a + 0.00021858087;
    near = near * a - 0.00125372503;
    near = near * a - 0.00417768164;
    near = near * a + 0.246640727;
    near = near * a + 1.50140941;
    let b = sqrt(w) - 3.0;
    var far = vec4<f32>(-0.000200214257);
    far = far * b + 0.000100950558;
    far = far * b + 0.00134934322;
    far = far * b - 0.00367342844;
    far = far * b + 0.00573950773;
    far = far * b - 0.0076224613;
    far = far * b + 0.00943887047;
    far = far * b + 1.00167406;
    far = far * b + 2.83297682;
    let value = x * select(near, far, w >= vec4<f32>(5.0));
    let at_one = select(value, with_signs(literal(0x7f800000u), x), magnitudes(x) == vec4<u32>(0x3f800000u));
    return unless_nan(select(at_one, literal(0x7fc00000u), magnitudes(x) > vec4<u32>(0x3f800000u)), x);
}
