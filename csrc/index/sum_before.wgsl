// Sums of the threads of a workgroup, in their order.
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
