// dweight and dbias from the partial sums in the workspace, [partials][dweight, dbias][cols]. A workgroup has COLUMNS chunks of columns. A thread
// has one of them and adds up every LANES-th of its partial sums, in CHAINS chains of CHAIN at a time, the sums of these CHAIN at a time, and what that gives
// in one more chain; the lanes meet in a tree.
struct Params {
    cols: u32,
    partials: u32,
    quads: u32, // of one gradient in a partial sum
    sums_first: u32, // where the partial sums start in the workspace, in quads
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMNS; // threads of a column, each with other rows
// Chains of additions of a thread, whose loads do not wait for each other's additions; their sums are added up for 4. `CHAINS` in team.rs has the reason.
const CHAINS: u32 = 4u;
// Partial sums, or sums of them, that are added up one after another: short chains of additions round less. `PARTIALS_CHAIN` in team.rs is equal.
const CHAIN: u32 = 16u;
const GRADIENTS: u32 = u32(HAS_dweight) + u32(HAS_dbias); // gradients of parameters that are wanted

var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP * QUADS>;

@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_parameters(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    let chunks = (params.cols + ELEMENTS - 1u) / ELEMENTS;
    let chunk = workgroup / GRADIENTS * COLUMNS + thread % COLUMNS;
    let gradient = workgroup % GRADIENTS;
    let lane = thread / COLUMNS;
    for (var part = 0u; part < QUADS; part++) {
        var total = vec4<f32>();
        let first = params.sums_first + gradient * params.quads + chunk * QUADS + part;
        var base = lane;
        while (chunk < chunks && base < params.partials) {
            var of_chains = vec4<f32>();
            for (var i = 0u; i < CHAIN && base < params.partials; i++) {
                var sum = array<vec4<f32>, CHAINS>();
                for (var j = 0u; j < CHAIN && base < params.partials; j++) {
                    for (var chain = 0u; chain < CHAINS; chain++) {
                        let partial = base + chain * LANES;
                        if (partial < params.partials) {
                            sum[chain] += work_read(partial * GRADIENTS * params.quads + first);
                        }
                    }
                    base += CHAINS * LANES;
                }
                of_chains += (sum[0] + sum[1]) + (sum[2] + sum[3]);
            }
            total += of_chains;
        }
        lane_sums[part * WORKGROUP + thread] = total;
    }
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= COLUMNS; half = half >> 1u) {
        if (thread < half) {
            for (var part = 0u; part < QUADS; part++) {
                lane_sums[part * WORKGROUP + thread] += lane_sums[part * WORKGROUP + thread + half];
            }
        }
        workgroupBarrier();
    }
    let count = select(0u, min(params.cols - min(chunk * ELEMENTS, params.cols), ELEMENTS), lane == 0u);
    if (count > 0u) {
        var sums: array<vec4<f32>, QUADS>;
        for (var part = 0u; part < QUADS; part++) {
            sums[part] = lane_sums[part * WORKGROUP + thread];
        }
        let result = chunk_of(sums);
        if (HAS_dweight && gradient == 0u) {
            dweight_store(chunk * ELEMENTS, count, result);
        } else {
            dbias_store(chunk * ELEMENTS, count, result);
        }
    }
}
