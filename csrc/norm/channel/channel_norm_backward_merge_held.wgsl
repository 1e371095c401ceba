// The dispatch that writes dx, where groups have few parts: every team that needs the means of a group adds up its parts, and workgroups past
// those of the slices write the parameters.

// sum(g) and sum(g * xhat) of a group, in all threads of its team; of dpre where the group is a channel. A thread holds up to HELD_PARTS parts
// in registers.
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

// The parameters, by the workgroups past those of the slices, of which `workgroup` is the number. If a channel has few parts, one thread
// adds them up (PARTS_ARE_FEW); otherwise its members do, and a workgroup takes CHANNELS channels.
fn put_remaining(at: Invocation, thread: u32, workgroup: u32) {
    if (PARTS_ARE_FEW) {
        let channel = workgroup * WORKGROUP + thread;
        if (WANTS_PARAMETERS && channel < params.channels) {
            put_parameters(channel, sums_of_channel(channel, 0u, 1u));
        }
        return;
    }
    for (var first = 0u; first < CHANNELS; first += WORKGROUP / member_count(at)) {
        let number = workgroup * CHANNELS + first + members_number(at);
        let channel = min(number, params.channels - 1u);
        let sums = members_sums(at, sums_of_channel(channel, member_index(at), member_count(at)), 0u);
        if (WANTS_PARAMETERS && number == channel && member_index(at) == 0u) {
            put_parameters(channel, sums);
        }
    }
}
