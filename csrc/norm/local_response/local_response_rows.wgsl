// Form rows: the values of the channels next to an invocation's own, through workgroup memory. A position has a quad of zeros, its channels, and a
// quad of zeros.
var<workgroup> quads: array<vec4<f32>, 3u * WORKGROUP>;

// The index of an invocation's quad.
fn slot_of(row: u32, quad: u32) -> u32 {
    return row * (params.vectors + 2u) + 1u + quad;
}

// Writes an invocation's quad, at the ends of a position the zeros too, for the others to read.
fn share(slot: u32, quad: u32, is_used: bool, value: vec4<f32>) {
    if (is_used) {
        quads[slot] = value;
        if (quad == 0u) {
            quads[slot - 1u] = vec4<f32>();
        }
        if (quad + 1u == params.vectors) {
            quads[slot + 1u] = vec4<f32>();
        }
    }
    workgroupBarrier();
}

// The invocation's values with 4 before and 4 after them.
fn with_neighbours(slot: u32, is_used: bool, own: vec4<f32>) -> array<f32, 12> {
    var left = vec4<f32>();
    var right = vec4<f32>();
    if (is_used) {
        left = quads[slot - 1u];
        right = quads[slot + 1u];
    }
    return array<f32, 12>(
        left.x, left.y, left.z, left.w, own.x, own.y, own.z, own.w, right.x, right.y, right.z, right.w,
    );
}

// The sum of squares over the window of each of the invocation's channels.
fn sums_of_squares(values: array<f32, 12>) -> vec4<f32> {
    var all = values;
    var sum = vec4<f32>();
    for (var w = 4u - SIZE / 2u; w < 4u + SIZE - SIZE / 2u; w++) {
        let v = vec4<f32>(all[w], all[w + 1u], all[w + 2u], all[w + 3u]);
        sum += v * v;
    }
    return sum;
}
