// InstanceNorm, third dispatch: running statistics, updated with the means over samples of a channel's mean and of its unbiased variance.
// Samples that a thread adds up before it adds them to its total: short chains of additions round less. With 16 a thread that has up to 256 samples makes
// at most 16 additions in a row, of samples as well as of their sums.
const CHAIN: u32 = 16u;

@compute @workgroup_size(WORKGROUP)
fn channel_norm_running_over_samples(at: Invocation) {
    let thread = thread_index(at);
    let team = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread);
    let channel = min(team, params.channels - 1u);
    var total = vec2<f32>();
    for (var base = thread % THREADS; base < params.batch; base += CHAIN * THREADS) {
        var sum = vec2<f32>();
        for (var batch = base; batch < min(base + CHAIN * THREADS, params.batch); batch += THREADS) {
            let statistics = statistics_read(group_of(batch, channel));
            sum += vec2<f32>(statistics.x + statistics.y, statistics.w);
        }
        total += sum;
    }
    let sums = row_sums(at, total, 0u) / f32(params.batch);
    if (team == channel && thread % THREADS == 0u) {
        let momentum = params.momentum;
        running_mean_put(channel, running_after(momentum, running_mean_of(channel), sums.x));
        running_var_put(channel, running_after(momentum, running_var_of(channel), sums.y * params.unbiased));
    }
}
