// From the sums of the slices: the means of g and g * xhat over a group, and dweight and dbias of a channel.
const BLOCK: u32 = 16u; // parts that a thread adds up before it adds to their sums

// The thread's part of sum(g) and sum(g * xhat) of a group of channels of one sample.
fn thread_sums_of_group(thread: u32, group: u32, parts: u32) -> vec2<f32> {
    var total = vec2<f32>();
    for (var base = thread % THREADS; base < parts; base += BLOCK * THREADS) {
        var block = vec2<f32>();
        for (var part = base; part < min(base + BLOCK * THREADS, parts); part += THREADS) {
            var weight = 1.0;
            if (HAS_weight) {
                weight = weight_of(group % params.groups * params.group_channels + part / params.sum_slices);
            }
            block += weight * sums_read(group * parts + part).xy;
        }
        total += block;
    }
    return total;
}

// The thread's part of sum(dpre) and sum(dpre * xhat) of a channel.
fn thread_sums_of_channel(thread: u32, channel: u32, parts: u32) -> vec2<f32> {
    var total = vec2<f32>();
    for (var base = thread % THREADS; base < parts; base += BLOCK * THREADS) {
        var block = vec2<f32>();
        for (var part = base; part < min(base + BLOCK * THREADS, parts); part += THREADS) {
            block += sums_read(part_of(part / params.sum_slices, channel, part % params.sum_slices)).xy;
        }
        total += block;
    }
    return total;
}

// The means over a group, from its sums: of g where they are of dpre.
fn means_from(sums: vec2<f32>, group: u32) -> vec2<f32> {
    let means = sums * params.reciprocal_count;
    if (GROUPS_ARE_CHANNELS && HAS_weight) {
        return means * weight_of(group);
    }
    return means;
}

fn put_parameters(channel: u32, sums: vec2<f32>) {
    dweight_put(channel, sums.y);
    dbias_put(channel, sums.x);
}
