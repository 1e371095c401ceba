// Channels of all samples whose segments no chunk divides, in the registers of a workgroup: `columns` chunks beside each other are those of
// the fewest whole channels of a sample, lanes of threads are samples below each other, and a thread takes every lane's number of samples.
var<workgroup> gapless_sums: array<vec4<f32>, WORKGROUP>;
// Sums of the tile's channels, then what all threads take of them.
var<workgroup> channel_sums: array<vec4<f32>, ELEMENTS>;

struct Tile {
    is_tile: bool, // rather than a workgroup past the last
    first_channel: u32,
    channels: u32,
    lane: u32,
    lanes: u32,
    end: u32, // of the samples; 0 for a thread that no lane is made of
    span: Span, // of the thread's chunks, in the tile
    next: u32, // the number in the tile of the channel after the span's
    within: u32, // where the thread's chunk starts in a sample
}

fn tile_of(group: u32, thread: u32) -> Tile {
    let channels = params.columns * ELEMENTS / params.spatial;
    let tile = min(group, params.channels / channels - 1u);
    let lanes = WORKGROUP / params.columns;
    let lane = thread / params.columns;
    let first = (thread - lane * params.columns) * ELEMENTS;
    let span = span_at(first);
    return Tile(
        tile == group,
        tile * channels,
        channels,
        lane,
        lanes,
        select(0u, params.batch, lane < lanes && tile == group),
        span,
        min(span.channel + 1u, channels - 1u),
        tile * channels * params.spatial + first,
    );
}

// Sums over the samples and chunks of each channel, of pairs in a thread's own channel and in the next: that thread of the first ones which
// has a channel's number has its sums.
fn sum_channels(thread: u32, tile: Tile, sums: vec4<f32>) -> vec2<f32> {
    let columns = params.columns;
    gapless_sums[thread] = sums;
    workgroupBarrier();
    for (var rows = tile.lanes; rows > 1u; rows = (rows + 1u) / 2u) {
        let half = (rows + 1u) / 2u;
        if (tile.lane + half < rows) {
            gapless_sums[thread] += gapless_sums[thread + half * columns];
        }
        workgroupBarrier();
    }
    var sum = vec2<f32>();
    if (thread < tile.channels) {
        let first = thread * params.spatial;
        for (var column = first / ELEMENTS; column * ELEMENTS < first + params.spatial; column++) {
            let pairs = gapless_sums[column];
            sum += select(pairs.zw, pairs.xy, column * ELEMENTS >= first);
        }
    }
    return sum;
}
