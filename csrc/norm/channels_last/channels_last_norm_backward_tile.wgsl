// Form channels_last_tile: TILE_GROUPS whole groups of a sample in the registers of a workgroup. The threads are COLUMNS side by side, which
// are the chunks of these groups in a row, and LANES below each other; a thread takes every LANES-th row. The workgroups past those of the
// groups write dweight and dbias, for SUM_COLUMNS chunks of channels each, and read dy and x a second time; if dx lies in the place of dy, they
// come in a dispatch before.
const LANES: u32 = THREADS / COLUMNS;
const SUM_THREADS: u32 = SUM_COLUMNS * SUM_LANES; // threads that add up; the workgroup has as many or more
const BLOCK: u32 = 4u; // rows that such a thread has in flight

var<workgroup> lane_sums: array<vec4<f32>, 2u * QUADS * SUM_THREADS>;

var<private> held_dy: array<vec4<u32>, CHUNKS>;
var<private> held_x: array<vec4<u32>, CHUNKS>;
var<private> held_saved: array<vec4<u32>, CHUNKS>;

// What dx depends on in a thread's channels.
struct Terms {
    mean: array<vec4<f32>, QUADS>,
    rstd: array<vec4<f32>, QUADS>,
    weight: array<vec4<f32>, QUADS>,
    bias: array<vec4<f32>, QUADS>,
}

fn terms_of(batch: u32, first_channel: u32) -> Terms {
    var terms: Terms;
    for (var element = 0u; element < ELEMENTS; element++) {
        let channel = min(first_channel + element, params.channels - 1u);
        let statistics = statistics_of_group(group_of(batch, channel));
        terms.mean[element / 4u][element % 4u] = statistics.x;
        terms.rstd[element / 4u][element % 4u] = statistics.y;
        terms.weight[element / 4u][element % 4u] = weight_of(channel);
        terms.bias[element / 4u][element % 4u] = bias_of(channel);
    }
    return terms;
}

// dweight and dbias of the channels of SUM_COLUMNS chunks, by all threads of a workgroup.
fn put_columns(thread: u32, block: u32) {
    let lane = thread / SUM_COLUMNS;
    let first_channel = (block * SUM_COLUMNS + thread % SUM_COLUMNS) * ELEMENTS;
    let count = select(0u, count_before(params.channels, first_channel), lane < SUM_LANES);
    var sum: array<vec4<f32>, QUADS>;
    var product: array<vec4<f32>, QUADS>;
    for (var batch = 0u; batch < select(0u, params.batch, count > 0u); batch++) {
        let terms = terms_of(batch, first_channel);
        let dy_start = batch * params.dy.x + first_channel;
        let x_start = batch * params.x.x + first_channel;
        let saved_start = batch * saved_strides().x + first_channel;
        for (var base = lane; base < params.spatial; base += BLOCK * SUM_LANES) {
            var dy: array<vec4<u32>, BLOCK>;
            var x: array<vec4<u32>, BLOCK>;
            var saved: array<vec4<u32>, BLOCK>;
            for (var k = 0u; k < BLOCK; k++) {
                let row = base + k * SUM_LANES;
                if (row < params.spatial) {
                    dy[k] = dy_load(dy_start + row * params.dy.z, count);
                    x[k] = x_load(x_start + row * params.x.z, count);
                    saved[k] = saved_load(saved_start + row * saved_strides().z, count);
                }
            }
            for (var k = 0u; k < BLOCK; k++) {
                if (base + k * SUM_LANES < params.spatial) {
                    for (var part = 0u; part < QUADS; part++) {
                        let xhat = (quad(x[k], part) - terms.mean[part]) * terms.rstd[part];
                        let dpre = pre_gradient(quad(dy[k], part), xhat, quad(saved[k], part), terms.weight[part], terms.bias[part]);
                        sum[part] += dpre;
                        product[part] += dpre * xhat;
                    }
                }
            }
        }
    }
    if (lane < SUM_LANES) {
        for (var part = 0u; part < QUADS; part++) {
            lane_sums[part * SUM_THREADS + thread] = sum[part];
            lane_sums[(QUADS + part) * SUM_THREADS + thread] = product[part];
        }
    }
    workgroupBarrier();
    for (var half = SUM_LANES / 2u; half > 0u; half = half >> 1u) {
        if (lane < half) {
            for (var j = 0u; j < 2u * QUADS; j++) {
                lane_sums[j * SUM_THREADS + thread] += lane_sums[j * SUM_THREADS + thread + half * SUM_COLUMNS];
            }
        }
        workgroupBarrier();
    }
    let column = thread / ELEMENTS;
    let element = thread % ELEMENTS;
    let channel = block * SUM_COLUMNS * ELEMENTS + thread;
    if (column < SUM_COLUMNS && channel < params.channels) {
        let first = element / 4u * SUM_THREADS + column;
        put_parameters(channel, vec2<f32>(lane_sums[first][element % 4u], lane_sums[first + QUADS * SUM_THREADS][element % 4u]));
    }
}

@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_backward_tile(at: Invocation) {
    let thread = thread_index(at);
    let tile = params.first_group + at.workgroup.y * params.groups_x + at.workgroup.x;
    let tiles = params.batch * params.column_blocks;
    if (tile >= tiles) {
        put_columns(thread, tile - tiles);
        return;
    }
    let batch = tile / params.column_blocks;
    let first_group = tile % params.column_blocks * TILE_GROUPS;
    let column = thread % COLUMNS;
    let lane = thread / COLUMNS;
    let first_channel = first_group * params.group_channels + column * ELEMENTS;
    let count = select(0u, count_before(params.channels, first_channel), lane < LANES);
    let end = select(0u, params.spatial, count > 0u);

    // 1. The chunks.
    let dy_start = batch * params.dy.x + first_channel;
    let x_start = batch * params.x.x + first_channel;
    let saved_start = batch * saved_strides().x + first_channel;
    for (var k = 0u; k < CHUNKS; k++) {
        let row = lane + k * LANES;
        if (row < end) {
            held_dy[k] = dy_load(dy_start + row * params.dy.z, count);
            held_x[k] = x_load(x_start + row * params.x.z, count);
            held_saved[k] = saved_load(saved_start + row * saved_strides().z, count);
        }
    }
    let terms = terms_of(batch, first_channel);
    // 2. The sums of each group. `groups` has the group of each of the thread's channels, counted from the tile's first.
    var groups: array<vec4<u32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        if (TILE_GROUPS > 1u) {
            groups[part] = (vec4<u32>(0u, 1u, 2u, 3u) + (column * ELEMENTS + 4u * part)) / params.group_channels;
        }
    }
    var sum: array<vec4<f32>, QUADS>;
    var product: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        if (lane + k * LANES < end) {
            for (var part = 0u; part < QUADS; part++) {
                let xhat = (quad(held_x[k], part) - terms.mean[part]) * terms.rstd[part];
                let dpre = pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), terms.weight[part], terms.bias[part]);
                sum[part] += dpre;
                product[part] += dpre * xhat;
            }
        }
    }
    var mean_g: array<vec4<f32>, QUADS>;
    var mean_product: array<vec4<f32>, QUADS>;
    for (var g = 0u; g < TILE_GROUPS; g++) {
        var own_sum = vec4<f32>();
        var own_product = vec4<f32>();
        for (var part = 0u; part < QUADS; part++) {
            var weight = vec4<f32>(1.0);
            if (HAS_weight) {
                weight = terms.weight[part];
            }
            let is_own = groups[part] == vec4<u32>(g);
            own_sum += select(vec4<f32>(), weight * sum[part], is_own);
            own_product += select(vec4<f32>(), weight * product[part], is_own);
        }
        let means = means_from(row_sums(at, vec2<f32>(add_up(own_sum), add_up(own_product)), g & 1u), first_group + g);
        for (var part = 0u; part < QUADS; part++) {
            let is_own = groups[part] == vec4<u32>(g);
            mean_g[part] = select(mean_g[part], vec4<f32>(means.x), is_own);
            mean_product[part] = select(mean_product[part], vec4<f32>(means.y), is_own);
        }
    }
    // 3. dx and dresidual.
    let dx_start = batch * params.dx.x + first_channel;
    let dresidual_start = batch * params.dresidual.x + first_channel;
    for (var k = 0u; k < CHUNKS; k++) {
        let row = lane + k * LANES;
        if (row < end) {
            var dx: array<vec4<f32>, QUADS>;
            var dresidual: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let rstd = terms.rstd[part];
                let xhat = (quad(held_x[k], part) - terms.mean[part]) * rstd;
                let dpre = pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), terms.weight[part], terms.bias[part]);
                dresidual[part] = dpre;
                dx[part] = input_gradient(dpre, xhat, terms.weight[part], rstd, mean_g[part], mean_product[part]);
            }
            dx_store(dx_start + row * params.dx.z, count, chunk_of(dx));
            if (HAS_dresidual) {
                dresidual_store(dresidual_start + row * params.dresidual.z, count, chunk_of(dresidual));
            }
        }
    }
}
