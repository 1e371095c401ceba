// LocalResponseNorm backward: the params of all forms, and form walk. The CUDA kernels are those of local_response_norm_backward.cu.
struct Params {
    batch: u32,
    channels: u32,
    spatial: u32,
    dy: vec3<u32>, // strides of batch, channel and position
    x: vec3<u32>,
    dx: vec3<u32>,
    size: u32,
    scale: f32, // alpha / size
    beta: f32,
    k: f32,
    slope: f32, // 2 alpha beta / size
    half_powers: u32, // which power the roots are to give: 1 for beta 0.5, 2 for beta 1, 3 for beta 0.75
    vectors: u32, // walk: vectors of a channel of a sample; rows: of a position
    blocks: u32,  // walk: workgroups of one chunk; rows: positions of a workgroup
    chunk: u32,   // walk: channels that a workgroup gives results for
    is_last: u32, // direct: 1 if neighbouring threads take neighbouring channels
    groups_x: u32, // workgroups in the first dimension of the grid
    before: u32, // channels of a window before its own
}

@group(0) @binding(0) var<uniform> params: Params;

// Values of the latest SIZE channels, the latest last: x; e = dy d^-beta, dy until d is known; the terms slope e x d^(-1/2); the roots d^(-1/2).
var<private> x_ring: array<Value, SIZE>;
var<private> e_ring: array<Value, SIZE>;
var<private> term_ring: array<Value, SIZE>;
var<private> root_ring: array<Value, SIZE>;

struct Loaded {
    x: Value,
    dy: Value,
}

// Channel c; zeros if it does not exist or the walk does not need it.
fn load_channel(x_start: u32, dy_start: u32, c: i32, load_end: i32) -> Loaded {
    var loaded = Loaded(Value(), Value());
    if (c >= 0 && c < load_end) {
        loaded = Loaded(x_of(x_start + u32(c) * params.x.y), dy_of(dy_start + u32(c) * params.dy.y));
    }
    return loaded;
}

fn walk_on(loaded: Loaded, t: i32, first: i32, end: i32, dx_start: u32) {
    // 2. Channel t enters the window.
    for (var w = 0u; w + 1u < SIZE; w++) {
        x_ring[w] = x_ring[w + 1u];
        e_ring[w] = e_ring[w + 1u];
        term_ring[w] = term_ring[w + 1u];
        root_ring[w] = root_ring[w + 1u];
    }
    x_ring[SIZE - 1u] = loaded.x;
    e_ring[SIZE - 1u] = loaded.dy;
    // 3. The term of the channel whose window is complete; 0 for a channel that does not exist.
    let middle = t - i32(AFTER);
    var sum = Value();
    for (var w = 0u; w < SIZE; w++) {
        sum += x_ring[w] * x_ring[w];
    }
    let reduced = reduce(sum);
    let e = e_ring[SIZE - 1u - AFTER] * reduced.power;
    e_ring[SIZE - 1u - AFTER] = e;
    term_ring[SIZE - 1u] = Value();
    root_ring[SIZE - 1u] = reduced.root;
    if (middle >= 0 && middle < i32(params.channels)) {
        term_ring[SIZE - 1u] = e * (params.slope * (x_ring[SIZE - 1u - AFTER] * reduced.root));
    }
    // 4. dx of the channel whose terms are complete.
    let c = t - i32(SIZE - 1u);
    if (c >= first && c < end) {
        var terms = Value();
        for (var w = 0u; w < SIZE; w++) {
            terms += term_ring[w] * (root_ring[w] * x_ring[0]);
        }
        dx_put(dx_start + u32(c) * params.dx.y, e_ring[0] - terms);
    }
}

// Form walk: a thread owns the vector at some positions and walks over the channels of its chunk. With each step one channel enters the
// window; the window of an earlier one is then complete and gives its term, and the terms of a still earlier one are complete and give its dx.
// Unlike the CUDA kernel, which unrolls its rings, it shifts them, and loads two channels while it computes with the two before: of two tensors these
// are as many loads as forward has in flight.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_walk(at: Invocation) {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let index = workgroup % params.blocks * WORKGROUP + at.index;
    let n = index / params.vectors;
    let first = i32(workgroup / params.blocks * params.chunk);
    if (n >= params.batch || first >= i32(params.channels)) {
        return;
    }
    let position = index % params.vectors * WIDTH;
    let end = min(i32(params.channels), first + i32(params.chunk));
    let load_end = min(i32(params.channels), end + i32(SIZE - 1u));
    let x_start = n * params.x.x + position;
    let dy_start = n * params.dy.x + position;
    let dx_start = n * params.dx.x + position;

    // 1. The first loads.
    var t = first - i32(SIZE - 1u);
    var now0 = load_channel(x_start, dy_start, t, load_end);
    var now1 = load_channel(x_start, dy_start, t + 1i, load_end);
    for (; t < end + i32(SIZE - 1u); t += 2i) {
        let next0 = load_channel(x_start, dy_start, t + 2i, load_end);
        let next1 = load_channel(x_start, dy_start, t + 3i, load_end);
        walk_on(now0, t, first, end, dx_start);
        walk_on(now1, t + 1i, first, end, dx_start);
        now0 = next0;
        now1 = next1;
    }
}
