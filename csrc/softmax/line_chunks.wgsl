// Lines of which a team of THREADS threads takes one, in chunks of four elements: chunks, and sums over a team.
const TEAMS: u32 = WORKGROUP / THREADS;
const LEAST: f32 = -3.40282347e+38;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
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
