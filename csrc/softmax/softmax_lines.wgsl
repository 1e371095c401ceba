// What forward and backward share under a bias or a mask: lines of any strides, of which a team of THREADS threads takes one, in chunks of four elements
// of which each thread has every THREADS-th.
const TEAMS: u32 = WORKGROUP / THREADS;
const LEAST: f32 = -3.40282347e+38;

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

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

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

// The column of chunk k of a thread.
fn column_of(at: Invocation, k: u32) -> u32 {
    return (k * THREADS + at.index % THREADS) * 4u;
}

fn columns(first: u32) -> vec4<u32> {
    return vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u);
}

fn values_of(chunk: vec4<u32>, is_half: bool) -> vec4<f32> {
    return select(bitcast<vec4<f32>>(chunk), vec4<f32>(unpack(chunk.x), unpack(chunk.y)), is_half);
}

fn chunk_of_values(values: vec4<f32>, is_half: bool) -> vec4<u32> {
    return select(bitcast<vec4<u32>>(values), vec4<u32>(pack(values.xy), pack(values.zw), 0u, 0u), is_half);
}

// -infinity. It is computed, since WGSL has no constant for it.
fn infinite() -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(params.all_bits << 23u));
}

// Whether values are -infinity, decided on the bits.
fn are_masked(values: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(values) == vec4<u32>(0xff800000u);
}

var<workgroup> tree: array<f32, WORKGROUP>;

// The sum of a number of each thread of the team.
fn team_sum(at: Invocation, value: f32) -> f32 {
    workgroupBarrier();
    tree[at.index] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            tree[at.index] = tree[at.index] + tree[at.index + half];
        }
        workgroupBarrier();
    }
    return tree[at.index - at.index % THREADS];
}
