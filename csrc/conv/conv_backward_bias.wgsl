// The gradient of the bias: sums of dy over samples and positions for each channel. Each workgroup leaves the unrounded sums of a part of the samples
// and positions in partials [parts][quads of channels].
//
// A workgroup has COLUMN_QUADS neighbouring quads of channels. A thread has one quad and every LANES-th item of it: an item is one position if channels are
// contiguous, and four positions if those are (ALONG). The thread adds up chains of CHAIN items, and the chains in one more; column_sums.wgsl adds up
// the lanes. Samples and positions are one index of four digits, the slowest first.
struct Params {
    channels: u32,
    items: u32,
    rounds: u32, // items of a thread
    groups: u32, // workgroups
    groups_x: u32,
    column_groups: u32, // workgroups side by side, which share items
    channel_stride: u32, // of dy
    digits: vec4<u32>, // extents of samples and positions
    strides: vec4<u32>, // strides of these digits in dy
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMN_QUADS;
// Items that a thread adds up one after another: short chains of additions round less. With 16 a thread that has up to 256 items makes at most 16
// additions in a row, of items as well as of chains.
const CHAIN: u32 = 16u;

// For each of four channels four values, which are still to be added up.
struct Sums {
    x: vec4<f32>,
    y: vec4<f32>,
    z: vec4<f32>,
    w: vec4<f32>,
}

fn plus(a: Sums, b: Sums) -> Sums {
    return Sums(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

fn of_channels(sums: Sums) -> vec4<f32> {
    let x = vec4<f32>(sums.x.x, sums.y.x, sums.z.x, sums.w.x);
    let y = vec4<f32>(sums.x.y, sums.y.y, sums.z.y, sums.w.y);
    let z = vec4<f32>(sums.x.z, sums.y.z, sums.z.z, sums.w.z);
    let w = vec4<f32>(sums.x.w, sums.y.w, sums.z.w, sums.w.w);
    return (x + y) + (z + w);
}

// Four positions of one channel, of which `count` exist; 0 for others, and for channels past the last.
fn positions_of(at: u32, channel: u32, count: u32) -> vec4<f32> {
    if (channel >= params.channels) {
        return vec4<f32>();
    }
    let values = dy_line(at + channel * params.channel_stride, params.strides.w, count);
    return select(vec4<f32>(), values, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
}

// The offset of an index, whose slower digits together are `slower`.
fn place_of(slower: u32, fastest: u32) -> u32 {
    // There are seldom more than two digits, and the divisions would take as long as the load.
    if (slower < params.digits.z) {
        return slower * params.strides.z + fastest * params.strides.w;
    }
    let y = slower / params.digits.z;
    let x = y / params.digits.y;
    let steps = vec4<u32>(x, y % params.digits.y, slower % params.digits.z, fastest) * params.strides;
    return (steps.x + steps.y) + (steps.z + steps.w);
}

fn item_of(item: u32, channel: u32) -> Sums {
    if (ALONG) {
        let quads = (params.digits.w + 3u) / 4u;
        let first = item % quads * 4u;
        let count = min(params.digits.w - first, 4u);
        let at = place_of(item / quads, first);
        return Sums(
            positions_of(at, channel, count),
            positions_of(at, channel + 1u, count),
            positions_of(at, channel + 2u, count),
            positions_of(at, channel + 3u, count),
        );
    }
    let count = min(params.channels - channel, 4u);
    let at = place_of(item / params.digits.w, item % params.digits.w);
    let values = dy_line(at + channel * params.channel_stride, params.channel_stride, count);
    let zeros = vec3<f32>();
    return Sums(vec4<f32>(values.x, zeros), vec4<f32>(values.y, zeros), vec4<f32>(values.z, zeros), vec4<f32>(values.w, zeros));
}

@compute @workgroup_size(WORKGROUP)
fn conv_backward_bias(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    // 1. The sums of this thread.
    let part = workgroup / params.column_groups;
    let quad = workgroup % params.column_groups * COLUMN_QUADS + thread % COLUMN_QUADS;
    let channel = quad * 4u;
    var sum = Sums();
    if (channel < params.channels) {
        var item = part * params.rounds * LANES + thread / COLUMN_QUADS;
        for (var first = 0u; first < params.rounds && item < params.items; first += CHAIN) {
            var chain = Sums();
            let last = min(first + CHAIN, params.rounds);
            for (var round = first; round < last && item < params.items; round++) {
                chain = plus(chain, item_of(item, channel));
                item += LANES;
            }
            sum = plus(sum, chain);
        }
    }
    // 2. The sums over the lanes.
    let total = sum_over_lanes(thread, of_channels(sum));
    if (thread < COLUMN_QUADS && channel < params.channels) {
        partials_write(part * ((params.channels + 3u) / 4u) + quad, total);
    }
}
