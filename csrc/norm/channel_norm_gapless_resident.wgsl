// Channels of all samples whose segments no chunk divides, in the registers of a workgroup: `columns` chunks beside each other are those of
// TILE whole channels of a sample, lanes of threads are samples below each other, and a thread takes every lane's number of samples.
var<workgroup> gapless_sums: array<vec4<f32>, WORKGROUP>;
// Sums of the tile's channels, then their statistics.
var<workgroup> channel_sums: array<vec4<f32>, ELEMENTS>;

// Sums over the samples and chunks of each channel, of pairs in a thread's own channel and in the next: that thread of the first ones which
// has a channel's number has its sums.
fn sum_channels(thread: u32, lane: u32, lanes: u32, sums: vec4<f32>) -> vec2<f32> {
    let columns = params.columns;
    gapless_sums[thread] = sums;
    workgroupBarrier();
    for (var rows = lanes; rows > 1u; rows = (rows + 1u) / 2u) {
        let half = (rows + 1u) / 2u;
        if (lane + half < rows) {
            gapless_sums[thread] += gapless_sums[thread + half * columns];
        }
        workgroupBarrier();
    }
    var sum = vec2<f32>();
    if (thread < columns * ELEMENTS / params.spatial) {
        let first = thread * params.spatial;
        for (var column = first / ELEMENTS; column * ELEMENTS < first + params.spatial; column++) {
            let pairs = gapless_sums[column];
            sum += select(pairs.zw, pairs.xy, column * ELEMENTS >= first);
        }
    }
    return sum;
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_gapless_resident(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile_channels = params.columns * ELEMENTS / params.spatial;
    let tiles = params.channels / tile_channels;
    let group = workgroup.y * params.groups_x + workgroup.x;
    let tile = min(group, tiles - 1u);
    let lanes = WORKGROUP / params.columns;
    let lane = thread / params.columns;
    let column = thread - lane * params.columns;
    let span = span_at(column * ELEMENTS); // in the tile
    let within = tile * tile_channels * params.spatial + column * ELEMENTS;
    // Samples end before those threads that no lane is made of.
    let end = select(0u, params.batch, lane < lanes && group == tile);

    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = lane + k * lanes;
        if (batch < end) {
            chunks[k] = x_load(batch * params.x.x + within, ELEMENTS);
        }
    }
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
    // Scaled before the threads meet: a compiler could merge products of sums, and with them the mean and its correction.
    let means = vec4<f32>(add_up(own), 0.0, add_up(next), 0.0) * params.reciprocal_count;
    let mean = sum_channels(thread, lane, lanes, means).x;
    if (thread < tile_channels) {
        channel_sums[thread].x = mean;
    }
    workgroupBarrier();
    let next_number = min(span.channel + 1u, tile_channels - 1u);
    let own_shift = channel_sums[span.channel].x;
    let next_shift = channel_sums[next_number].x;

    own = vec4<f32>();
    next = vec4<f32>();
    var own_square = vec4<f32>();
    var next_square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let is_sample = vec4<bool>(lane + k * lanes < end);
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
    let moments = sum_channels(thread, lane, lanes, pairs * params.reciprocal_count);
    if (thread < tile_channels) {
        let statistics = finish_statistics(mean, moments.x, moments.y);
        channel_sums[thread] = vec4<f32>(statistics.shift, statistics.correction, statistics.rstd, statistics.variance);
        if (group == tile) {
            save_statistics(tile * tile_channels + thread, statistics);
        }
    }
    workgroupBarrier();
    if (end == 0u) {
        return;
    }
    let channel = tile * tile_channels + span.channel;
    let own_statistics = channel_sums[span.channel];
    let next_statistics = channel_sums[next_number];
    let own_terms = terms_of(channel, statistics_in(own_statistics));
    let next_terms = terms_of(tile * tile_channels + next_number, statistics_in(next_statistics));
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = lane + k * lanes;
        if (batch < end) {
            var addend: vec4<u32>;
            if (HAS_residual) {
                addend = residual_load(batch * params.residual.x + within, ELEMENTS);
            }
            y_store(batch * params.y.x + within, ELEMENTS, y_of(chunks[k], addend, span, own_terms, next_terms));
        }
    }
}
