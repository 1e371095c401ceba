// What one thread does with the statistics of a group: it saves them, and in BatchNorm updates the running ones of the channel.
fn save_statistics(group: u32, statistics: Statistics) {
    mean_put(group, statistics.shift + statistics.correction);
    rstd_put(group, statistics.rstd);
    update_running(group, statistics);
}

fn update_running(channel: u32, statistics: Statistics) {
    if (!HAS_running_mean) {
        return;
    }
    var momentum = params.momentum;
    if (HAS_num_batches) {
        // The mean over all batches: m is 1 over their number, which has 64 bits.
        let count = num_batches_count();
        let next = vec2<u32>(count.x + 1u, count.y + select(0u, 1u, count.x == 0xffffffffu));
        momentum = 1.0 / (f32(next.y) * 4294967296.0 + f32(next.x));
        momentum = select(momentum, bitcast<f32>(0x80000000u), next.x == 1u && next.y == 0u);
    }
    let mean = statistics.shift + statistics.correction;
    let variance = statistics.variance * params.unbiased;
    running_mean_put(channel, running_after(momentum, running_mean_of(channel), mean));
    running_var_put(channel, running_after(momentum, running_var_of(channel), variance));
}
