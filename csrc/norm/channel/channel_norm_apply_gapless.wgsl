// Contiguous samples whose segments are no whole chunks, last dispatch: y. Chunks are taken in reverse order: what the moments read last may
// still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_apply_gapless(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    let sample_chunks = params.channels * params.spatial / ELEMENTS;
    let all = params.batch * sample_chunks;
    let blocks = (all - 1u) / (WORKGROUP * CHUNKS) + 1u;
    if (workgroup >= blocks) {
        return;
    }
    let first = (blocks - 1u - workgroup) * (WORKGROUP * CHUNKS) + thread;
    var chunks: array<vec4<u32>, CHUNKS>;
    var addends: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let at = first + k * WORKGROUP;
        if (at < all) {
            let batch = at / sample_chunks;
            let within = (at - batch * sample_chunks) * ELEMENTS;
            chunks[k] = x_load(batch * params.x.x + within, ELEMENTS);
            addends[k] = residual_load(batch * params.residual.x + within, ELEMENTS);
        }
    }
    for (var k = 0u; k < CHUNKS; k++) {
        let at = first + k * WORKGROUP;
        if (at < all) {
            let batch = at / sample_chunks;
            let within = (at - batch * sample_chunks) * ELEMENTS;
            let span = span_at(within);
            let own = terms_of(span.channel, statistics_of(batch, span.channel));
            var next = own;
            if (span.left < ELEMENTS) {
                next = terms_of(span.channel + 1u, statistics_of(batch, span.channel + 1u));
            }
            y_store(batch * params.y.x + within, ELEMENTS, y_of(chunks[k], addends[k], span, own, next));
        }
    }
    count_batch(workgroup, thread);
}
