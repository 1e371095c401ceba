// Form split_merge, second dispatch: the means of each group, with its statistics beside them, and dweight and dbias of each channel. Where groups are
// channels a team does both; otherwise the first teams take groups and the others channels.

// sum(g) and sum(g * xhat) over a thread's share of the parts of a group, which is some channels of one sample, in chains of CHAIN
// (channel_norm_backward_channel_sums.wgsl).
fn thread_sums_of_group(thread: u32, group: u32, parts: u32) -> vec2<f32> {
    var total = vec2<f32>();
    for (var base = thread % THREADS; base < parts; base += CHAIN * THREADS) {
        var chain = vec2<f32>();
        for (var part = base; part < min(base + CHAIN * THREADS, parts); part += THREADS) {
            var weight = 1.0;
            if (HAS_weight) {
                weight = weight_of(group % params.groups * params.group_channels + part / params.sum_slices);
            }
            chain += weight * sums_read(group * parts + part).xy;
        }
        total += chain;
    }
    return total;
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_split_merge(at: Invocation) {
    let thread = thread_index(at);
    let team = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread);
    let groups = select(0u, params.group_count, WANTS_MEANS);
    let is_group = team < groups;
    let first_channel = select(groups, 0u, GROUPS_ARE_CHANNELS);
    let channel = min(team - min(team, first_channel), params.channels - 1u);
    let is_channel = WANTS_PARAMETERS && team >= first_channel && team - first_channel < params.channels;
    var total = vec2<f32>();
    if (is_group && !GROUPS_ARE_CHANNELS) {
        total = thread_sums_of_group(thread, team, params.group_parts);
    } else if (is_channel || is_group) {
        total = sums_of_channel(channel, thread % THREADS, THREADS);
    }
    let sums = row_sums(at, total, 0u);
    if (thread % THREADS == 0u) {
        if (is_channel) {
            put_parameters(channel, sums);
        }
        if (is_group) {
            if (USES_RUNNING) {
                means_write(team, vec4<f32>(0.0, 0.0, statistics_of(0u, team)));
            } else {
                means_write(team, vec4<f32>(means_from(sums, team), statistics_of_group(team)));
            }
        }
    }
}
