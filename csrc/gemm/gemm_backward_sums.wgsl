// dbias = sum of partials + beta * dbias, from sums [partials][columns] in the workspace. A workgroup has COLUMN_QUADS neighbouring quads of columns; a
// thread has one quad and adds up every LANES-th partial of it in four chains; column_sums.wgsl adds up the lanes.
struct Params {
    n: u32,
    partials: u32,
    step: u32, // stride of dbias
    groups_x: u32,
    beta: f32,
}

@group(0) @binding(0) var<uniform> params: Params;

const LANES: u32 = WORKGROUP / COLUMN_QUADS;

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
    var sum = sum_over_lanes(thread, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    if (thread < COLUMN_QUADS && quad < quads) {
        let count = min(params.n - quad * 4u, 4u);
        let at = quad * 4u * params.step;
        if (params.beta != 0.0) {
            sum += params.beta * dbias_line(at, params.step, count);
        }
        dbias_put_line(at, params.step, count, sum);
    }
}
