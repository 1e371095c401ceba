// What the kernels of reductions share. One of the files `held_*.wgsl` says what is `Held` of values, four by four, how it is combined, and which words it has in
// memory. The functions `evaluate`, `store_result` and what they need are made from the program and its operands.
const ADD: u32 = 0u;
const MULTIPLY: u32 = 1u;
const GREATEST: u32 = 2u;

const OF_MAGNITUDES: u32 = 1u;
const OF_SQUARES: u32 = 2u;
const OF_ZEROS: u32 = 3u;

struct Params {
    outputs: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    line: u32, // elements along the innermost extent, of which each chunk is a part
    rows: u32, // teams of a piece: outputs, or chunks of them
    items: u32, // chunks of a row, or positions that are reduced
    pieces: u32, // that the items of an output are divided into
    count: u32, // bits of what a mean is divided by
    first_piece: u32, // of those of all sets
    extents: array<vec4<u32>, VECTORS>, // innermost first, the first of which counts chunks
    strides: array<vec4<u32>, VECTORS * TENSORS>, // innermost first
    output_extents: array<vec4<u32>, OUTPUT_VECTORS>, // innermost first
    output_strides: array<vec4<u32>, OUTPUT_VECTORS>,
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn workgroup_number(at: Invocation) -> u32 {
    return at.workgroup.y * params.groups_x + at.workgroup.x;
}

// What is held of all four lanes, in each of them.
fn combine_lanes(values: Held) -> Held {
    let pairs = combine(values, pairs_turned(values));
    return combine(pairs, halves_turned(pairs));
}
