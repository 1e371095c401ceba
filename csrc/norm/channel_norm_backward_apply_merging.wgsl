// Where groups have few parts, every team adds them up itself, and the workgroups past those of the slices take the parameters.
fn segment_means(at: Invocation, thread: u32, slice: Slice) -> vec4<f32> {
    let group = group_of(slice.batch, slice.channel);
    var total: vec2<f32>;
    if (GROUPS_ARE_CHANNELS) {
        total = thread_sums_of_channel(thread, group, params.group_parts);
    } else {
        total = thread_sums_of_group(thread, group, params.group_parts);
    }
    let sums = row_sums(at, total, 0u);
    return vec4<f32>(means_from(sums, group), statistics_of_group(group));
}

fn put_remaining(at: Invocation, thread: u32, group: u32) {
    let team = group * TEAMS + team_of(thread);
    let channel = min(team, params.channels - 1u);
    let sums = row_sums(at, thread_sums_of_channel(thread, channel, params.batch * params.sum_slices), 0u);
    if (WANTS_PARAMETERS && team == channel && thread % THREADS == 0u) {
        put_parameters(channel, sums);
    }
}
