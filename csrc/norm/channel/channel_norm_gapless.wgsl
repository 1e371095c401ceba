// Contiguous samples whose segments are no whole chunks: segments follow each other without a gap, so that a chunk spans one channel or two
// neighbouring ones. First where a chunk lies, then tiles of whole channels of all samples.
struct Span {
    channel: u32,
    left: u32, // elements from the chunk's first to the channel's end; if they are fewer than ELEMENTS, the rest is the next channel's
}

// Where the chunk lies that begins at element `within` of its sample.
fn span_at(within: u32) -> Span {
    let channel = within / params.spatial;
    return Span(channel, (channel + 1u) * params.spatial - within);
}

// Which elements of a quad belong to the next channel.
fn is_next(span: Span, part: u32) -> vec4<bool> {
    return vec4<u32>(0u, 1u, 2u, 3u) + 4u * part >= vec4<u32>(span.left);
}

// A tile is the fewest whole channels that are whole chunks together: params.columns chunks of each sample. A workgroup holds it in registers:
// threads side by side take the chunks of a sample, and a lane of threads takes every lanes-th sample.
var<workgroup> gapless_sums: array<vec4<f32>, WORKGROUP>;
// Sums of the tile's channels, then their statistics or means, which every thread reads.
var<workgroup> channel_sums: array<vec4<f32>, ELEMENTS>;

struct Tile {
    is_tile: bool, // false for a workgroup past the last tile
    first_channel: u32,
    channels: u32,
    lane: u32,
    lanes: u32,
    end: u32, // number of samples; 0 for a thread that is in no lane or tile
    span: Span, // of the thread's chunks; its channel counts from the tile's first
    next: u32, // the channel after that of the span, in the tile
    within: u32, // first element of the thread's chunk in its sample
}

fn tile_of(workgroup: u32, thread: u32) -> Tile {
    let channels = params.columns * ELEMENTS / params.spatial;
    let tile = min(workgroup, params.channels / channels - 1u);
    let lanes = WORKGROUP / params.columns;
    let lane = thread / params.columns;
    let first = (thread - lane * params.columns) * ELEMENTS;
    let span = span_at(first);
    return Tile(
        tile == workgroup,
        tile * channels,
        channels,
        lane,
        lanes,
        select(0u, params.batch, lane < lanes && tile == workgroup),
        span,
        min(span.channel + 1u, channels - 1u),
        tile * channels * params.spatial + first,
    );
}

// Sums of two values over the samples and chunks of each channel. `sums` are those of a thread's chunks: x and y for the channel of its span,
// z and w for the next one. Thread c returns the sums of the tile's channel c.
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
