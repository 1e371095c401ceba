// Groups whose moments lie in the workspace, second: their statistics.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_split_merge(at: Invocation) {
    let thread = thread_index(at);
    let team = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread);
    let group = min(team, params.group_count - 1u);
    let statistics = merge_moments(at, thread, group);
    if (team == group && thread % THREADS == 0u) {
        let shift = statistics.shift;
        statistics_write(group, vec4<f32>(shift, statistics.correction, statistics.rstd, statistics.variance));
        save_statistics(group, statistics);
    }
}
