// Contiguous segments, last dispatch: y. segment_statistics comes from channel_norm_apply_known or channel_norm_apply_merging.
//
// Slices are taken in reverse order: what the moments read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_apply(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.channels * params.slices;
    let last = (items - 1u) / TEAMS;
    if (workgroup > last) {
        return;
    }
    let slice = slice_of((last - workgroup) * TEAMS + team_of(thread), thread);
    let x_start = segment_start(slice, params.x);
    let residual_start = segment_start(slice, params.residual);
    var chunks: array<vec4<u32>, CHUNKS>;
    var addends: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = count_before(slice.end, first);
        if (count > 0u) {
            chunks[k] = x_load(x_start + first, count);
            addends[k] = residual_load(residual_start + first, count);
        }
    }
    // Loaded before the barriers of a merge, which hide the latency.
    let weight = vec4<f32>(weight_of(slice.channel));
    let bias = vec4<f32>(bias_of(slice.channel));
    let statistics = segment_statistics(at, thread, slice);
    let y_start = segment_start(slice, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = count_before(slice.end, first);
        if (count > 0u) {
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let d = (quad(chunks[k], part) - statistics.shift) - statistics.correction;
                y[part] = finish_quad(d * statistics.rstd, weight, bias, quad(addends[k], part));
            }
            y_store(y_start + first, count, chunk_of(y));
        }
    }
    count_batch(workgroup, thread);
}
