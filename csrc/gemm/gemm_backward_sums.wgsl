// dbias = sum of partials + beta * dbias, from sums [partials][columns] in the workspace. For depthwise convolutions the operand `dbias` is the gradient
// of the weight, whose elements are the columns.
//
// A workgroup has COLUMN_QUADS neighbouring quads of columns; a thread has one quad and adds up every LANES-th partial of it, in CHAINS chains of CHAIN at a
// time, the sums of these CHAIN at a time, and what that gives in one more chain; column_sums.wgsl adds up the lanes.
struct Params {
    n: u32,
    partials: u32,
    dbias_n: u32, // stride of dbias
    groups_x: u32,
    beta: f32,
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMN_QUADS;
// Chains of additions of a thread, whose loads do not wait for each other's additions; their sums are added up for 4. `CHAINS` in team.rs has the reason.
const CHAINS: u32 = 4u;
// Partials, or sums of them, that are added up one after another: short chains of additions round less. `PARTIALS_CHAIN` in team.rs is equal.
const CHAIN: u32 = 16u;

@compute @workgroup_size(WORKGROUP)
fn gemm_backward_sums(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    let quads = (params.n + 3u) / 4u;
    let quad = workgroup * COLUMN_QUADS + thread % COLUMN_QUADS;
    var total = vec4<f32>();
    var base = thread / COLUMN_QUADS;
    while (quad < quads && base < params.partials) {
        var of_chains = vec4<f32>();
        for (var i = 0u; i < CHAIN && base < params.partials; i++) {
            var sums = array<vec4<f32>, CHAINS>();
            for (var j = 0u; j < CHAIN && base < params.partials; j++) {
                for (var chain = 0u; chain < CHAINS; chain++) {
                    let partial = base + chain * LANES;
                    if (partial < params.partials) {
                        sums[chain] += partials_read(partial * quads + quad);
                    }
                }
                base += CHAINS * LANES;
            }
            of_chains += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
        total += of_chains;
    }
    var sum = sum_over_lanes(thread, total);
    if (thread < COLUMN_QUADS && quad < quads) {
        let count = min(params.n - quad * 4u, 4u);
        let at = quad * 4u * params.dbias_n;
        if (params.beta != 0.0) {
            sum += params.beta * dbias_line(at, params.dbias_n, count);
        }
        dbias_put_line(at, params.dbias_n, count, sum);
    }
}
