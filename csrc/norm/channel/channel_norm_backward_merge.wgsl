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

// The sums of every `step`th part of sum(dpre) and sum(dpre * xhat) of a channel.
fn sums_of_channel(channel: u32, first: u32, step: u32) -> vec2<f32> {
    let parts = params.batch * params.sum_slices;
    var total = vec2<f32>();
    for (var base = first; base < parts; base += BLOCK * step) {
        var block = vec2<f32>();
        for (var part = base; part < min(base + BLOCK * step, parts); part += step) {
            block += sums_read(part_of(part / params.sum_slices, channel, part % params.sum_slices)).xy;
        }
        total += block;
    }
    return total;
}
