// Form gapless_resident: whole channels of all samples in the registers of a workgroup, of which neighbours share chunks.
const HELD: u32 = CHUNKS; // chunks of each tensor that a thread has in registers

// Whether dpre is stored in the first pass and kept in the place of dy: it is dy or 0 then, which no rounding changes.
const STORES_EARLY: bool = HAS_dresidual && (ACTIVATION == IDENTITY || ACTIVATION == RELU);

// For each element the terms of the span's channel or of the next one.
fn pick(own: Terms, next: Terms, is_far: vec4<bool>) -> Terms {
    return Terms(
        select(own.mean, next.mean, is_far),
        select(own.rstd, next.rstd, is_far),
        select(own.weight, next.weight, is_far),
        select(own.bias, next.bias, is_far),
        select(own.mean_g, next.mean_g, is_far),
        select(own.mean_product, next.mean_product, is_far),
    );
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_gapless_resident(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = tile_of(workgroup.y * params.groups_x + workgroup.x, thread);
    // 1. The chunks.
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            let saved_first = batch * saved_strides().x + tile.within;
            hold(k, batch * params.dy.x + tile.within, batch * params.x.x + tile.within, saved_first, ELEMENTS);
        }
    }
    // 2. The sums of each channel.
    let own_channel = tile.first_channel + tile.span.channel;
    let next_channel = tile.first_channel + tile.next;
    var own = terms_of(own_channel, vec4<f32>(0.0, 0.0, statistics_of_group(own_channel)));
    var next = terms_of(next_channel, vec4<f32>(0.0, 0.0, statistics_of_group(next_channel)));
    var own_sum = vec4<f32>();
    var next_sum = vec4<f32>();
    var own_product = vec4<f32>();
    var next_product = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            var gradients: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let is_far = is_next(tile.span, part);
                let gradient = gradient_of(k, part, pick(own, next, is_far));
                let product = gradient.dpre * gradient.xhat;
                own_sum += select(gradient.dpre, vec4<f32>(), is_far);
                next_sum += select(vec4<f32>(), gradient.dpre, is_far);
                own_product += select(product, vec4<f32>(), is_far);
                next_product += select(vec4<f32>(), product, is_far);
                gradients[part] = gradient.dpre;
            }
            if (STORES_EARLY) {
                held_dy[k] = chunk_of(gradients);
                dresidual_store(batch * params.dresidual.x + tile.within, ELEMENTS, held_dy[k]);
            }
        }
    }
    let pairs = vec4<f32>(add_up(own_sum), add_up(own_product), add_up(next_sum), add_up(next_product));
    let sums = sum_channels(thread, tile, pairs);
    if (thread < tile.channels) {
        let channel = tile.first_channel + thread;
        channel_sums[thread] = vec4<f32>(means_from(sums, channel), 0.0, 0.0);
        if (tile.is_tile) {
            put_parameters(channel, sums);
        }
    }
    workgroupBarrier();
    if (tile.end == 0u) {
        return;
    }
    // 3. dx and dresidual.
    own.mean_g = vec4<f32>(channel_sums[tile.span.channel].x);
    own.mean_product = vec4<f32>(channel_sums[tile.span.channel].y);
    next.mean_g = vec4<f32>(channel_sums[tile.next].x);
    next.mean_product = vec4<f32>(channel_sums[tile.next].y);
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            var dx: array<vec4<f32>, QUADS>;
            var dresidual: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let terms = pick(own, next, is_next(tile.span, part));
                var gradient = gradient_of(k, part, terms);
                if (STORES_EARLY) {
                    gradient.dpre = quad(held_dy[k], part);
                }
                dresidual[part] = gradient.dpre;
                dx[part] = dx_of(gradient, terms);
            }
            dx_store(batch * params.dx.x + tile.within, ELEMENTS, chunk_of(dx));
            if (HAS_dresidual && !STORES_EARLY) {
                dresidual_store(batch * params.dresidual.x + tile.within, ELEMENTS, chunk_of(dresidual));
            }
        }
    }
}
