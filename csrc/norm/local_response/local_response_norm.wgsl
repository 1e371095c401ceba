// LocalResponseNorm forward: the params of all forms, and form walk. The CUDA kernels are those of local_response_norm.cu.
struct Params {
    batch: u32,
    channels: u32,
    spatial: u32,
    x: vec3<u32>, // strides of batch, channel and position
    y: vec3<u32>,
    size: u32,
    scale: f32, // alpha / size
    beta: f32,
    k: f32,
    half_powers: u32, // which power the roots are to give: 1 for beta 0.5, 2 for beta 1, 3 for beta 0.75
    vectors: u32, // walk: vectors of a channel of a sample; rows: of a position
    blocks: u32,  // walk: workgroups of one chunk; rows: positions of a workgroup
    chunk: u32,   // walk: channels that a workgroup gives results for
    is_last: u32, // direct: 1 if neighbouring threads take neighbouring channels
    groups_x: u32, // workgroups in the first dimension of the grid
    before: u32, // channels of a window before its own
}

@group(0) @binding(0) var<uniform> params: Params;

// The window, its latest channel last.
var<private> ring: array<Value, SIZE>;

// Channel c; zeros if it does not exist or the walk does not need it.
fn load_channel(start: u32, c: i32, load_end: i32) -> Value {
    var value = Value();
    if (c >= 0 && c < load_end) {
        value = x_of(start + u32(c) * params.x.y);
    }
    return value;
}

// 2. Channel t enters the window. 3. The result of the channel whose window is complete.
fn walk_on(value: Value, t: i32, first: i32, end: i32, y_start: u32) {
    for (var w = 0u; w + 1u < SIZE; w++) {
        ring[w] = ring[w + 1u];
    }
    ring[SIZE - 1u] = value;
    let c = t - i32(AFTER);
    if (c >= first && c < end) {
        var sum = Value();
        for (var w = 0u; w < SIZE; w++) {
            sum += ring[w] * ring[w];
        }
        let own = ring[SIZE - 1u - AFTER];
        y_put(y_start + u32(c) * params.y.y, own * reduce(sum).power);
    }
}

// Form walk: a thread owns the vector at some positions and walks over the channels of its chunk. Unlike the CUDA kernel, which unrolls its
// ring, it shifts the window, and loads four channels while it computes with the four before. With fewer, less of the latency would be hidden; with
// more, the values of more channels would take registers beside the ring.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_walk(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let index = workgroup % params.blocks * WORKGROUP + at.index;
    let n = index / params.vectors;
    let first = i32(workgroup / params.blocks * params.chunk);
    if (n >= params.batch || first >= i32(params.channels)) {
        return;
    }
    let position = index % params.vectors * WIDTH;
    let end = min(i32(params.channels), first + i32(params.chunk));
    let load_end = min(i32(params.channels), end + i32(AFTER));
    let x_start = n * params.x.x + position;
    let y_start = n * params.y.x + position;

    // 1. The first loads.
    var t = first - i32(SIZE / 2u);
    var now0 = load_channel(x_start, t, load_end);
    var now1 = load_channel(x_start, t + 1i, load_end);
    var now2 = load_channel(x_start, t + 2i, load_end);
    var now3 = load_channel(x_start, t + 3i, load_end);
    for (; t < end + i32(AFTER); t += 4i) {
        let next0 = load_channel(x_start, t + 4i, load_end);
        let next1 = load_channel(x_start, t + 5i, load_end);
        let next2 = load_channel(x_start, t + 6i, load_end);
        let next3 = load_channel(x_start, t + 7i, load_end);
        walk_on(now0, t, first, end, y_start);
        walk_on(now1, t + 1i, first, end, y_start);
        walk_on(now2, t + 2i, first, end, y_start);
        walk_on(now3, t + 3i, first, end, y_start);
        now0 = next0;
        now1 = next1;
        now2 = next2;
        now3 = next3;
    }
}
