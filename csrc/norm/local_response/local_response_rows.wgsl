// Form rows: the values of the channels next to a thread's own, through workgroup memory. A position has a quad of zeros, its channels, and a
// quad of zeros: three quads for each thread if positions have one quad of channels.
var<workgroup> quads: array<vec4<f32>, 3u * WORKGROUP>;

// A thread's quad of channels.
struct Place {
    n: u32,
    s: u32, // the position in its sample
    quad: u32,
    slot: u32, // the index in workgroup memory
    is_used: bool, // false for a thread without a quad
}

fn place_of(at: Invocation) -> Place {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let row = at.index / params.vectors;
    let quad = at.index % params.vectors;
    let position = workgroup * params.blocks + row;
    let is_used = row < params.blocks && position < params.batch * params.spatial;
    return Place(position / params.spatial, position % params.spatial, quad, row * (params.vectors + 2u) + 1u + quad, is_used);
}

// Where the quad lies in a tensor.
fn offset_of(place: Place, strides: vec3<u32>) -> u32 {
    return place.n * strides.x + place.s * strides.z + place.quad * 4u;
}

// Writes a thread's quad, at the ends of a position the zeros too, for the others to read.
fn share(place: Place, value: vec4<f32>) {
    if (place.is_used) {
        quads[place.slot] = value;
        if (place.quad == 0u) {
            quads[place.slot - 1u] = vec4<f32>();
        }
        if (place.quad + 1u == params.vectors) {
            quads[place.slot + 1u] = vec4<f32>();
        }
    }
    workgroupBarrier();
}

// The thread's values with 4 before and 4 after them.
fn with_neighbours(place: Place, own: vec4<f32>) -> array<f32, 12> {
    var left = vec4<f32>();
    var right = vec4<f32>();
    if (place.is_used) {
        left = quads[place.slot - 1u];
        right = quads[place.slot + 1u];
    }
    return array<f32, 12>(
        left.x, left.y, left.z, left.w, own.x, own.y, own.z, own.w, right.x, right.y, right.z, right.w,
    );
}

// The sum of squares over the window of each of the thread's channels.
fn sums_of_squares(values: array<f32, 12>) -> vec4<f32> {
    var all = values;
    var sum = vec4<f32>();
    for (var w = 4u - SIZE / 2u; w < 4u + SIZE - SIZE / 2u; w++) {
        let v = vec4<f32>(all[w], all[w + 1u], all[w + 2u], all[w + 3u]);
        sum += v * v;
    }
    return sum;
}
