// The sums of a channel, from those of its slices in the workspace.
// Parts that a thread adds up before it adds them to its total: short chains of additions round less. With 16 a thread that has up to 256 parts makes at
// most 16 additions in a row, of parts as well as of their sums.
const CHAIN: u32 = 16u;

// sum(dpre) and sum(dpre * xhat) over every `step`-th part of a channel, from part `first` on.
fn sums_of_channel(channel: u32, first: u32, step: u32) -> vec2<f32> {
    let parts = params.batch * params.sum_slices;
    var total = vec2<f32>();
    for (var base = first; base < parts; base += CHAIN * step) {
        var chain = vec2<f32>();
        for (var part = base; part < min(base + CHAIN * step, parts); part += step) {
            chain += sums_read(part_of(part / params.sum_slices, channel, part % params.sum_slices)).xy;
        }
        total += chain;
    }
    return total;
}
