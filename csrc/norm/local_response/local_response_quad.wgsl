// Values of four elements, which a thread takes at a time.
alias Value = vec4<f32>;
alias Bits = vec4<u32>;
const WIDTH: u32 = 4u; // elements of a value

fn bits_of(value: Value) -> Bits {
    return bitcast<Bits>(value);
}

fn powers_of(d: Value) -> Value {
    return vec4<f32>(
        negative_power(d.x, params.beta),
        negative_power(d.y, params.beta),
        negative_power(d.z, params.beta),
        negative_power(d.w, params.beta),
    );
}
