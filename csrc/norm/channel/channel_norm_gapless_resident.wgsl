// Form gapless_resident: whole channels of all samples in the registers of a workgroup, of which neighbours share chunks.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_gapless_resident(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = tile_of(workgroup.y * params.groups_x + workgroup.x, thread);
    let span = tile.span;
    // 1. The chunks.
    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            chunks[k] = x_load(batch * params.x.x + tile.within, ELEMENTS);
        }
    }
    // 2. The mean of each channel, which the differences are taken from.
    var own = vec4<f32>();
    var next = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            // What was not loaded is 0.
            let v = quad(chunks[k], part);
            own += select(v, vec4<f32>(), is_next(span, part));
            next += select(vec4<f32>(), v, is_next(span, part));
        }
    }
    // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
    let means = vec4<f32>(add_up(own), 0.0, add_up(next), 0.0) * params.reciprocal_count;
    let mean = sum_channels(thread, tile, means).x;
    if (thread < tile.channels) {
        channel_sums[thread].x = mean;
    }
    workgroupBarrier();
    let own_shift = channel_sums[span.channel].x;
    let next_shift = channel_sums[tile.next].x;

    // 3. The means of the differences and of their squares: correction and variance.
    own = vec4<f32>();
    next = vec4<f32>();
    var own_square = vec4<f32>();
    var next_square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let is_sample = vec4<bool>(tile.lane + k * tile.lanes < tile.end);
        for (var part = 0u; part < QUADS; part++) {
            let is_far = is_next(span, part);
            let v = quad(chunks[k], part);
            let own_d = select(vec4<f32>(), v - own_shift, is_sample & !is_far);
            let next_d = select(vec4<f32>(), v - next_shift, is_sample & is_far);
            own += own_d;
            next += next_d;
            own_square += own_d * own_d;
            next_square += next_d * next_d;
        }
    }
    let pairs = vec4<f32>(add_up(own), add_up(own_square), add_up(next), add_up(next_square));
    let moments = sum_channels(thread, tile, pairs * params.reciprocal_count);
    if (thread < tile.channels) {
        let statistics = finish_statistics(mean, moments.x, moments.y);
        channel_sums[thread] = vec4<f32>(statistics.shift, statistics.correction, statistics.rstd, statistics.variance);
        if (tile.is_tile) {
            save_statistics(tile.first_channel + thread, statistics);
        }
    }
    workgroupBarrier();
    if (tile.end == 0u) {
        return;
    }
    // 4. y.
    let channel = tile.first_channel + span.channel;
    let own_terms = terms_of(channel, statistics_in(channel_sums[span.channel]));
    let next_terms = terms_of(tile.first_channel + tile.next, statistics_in(channel_sums[tile.next]));
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            var addend: vec4<u32>;
            if (HAS_residual) {
                addend = residual_load(batch * params.residual.x + tile.within, ELEMENTS);
            }
            y_store(batch * params.y.x + tile.within, ELEMENTS, y_of(chunks[k], addend, span, own_terms, next_terms));
        }
    }
}
