// dbias = sum of partials + beta * dbias, from sums [partials][columns] in the workspace. A workgroup has COLUMN_QUADS quads of columns
// beside each other; a thread owns one and every LANES-th sum of it, in four chains; the lanes meet in a tree.
struct Params {
    n: u32,
    partials: u32,
    step: u32, // stride of dbias
    groups_x: u32,
    beta: f32,
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMN_QUADS;

var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn gemm_backward_sums(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    let quads = (params.n + 3u) / 4u;
    let quad = group * COLUMN_QUADS + thread % COLUMN_QUADS;
    var sums = array<vec4<f32>, 4>();
    if (quad < quads) {
        for (var base = thread / COLUMN_QUADS; base < params.partials; base += 4u * LANES) {
            for (var chain = 0u; chain < 4u; chain++) {
                let partial = base + chain * LANES;
                if (partial < params.partials) {
                    sums[chain] += partials_read(partial * quads + quad);
                }
            }
        }
    }
    lane_sums[thread] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= COLUMN_QUADS; half = half >> 1u) {
        if (thread < half) {
            lane_sums[thread] += lane_sums[thread + half];
        }
        workgroupBarrier();
    }
    if (thread < COLUMN_QUADS && quad < quads) {
        let count = min(params.n - quad * 4u, 4u);
        let at = quad * 4u * params.step;
        var sum = lane_sums[thread];
        if (params.beta != 0.0) {
            sum += params.beta * dbias_line(at, params.step, count);
        }
        dbias_put_line(at, params.step, count, sum);
    }
}
