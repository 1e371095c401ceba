// From the sums of the slices, where a group has few: the means of g and g * xhat over the group. Each thread holds HELD_PARTS.
fn held_sums(at: Invocation, group: u32) -> vec2<f32> {
    var held: array<vec2<f32>, HELD_PARTS>;
    var weights: array<f32, HELD_PARTS>;
    for (var k = 0u; k < HELD_PARTS; k++) {
        let part = member_index(at) + k * member_count(at);
        if (part < params.group_parts) {
            held[k] = sums_read(group * params.group_parts + part).xy;
            weights[k] = 1.0;
            if (HAS_weight && !GROUPS_ARE_CHANNELS) {
                weights[k] = weight_of(group % params.groups * params.group_channels + part / params.sum_slices);
            }
        }
    }
    var total = vec2<f32>();
    for (var k = 0u; k < HELD_PARTS; k++) {
        total += weights[k] * held[k];
    }
    return members_sums(at, total, 0u);
}
