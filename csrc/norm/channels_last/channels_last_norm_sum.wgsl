// Sums over the lanes of a workgroup, of two vectors of quads a thread.
var<workgroup> column_sums: array<vec4<f32>, 2u * QUADS * WORKGROUP>;

// Adds up the first `vectors` vectors that the threads have put there; then the sums are those of lane 0.
fn sum_columns(thread: u32, vectors: u32) {
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half >> 1u) {
        if (thread < half * COLUMNS) {
            for (var j = 0u; j < vectors; j++) {
                column_sums[j * WORKGROUP + thread] += column_sums[j * WORKGROUP + thread + half * COLUMNS];
            }
        }
        workgroupBarrier();
    }
}
