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

var<workgroup> sums: array<u32, WORKGROUP>;

// What the threads before one have together, and what all have.
fn sum_before(index: u32, value: u32) -> vec2<u32> {
    sums[index] = value;
    workgroupBarrier();
    for (var step = 1u; step < WORKGROUP; step = step << 1u) {
        var other = 0u;
        if (index >= step) {
            other = sums[index - step];
        }
        workgroupBarrier();
        sums[index] += other;
        workgroupBarrier();
    }
    let result = vec2<u32>(sums[index] - value, sums[WORKGROUP - 1u]);
    workgroupBarrier();
    return result;
}
