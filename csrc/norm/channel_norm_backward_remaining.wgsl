// The workgroups past those of the slices take the parameters, a team each channel.
fn put_remaining(at: Invocation, thread: u32, group: u32) {
    let team = group * TEAMS + team_of(thread);
    let channel = min(team, params.channels - 1u);
    let sums = row_sums(at, thread_sums_of_channel(thread, channel, params.batch * params.sum_slices), 0u);
    if (WANTS_PARAMETERS && team == channel && thread % THREADS == 0u) {
        put_parameters(channel, sums);
    }
}
