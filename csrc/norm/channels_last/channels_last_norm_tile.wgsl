// Form channels_last_tile: TILE_GROUPS whole groups of a sample in the registers of a workgroup. The threads are COLUMNS side by side, which
// are the chunks of these groups in a row, and LANES below each other; a thread takes every LANES-th row.
const LANES: u32 = THREADS / COLUMNS;

@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_tile(at: Invocation) {
    let thread = thread_index(at);
    let tile = at.workgroup.y * params.groups_x + at.workgroup.x;
    let is_tile = tile < params.batch * params.column_blocks;
    let batch = select(0u, tile / params.column_blocks, is_tile);
    let first_group = tile % params.column_blocks * TILE_GROUPS;
    let column = thread % COLUMNS;
    let lane = thread / COLUMNS;
    let first_channel = first_group * params.group_channels + column * ELEMENTS;
    let count = select(0u, count_before(params.channels, first_channel), is_tile && lane < LANES);

    // 1. The chunks and the parameters.
    var chunks: array<vec4<u32>, CHUNKS>;
    let x_start = batch * params.x.x + first_channel;
    for (var k = 0u; k < CHUNKS; k++) {
        let row = lane + k * LANES;
        if (count > 0u && row < params.spatial) {
            chunks[k] = x_load(x_start + row * params.x.z, count);
        }
    }
    // Loaded with the rows, since nothing hides the latency later.
    var weight: array<vec4<f32>, QUADS>;
    var bias: array<vec4<f32>, QUADS>;
    if (count > 0u) {
        for (var part = 0u; part < QUADS; part++) {
            weight[part] = weight_quad(first_channel + 4u * part);
            bias[part] = bias_quad(first_channel + 4u * part);
        }
    }

    // 2. The mean of each group. `groups` has the group of each of the thread's channels, counted from the tile's first.
    var groups: array<vec4<u32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        if (TILE_GROUPS > 1u) {
            groups[part] = (vec4<u32>(0u, 1u, 2u, 3u) + (column * ELEMENTS + 4u * part)) / params.group_channels;
        }
    }
    var sum: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            sum[part] += quad(chunks[k], part);
        }
    }
    var shift: array<vec4<f32>, QUADS>;
    for (var g = 0u; g < TILE_GROUPS; g++) {
        var own = vec4<f32>();
        for (var part = 0u; part < QUADS; part++) {
            own += select(vec4<f32>(), sum[part], groups[part] == vec4<u32>(g));
        }
        // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
        let mean = row_sum(at, add_up(own) * params.reciprocal_count, g & 1u);
        for (var part = 0u; part < QUADS; part++) {
            shift[part] = select(shift[part], vec4<f32>(mean), groups[part] == vec4<u32>(g));
        }
    }

    // 3. The means of the differences and of their squares: correction and variance.
    sum = array<vec4<f32>, QUADS>();
    var square: array<vec4<f32>, QUADS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let is_row = count > 0u && lane + k * LANES < params.spatial;
        for (var part = 0u; part < QUADS; part++) {
            // Chunks that were not loaded are 0 and stay so.
            let d = quad(chunks[k], part) - select(vec4<f32>(), shift[part], is_row);
            sum[part] += d;
            square[part] += d * d;
        }
    }
    var correction: array<vec4<f32>, QUADS>;
    var rstd: array<vec4<f32>, QUADS>;
    for (var g = 0u; g < TILE_GROUPS; g++) {
        var own_sum = vec4<f32>();
        var own_square = vec4<f32>();
        for (var part = 0u; part < QUADS; part++) {
            let is_own = groups[part] == vec4<u32>(g);
            own_sum += select(vec4<f32>(), sum[part], is_own);
            own_square += select(vec4<f32>(), square[part], is_own);
        }
        let own = vec2<f32>(add_up(own_sum), add_up(own_square)) * params.reciprocal_count;
        let moments = row_sums(at, own, (TILE_GROUPS + g) & 1u);
        let statistics = finish_statistics(0.0, moments.x, moments.y);
        for (var part = 0u; part < QUADS; part++) {
            let is_own = groups[part] == vec4<u32>(g);
            correction[part] = select(correction[part], vec4<f32>(statistics.correction), is_own);
            rstd[part] = select(rstd[part], vec4<f32>(statistics.rstd), is_own);
        }
        // The thread with the group's first channel in the first row saves the statistics.
        for (var element = 0u; element < ELEMENTS; element++) {
            if (lane == 0u && element < count && column * ELEMENTS + element == g * params.group_channels) {
                let group = batch * params.groups + first_group + g;
                let own_shift = shift[element / 4u][element % 4u];
                save_statistics(group, Statistics(own_shift, statistics.correction, statistics.rstd, statistics.variance));
            }
        }
    }
    // 4. y.
    let residual_start = batch * params.residual.x + first_channel;
    let y_start = batch * params.y.x + first_channel;
    for (var k = 0u; k < CHUNKS; k++) {
        let row = lane + k * LANES;
        if (count > 0u && row < params.spatial) {
            var addend: vec4<u32>;
            if (HAS_residual) {
                addend = residual_load(residual_start + row * params.residual.z, count);
            }
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let d = (quad(chunks[k], part) - shift[part]) - correction[part];
                y[part] = finish_quad(d * rstd[part], weight[part], bias[part], quad(addend, part));
            }
            y_store(y_start + row * params.y.z, count, chunk_of(y));
        }
    }
}
