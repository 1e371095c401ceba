// The gradient of the pre-activation, dpre = dout * act'(saved), element by element, and for dbias the unrounded sums of its columns over the rows of
// each workgroup, in partials [workgroups of rows][columns]. A workgroup has COLUMN_QUADS neighbouring quads of columns; a thread has one quad and every
// LANES-th row of it, which it adds up in chains of CHAIN, and the chains in one more; column_sums.wgsl adds up the lanes. Rows are counted through all
// batches.
struct Params {
    m: u32,
    n: u32,
    rows: u32, // of all batches
    rounds: u32, // rows of a thread
    groups: u32, // workgroups
    groups_x: u32,
    column_groups: u32, // workgroups side by side, which share rows
    activation: u32,
    from_out: u32, // whether saved is the output, or else the pre-activation
    has_dpre: u32,
    wants_column_sums: u32, // whether columns are added up to partials, for dbias
    batch_axes: u32,
    dout_m: u32,
    dout_n: u32,
    saved_m: u32,
    saved_n: u32,
    dpre_m: u32,
    dpre_n: u32,
    padding: vec2<u32>,
    batch: array<vec4<u32>, 6>, // extent, strides of dout, saved, dpre; 6: a tensor has rank 8 at most
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMN_QUADS;
// Rows that a thread adds up one after another, as in conv_backward_bias.wgsl.
const CHAIN: u32 = 16u;

// Where a row starts in dout, saved, dpre.
fn starts_of(row: u32) -> vec3<u32> {
    let m = row % params.m;
    var starts = m * vec3<u32>(params.dout_m, params.saved_m, params.dpre_m);
    var rest = row / params.m;
    for (var axis = params.batch_axes; axis > 0u; axis--) {
        let of_axis = params.batch[axis - 1u];
        starts += rest % of_axis.x * of_axis.yzw;
        rest = rest / of_axis.x;
    }
    return starts;
}

fn dpre_at(starts: vec3<u32>, n: u32, count: u32) -> vec4<f32> {
    let dout = dout_line(starts.x + n * params.dout_n, params.dout_n, count);
    if (params.activation == IDENTITY) {
        return dout;
    }
    let saved = saved_line(starts.y + n * params.saved_n, params.saved_n, count);
    if (params.from_out != 0u) {
        return differentiate_from_output(params.activation, dout, saved);
    }
    return differentiate(params.activation, dout, saved);
}

@compute @workgroup_size(WORKGROUP)
fn gemm_backward_dpre(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    // 1. dpre, and the sums of this thread.
    let part = workgroup / params.column_groups;
    let quad = workgroup % params.column_groups * COLUMN_QUADS + thread % COLUMN_QUADS;
    let n = quad * 4u;
    let count = min(params.n - min(n, params.n), 4u);
    var sum = vec4<f32>();
    var chains = vec4<f32>();
    if (count > 0u) {
        var row = part * params.rounds * LANES + thread / COLUMN_QUADS;
        for (var round = 0u; round < params.rounds && row < params.rows; round++) {
            let starts = starts_of(row);
            let dpre = dpre_at(starts, n, count);
            if (params.has_dpre != 0u) {
                dpre_put_line(starts.z + n * params.dpre_n, params.dpre_n, count, dpre);
            }
            sum += dpre;
            if (round % CHAIN == CHAIN - 1u) {
                chains += sum;
                sum = vec4<f32>();
            }
            row += LANES;
        }
    }
    if (params.wants_column_sums == 0u) {
        return;
    }
    // 2. The sums over the lanes.
    let total = sum_over_lanes(thread, chains + sum);
    if (thread < COLUMN_QUADS && count > 0u) {
        partials_write(part * ((params.n + 3u) / 4u) + quad, total);
    }
}
