// Form gapless_resident: whole channels of all samples in the registers of a workgroup, of which neighbours share chunks. It does not hold chunks
// through channel_norm_backward_held: with that file's functions, add + ReLU of f32 took 3 % longer on an H200.

// Whether dpre is stored in the first pass and kept in the place of dy: it is dy or 0 then, which no rounding changes.
const STORES_EARLY: bool = HAS_dresidual && (ACTIVATION == IDENTITY || ACTIVATION == RELU);

// What dx depends on in a channel.
struct Terms {
    mean: f32,
    rstd: f32,
    weight: f32,
    bias: f32,
}

fn terms_of(channel: u32) -> Terms {
    return Terms(mean_of(channel), rstd_of(channel), weight_of(channel), bias_of(channel));
}

// For each element the value of the span's channel or of the next one.
fn pick(own: f32, next: f32, is_far: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(own), vec4<f32>(next), is_far);
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_gapless_resident(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = tile_of(workgroup.y * params.groups_x + workgroup.x, thread);
    // 1. The chunks.
    var held_dy: array<vec4<u32>, CHUNKS>;
    var held_x: array<vec4<u32>, CHUNKS>;
    var held_saved: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            held_dy[k] = dy_load(batch * params.dy.x + tile.within, ELEMENTS);
            held_x[k] = x_load(batch * params.x.x + tile.within, ELEMENTS);
            held_saved[k] = saved_load(batch * saved_strides().x + tile.within, ELEMENTS);
        }
    }
    // 2. The sums of each channel.
    let own = terms_of(tile.first_channel + tile.span.channel);
    let next = terms_of(tile.first_channel + tile.next);
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
                let xhat = (quad(held_x[k], part) - pick(own.mean, next.mean, is_far)) * pick(own.rstd, next.rstd, is_far);
                let weight = pick(own.weight, next.weight, is_far);
                let dpre = pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), weight, pick(own.bias, next.bias, is_far));
                let product = dpre * xhat;
                own_sum += select(dpre, vec4<f32>(), is_far);
                next_sum += select(vec4<f32>(), dpre, is_far);
                own_product += select(product, vec4<f32>(), is_far);
                next_product += select(vec4<f32>(), product, is_far);
                gradients[part] = dpre;
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
    let own_means = channel_sums[tile.span.channel];
    let next_means = channel_sums[tile.next];
    for (var k = 0u; k < CHUNKS; k++) {
        let batch = tile.lane + k * tile.lanes;
        if (batch < tile.end) {
            var dx: array<vec4<f32>, QUADS>;
            var dresidual: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let is_far = is_next(tile.span, part);
                let rstd = pick(own.rstd, next.rstd, is_far);
                let xhat = (quad(held_x[k], part) - pick(own.mean, next.mean, is_far)) * rstd;
                let weight = pick(own.weight, next.weight, is_far);
                var dpre = quad(held_dy[k], part);
                if (!STORES_EARLY) {
                    dpre = pre_gradient(dpre, xhat, quad(held_saved[k], part), weight, pick(own.bias, next.bias, is_far));
                }
                dresidual[part] = dpre;
                dx[part] = input_gradient(dpre, xhat, weight, rstd, pick(own_means.x, next_means.x, is_far), pick(own_means.y, next_means.y, is_far));
            }
            dx_store(batch * params.dx.x + tile.within, ELEMENTS, chunk_of(dx));
            if (HAS_dresidual && !STORES_EARLY) {
                dresidual_store(batch * params.dresidual.x + tile.within, ELEMENTS, chunk_of(dresidual));
            }
        }
    }
}
