// Values of single elements.
alias Value = f32;
alias Bits = u32;
const WIDTH: u32 = 1u; // elements of a value

fn bits_of(value: Value) -> Bits {
    return bitcast<Bits>(value);
}

fn powers_of(d: Value) -> Value {
    return negative_power(d, params.beta);
}
