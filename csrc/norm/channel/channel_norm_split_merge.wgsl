// Form split_merge, second dispatch: the statistics of each group from the moments of its parts in the workspace, by Chan's formula in a fixed order,
// about the mean of the parts' means.
// Parts that a thread adds up before it adds them to its total: short chains of additions round less. With 16 a thread that has up to 256 parts makes at
// most 16 additions in a row, of parts as well as of their sums.
const CHAIN: u32 = 16u;

// Elements of a part over those of its group.
fn share_of(moments: vec4<f32>) -> f32 {
    return moments.w * params.reciprocal_count;
}

// The statistics of a group, in all threads of its team. Every thread of the workgroup calls it.
fn merge_moments(at: Invocation, thread: u32, group: u32) -> Statistics {
    let first = group * params.group_parts;
    var means = 0.0;
    for (var base = thread % THREADS; base < params.group_parts; base += CHAIN * THREADS) {
        var sum = 0.0;
        for (var part = base; part < min(base + CHAIN * THREADS, params.group_parts); part += THREADS) {
            let moments = moments_read(first + part);
            sum += share_of(moments) * moments.x;
        }
        means += sum;
    }
    let shift = row_sum(at, means, 0u);
    var total = vec2<f32>();
    for (var base = thread % THREADS; base < params.group_parts; base += CHAIN * THREADS) {
        var sum = vec2<f32>();
        for (var part = base; part < min(base + CHAIN * THREADS, params.group_parts); part += THREADS) {
            let moments = moments_read(first + part);
            let d = (moments.x - shift) + moments.y;
            let variance = without_sign(moments.z - moments.y * moments.y);
            sum += share_of(moments) * vec2<f32>(d, variance + d * d);
        }
        total += sum;
    }
    let merged = row_sums(at, total, 1u);
    return finish_statistics(shift, merged.x, merged.y);
}

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
