// What forward and backward share under a bias or a mask: lines of any strides, of which a team of THREADS threads takes one, in chunks of four elements
// of which each thread has every THREADS-th.
struct Params {
    lines: u32,
    dim: u32, // elements of a line
    queries: u32, // the innermost of the extents under a causal mask, else 0
    rank: u32, // extents
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    scale: f32,
    padding_after: u32,
    extents: array<vec4<u32>, 2>, // of the lines, innermost first
    strides: array<vec4<u32>, 6>, // of the output and the inputs, two vectors each
    steps: vec4<u32>, // of each operand between the elements of a line
}

@group(0) @binding(0) var<uniform> params: Params;

// Where a line begins in each operand, and how many of its elements a causal mask leaves; of no line none.
struct Place {
    output: u32,
    first: u32,
    second: u32,
    visible: u32,
    dim: u32,
}

fn place_of(at: Invocation) -> Place {
    let number = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + at.index / THREADS;
    var place = Place(0u, 0u, 0u, 0u, 0u);
    if (number >= params.lines) {
        return place;
    }
    place.dim = params.dim;
    place.visible = params.dim;
    if (params.queries > 0u) {
        let seen = number % params.queries + 1u + params.dim;
        place.visible = max(seen, params.queries) - params.queries;
    }
    var rest = number;
    for (var k = 0u; k < params.rank; k++) {
        let extent = params.extents[k >> 2u][k & 3u];
        let i = rest % extent;
        rest = rest / extent;
        place.output += i * params.strides[k >> 2u][k & 3u];
        place.first += i * params.strides[2u + (k >> 2u)][k & 3u];
        place.second += i * params.strides[4u + (k >> 2u)][k & 3u];
    }
    return place;
}

// -infinity. It is computed, since WGSL has no constant for it.
fn infinite() -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(params.all_bits << 23u));
}
