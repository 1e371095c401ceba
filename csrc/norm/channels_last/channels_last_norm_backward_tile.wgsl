// Form channels_last_tile: TILE_GROUPS whole groups of a sample in the registers of a workgroup. The threads are COLUMNS side by side, which
// are the chunks of these groups in a row, and LANES below each other; a thread takes every LANES-th row. The workgroups past those of the
// groups write dweight and dbias, for SUM_COLUMNS chunks of channels each, and read dy and x a second time; if dx lies in the place of dy, they
// come in a dispatch before.
const LANES: u32 = THREADS / COLUMNS;
const SUM_THREADS: u32 = SUM_COLUMNS * SUM_LANES; // threads that add up; the workgroup has as many or more
// Rows of which a thread that adds up loads one chunk of each tensor before it uses the first. More would hide more latency and take more registers.
const BATCH: u32 = 4u;
const HELD: u32 = CHUNKS; // chunks of each tensor of its tile that a thread has in registers

var<workgroup> lane_sums: array<vec4<f32>, 2u * QUADS * SUM_THREADS>;

// The means of g and of g * xhat, 0 here since step 2 puts them in the terms, then mean and rstd of the channel's group.
fn channel_means(batch: u32, channel: u32) -> vec4<f32> {
    return vec4<f32>(0.0, 0.0, statistics_of_group(group_of(batch, channel)));
}

// dweight and dbias of the channels of SUM_COLUMNS chunks, by all threads of a workgroup.
// It has arrays and a loop of its own: with those of add_row_chunk, dx of 3 chunks a thread took 11 % longer on an H200.
fn put_columns(thread: u32, block: u32) {
    let lane = thread / SUM_COLUMNS;
    let first_channel = (block * SUM_COLUMNS + thread % SUM_COLUMNS) * ELEMENTS;
    let count = select(0u, count_before(params.channels, first_channel), lane < SUM_LANES);
    var sum: array<vec4<f32>, QUADS>;
    var product: array<vec4<f32>, QUADS>;
    for (var batch = 0u; batch < select(0u, params.batch, count > 0u); batch++) {
        let terms = row_chunk_terms(batch, first_channel);
        let dy_start = batch * params.dy.x + first_channel;
        let x_start = batch * params.x.x + first_channel;
        let saved_start = batch * saved_strides().x + first_channel;
        for (var base = lane; base < params.spatial; base += BATCH * SUM_LANES) {
            var dy: array<vec4<u32>, BATCH>;
            var x: array<vec4<u32>, BATCH>;
            var saved: array<vec4<u32>, BATCH>;
            for (var k = 0u; k < BATCH; k++) {
                let row = base + k * SUM_LANES;
                if (row < params.spatial) {
                    dy[k] = dy_load(dy_start + row * params.dy.z, count);
                    x[k] = x_load(x_start + row * params.x.z, count);
                    saved[k] = saved_load(saved_start + row * saved_strides().z, count);
                }
            }
            for (var k = 0u; k < BATCH; k++) {
                if (base + k * SUM_LANES < params.spatial) {
                    for (var part = 0u; part < QUADS; part++) {
                        let xhat = (quad(x[k], part) - terms[part].mean) * terms[part].rstd;
                        let dpre = pre_gradient(quad(dy[k], part), xhat, quad(saved[k], part), terms[part].weight, terms[part].bias);
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
    let tile = params.first_workgroup + at.workgroup.y * params.groups_x + at.workgroup.x;
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
    for (var k = 0u; k < CHUNKS; k++) {
        if (lane + k * LANES < end) {
            hold_row_chunk(k, batch, first_channel, lane + k * LANES, count);
        }
    }
    var terms = row_chunk_terms(batch, first_channel);
    // 2. The sums of each group. `groups` has the group of each of the thread's channels, counted from the tile's first.
    var groups: array<vec4<u32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        if (TILE_GROUPS > 1u) {
            groups[part] = (vec4<u32>(0u, 1u, 2u, 3u) + (column * ELEMENTS + 4u * part)) / params.group_channels;
        }
    }
    for (var k = 0u; k < CHUNKS; k++) {
        if (lane + k * LANES < end) {
            add_row_chunk(k, terms);
        }
    }
    for (var g = 0u; g < TILE_GROUPS; g++) {
        var own_sum = vec4<f32>();
        var own_product = vec4<f32>();
        for (var part = 0u; part < QUADS; part++) {
            var weight = vec4<f32>(1.0);
            if (HAS_weight) {
                weight = terms[part].weight;
            }
            let is_own = groups[part] == vec4<u32>(g);
            own_sum += select(vec4<f32>(), weight * row_chunk_sums[part], is_own);
            own_product += select(vec4<f32>(), weight * row_chunk_sums[QUADS + part], is_own);
        }
        let means = means_from(row_sums(at, vec2<f32>(add_up(own_sum), add_up(own_product)), g & 1u), first_group + g);
        for (var part = 0u; part < QUADS; part++) {
            let is_own = groups[part] == vec4<u32>(g);
            terms[part].mean_g = select(terms[part].mean_g, vec4<f32>(means.x), is_own);
            terms[part].mean_product = select(terms[part].mean_product, vec4<f32>(means.y), is_own);
        }
    }
    // 3. dx and dresidual.
    for (var k = 0u; k < CHUNKS; k++) {
        if (lane + k * LANES < end) {
            put_row_chunk(k, batch, first_channel, lane + k * LANES, count, terms);
        }
    }
}
