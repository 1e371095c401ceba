// Convolutions whose groups have one channel of x, and their gradients: what the shaders of the form conv_depthwise share.
//
// Windows have neither stride nor dilation. The output is y in forward and dx in the gradient of the data; the gradient of the weight walks over dy as if it
// were the output. A thread has a strip of STRIP neighbouring quads in a chunk of rows, and walks down it. It loads each row of the gathered factor that
// its windows see once, one row ahead of the products, and adds it to the sums of all KERNEL_ROWS output rows whose windows contain it. Quads lie
// along the columns (depthwise_columns.wgsl) or along the channels (depthwise_channels.wgsl).
struct Params {
    groups: u32, // workgroups
    groups_x: u32,
    tiles: u32, // of channels; neighbouring workgroups have different tiles
    rounds: u32, // strips of a thread, one after the other
    strips: u32, // of a tile, counted through samples, inner_channels, chunks and across; LANES threads share one, each with other channels
    across: u32, // strips side by side
    chunks: u32, // strips one below the other
    chunk_rows: u32, // rows of a strip, but for the lowest strips
    inner_channels: u32, // channels that strips of one tile run over
    channels: u32, // of the output
    repeats: u32, // channels of the output for each channel of the gathered factor
    rows: u32, // of the output
    columns: u32,
    gathered_rows: u32,
    gathered_columns: u32,
    first_row: u32, // of the window of output row 0; below 0 it wraps around
    first_column: u32,
    weight_first: u32, // offset of the first row and column in a channel's weight
    weight_channel: u32, // strides of the weight: along channels
    weight_row: u32, // along its rows; may be negative, and wraps around
    weight_column: u32, // along its columns; may be negative, and wraps around
    out_n: u32, // stride in out from element to element of a quad
    beside_n: u32, // stride in pre from element to element of a quad
    has_beside: u32,
    has_bias: u32,
    bias_channel: u32, // stride of bias
    activation: u32,
    beta: f32,
    part_length: u32, // sums of a part in partials, in the gradient of the weight
    @align(16) gathered: Strides,
    @align(16) out: Strides, // those of dy in the gradient of the weight
    @align(16) beside: Strides, // of pre
}

@group(0) @binding(0) var<uniform> params: Params;

// Of a tensor, in elements.
struct Strides {
    sample: u32,
    channel: u32,
    row: u32,
    column: u32,
}

// Threads that have different strips; LANES threads have different channels of the same strip.
const WORKERS: u32 = WORKGROUP / LANES;
// Extent of the largest kernel, and quads of the longest strip, that the text is written out for. A thread has a quad of sums for each quad of its strip
// and each row of the kernel: 7 rows of 2 quads are 14 quads, which take 56 registers.
const MOST_TAPS: u32 = 7u;
const MOST_QUADS: u32 = 4u;

// The quads of a strip in one row; those from STRIP on are unused.
alias Strip = array<vec4<f32>, MOST_QUADS>;
// For one quad, what each tap of a kernel row is multiplied with; those from KERNEL_COLUMNS on are unused.
alias Windows = array<vec4<f32>, MOST_TAPS>;

// The strip of a thread.
struct Place {
    is_there: bool,
    lane: u32,
    sample: u32,
    channel: u32,
    row: u32,
    column: u32,
    rows: u32, // of the strip
}

fn place_of(workgroup: u32, thread: u32, round: u32) -> Place {
    let strip = (workgroup / params.tiles * params.rounds + round) * WORKERS + thread / LANES;
    let below = strip / params.across;
    let plane = below / params.chunks;
    var place: Place;
    place.lane = thread % LANES;
    place.sample = plane / params.inner_channels;
    place.channel = (workgroup % params.tiles * LANES + place.lane) * QUAD_CHANNELS + plane % params.inner_channels;
    place.row = below % params.chunks * params.chunk_rows;
    place.column = strip % params.across * (STRIP * QUAD_COLUMNS);
    place.is_there = strip < params.strips && place.channel < params.channels;
    place.rows = min(params.chunk_rows, params.rows - place.row);
    return place;
}

// Where a strip begins in the output, or in pre.
fn start_of(place: Place, strides: Strides) -> u32 {
    return place.sample * strides.sample + place.channel * strides.channel + place.row * strides.row + place.column * strides.column;
}

// The rows of the gathered factor that the windows of a strip see.
fn rows_seen(place: Place) -> u32 {
    return place.rows + (KERNEL_ROWS - 1u);
}

// Row `index` of the rows that the windows of a strip see; zeros if it is outside the image.
fn seen_row(place: Place, index: u32) -> Row {
    // Above the image the sum wraps around to a number that is greater than any extent.
    let row = place.row + params.first_row + index;
    let channel = place.channel / params.repeats;
    let at = place.sample * params.gathered.sample + channel * params.gathered.channel + row * params.gathered.row;
    return read_row(place, at, index < rows_seen(place) && row < params.gathered_rows);
}
