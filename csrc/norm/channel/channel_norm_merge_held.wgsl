// Statistics of a group from the moments of its few parts, by Chan's formula in a fixed order, about the mean of the parts' means. Every team
// that needs the statistics merges the parts itself; a thread holds up to HELD_PARTS of them in registers.

// The statistics of a group, in all threads of its team. Every thread of the workgroup calls it.
fn merge_moments(at: Invocation, thread: u32, group: u32) -> Statistics {
    var held: array<vec4<f32>, HELD_PARTS>;
    for (var k = 0u; k < HELD_PARTS; k++) {
        let part = member_index(at) + k * member_count(at);
        if (part < params.group_parts) {
            held[k] = moments_read(group * params.group_parts + part);
        }
    }
    var means = 0.0;
    for (var k = 0u; k < HELD_PARTS; k++) {
        means += held[k].w * params.reciprocal_count * held[k].x;
    }
    let shift = members_sum(at, means, 0u);
    var total = vec2<f32>();
    for (var k = 0u; k < HELD_PARTS; k++) {
        // 0 for parts that a thread does not have: the square of the shift may be infinite, which a weight of 0 makes NaN.
        let d = select(0.0, (held[k].x - shift) + held[k].y, held[k].w > 0.0);
        let variance = without_sign(held[k].z - held[k].y * held[k].y);
        total += held[k].w * params.reciprocal_count * vec2<f32>(d, variance + d * d);
    }
    let merged = members_sums(at, total, 1u);
    return finish_statistics(shift, merged.x, merged.y);
}
