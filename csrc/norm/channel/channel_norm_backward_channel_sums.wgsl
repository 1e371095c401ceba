// The sums of a channel, from those of its slices in the workspace.
const BLOCK: u32 = 16u; // parts that a thread adds up before it adds them to its total: short chains of additions round less

// sum(dpre) and sum(dpre * xhat) over every `step`-th part of a channel, from part `first` on.
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
