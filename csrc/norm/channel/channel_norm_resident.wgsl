// Form resident: a contiguous group in the registers of a team of THREADS threads.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_resident(at: Invocation) {
    let thread = thread_index(at);
    let team = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread);
    let group = min(team, params.group_count - 1u);
    let is_group = team == group;
    // 1. The chunks. Where a workgroup is alone on its SM, nothing hides the latency of loading the parameters later, so that they
    //    are loaded here (PARAMETERS_FIRST).
    var weights: array<f32, CHUNKS>;
    var biases: array<f32, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, is_group);
        if (PARAMETERS_FIRST && place.count > 0u) {
            weights[k] = weight_of(place.channel);
            biases[k] = bias_of(place.channel);
        }
        counts[k] = place.count;
        // Without this line, which changes no value, an H200 takes 8 to 17 % longer for chunks of 16-bit elements.
        chunks[k] = vec4<u32>();
        if (place.count > 0u) {
            chunks[k] = x_load(start_of(place, params.x), place.count);
        }
    }
    // 2. Statistics. Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
    let shift = row_sum(at, thread_sum(false) * params.reciprocal_count, 0u);
    let moments = row_sums(at, thread_moments(shift) * params.reciprocal_count, 1u);
    let statistics = finish_statistics(shift, moments.x, moments.y);
    // 3. y.
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, is_group);
        if (place.count > 0u) {
            var weight = vec4<f32>(weights[k]);
            var bias = vec4<f32>(biases[k]);
            if (!PARAMETERS_FIRST) {
                weight = vec4<f32>(weight_of(place.channel));
                bias = vec4<f32>(bias_of(place.channel));
            }
            var addend: vec4<u32>;
            if (HAS_residual) {
                addend = residual_load(start_of(place, params.residual), place.count);
            }
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                var d: vec4<f32>;
                if (UNPACKED) {
                    d = values[k * QUADS + part];
                } else {
                    d = quad(chunks[k], part) - shift;
                }
                let xhat = (d - statistics.correction) * statistics.rstd;
                y[part] = finish_quad(xhat, weight, bias, quad(addend, part));
            }
            y_store(start_of(place, params.y), place.count, chunk_of(y));
        }
    }
    if (is_group && thread % THREADS == 0u) {
        save_statistics(group, statistics);
    }
}
