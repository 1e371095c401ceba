// What the kernels of a stable sort share, of pairs of a 32-bit key and a 32-bit value, digit by digit from the lowest. A tile is STEPS neighbouring items of each
// thread of a workgroup.
const DIGITS: u32 = 16u; // of four bits

struct Params {
    items: u32,
    groups_x: u32,
    tiles: u32,
    shift: u32, // of the digit
}

@group(0) @binding(0) var<uniform> params: Params;

fn digit_of(key: u32) -> u32 {
    return (key >> params.shift) & (DIGITS - 1u);
}
