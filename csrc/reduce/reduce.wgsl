// What the kernels of reductions share: how values are combined, decided on the bits where NaN matters, and what becomes of a result. The functions `evaluate`,
// `store_result` and what they need are made from the program and its operands.
const ADD: u32 = 0u;
const MULTIPLY: u32 = 1u;
const GREATEST: u32 = 2u;

const OF_MAGNITUDES: u32 = 1u;
const OF_SQUARES: u32 = 2u;

struct Params {
    outputs: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    line: u32, // elements along the innermost extent, of which each chunk is a part
    rows: u32, // teams of a piece: outputs, or chunks of them
    items: u32, // chunks of a row, or positions that are reduced
    pieces: u32, // that the items of an output are divided into
    count: u32, // bits of the number of values
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

fn none() -> vec4<f32> {
    return literal(IDENTITY);
}

fn each(values: vec4<f32>) -> vec4<f32> {
    if (EACH == OF_MAGNITUDES) {
        return bitcast<vec4<f32>>(bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu));
    }
    if (EACH == OF_SQUARES) {
        return rounded(values * values);
    }
    return values;
}

fn combine(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    if (COMBINE == ADD) {
        return x + y;
    }
    if (COMBINE == MULTIPLY) {
        return x * y;
    }
    if (COMBINE == GREATEST) {
        return unless_nan(unless_nan(max(x, y), y), x);
    }
    return unless_nan(unless_nan(min(x, y), y), x);
}

fn combine_lanes(values: vec4<f32>) -> f32 {
    let pairs = combine(values, values.yxwz);
    return combine(pairs, pairs.zwxy).x;
}

// What is stored of a result.
fn finished(total: f32) -> vec4<f32> {
    if (IS_MEAN) {
        return f_div(vec4<f32>(total), literal(params.count));
    }
    if (IS_ROOT) {
        return f_sqrt(vec4<f32>(total));
    }
    return vec4<f32>(total);
}
