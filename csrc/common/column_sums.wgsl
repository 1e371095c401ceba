// Sums over the threads of a workgroup that have the same quad of columns, in a tree in workgroup memory. COLUMN_QUADS threads side by side have different
// quads.
var<workgroup> lane_sums: array<vec4<f32>, WORKGROUP>;

// The sum over the threads with the quad of `thread`. Every thread of the workgroup calls it, and synchronises before it is called again.
fn sum_over_lanes(thread: u32, value: vec4<f32>) -> vec4<f32> {
    lane_sums[thread] = value;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= COLUMN_QUADS; half = half >> 1u) {
        if (thread < half) {
            lane_sums[thread] += lane_sums[thread + half];
        }
        workgroupBarrier();
    }
    return lane_sums[thread % COLUMN_QUADS];
}
