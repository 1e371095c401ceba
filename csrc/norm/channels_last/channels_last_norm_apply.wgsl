// Channels last, last dispatch: y. prepare_columns and column_statistics come from channels_last_norm_known or channels_last_norm_merging.
//
// Slices are taken in reverse order: what the moments read last may still be in a cache.
var<private> chunks: array<vec4<u32>, AHEAD>;
var<private> addends: array<vec4<u32>, AHEAD>;

fn load_rows(columns: Columns, first: u32) {
    for (var k = 0u; k < AHEAD; k++) {
        let row = first + k * LANES;
        if (columns.count > 0u && row < columns.end) {
            chunks[k] = x_load(chunk_start(columns, row, params.x), columns.count);
            addends[k] = residual_load(chunk_start(columns, row, params.residual), columns.count);
        }
    }
}

// y of four elements, from their differences `d` from the shift.
fn y_of(d: vec4<f32>, scale: vec4<f32>, offset: vec4<f32>, residual: vec4<f32>) -> vec4<f32> {
    var v = fma(d, scale, offset);
    if (HAS_residual) {
        v = v + residual;
    }
    return activate(ACTIVATION, v);
}

@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_apply(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.slices * params.column_blocks;
    let columns = columns_of(select(items - 1u - min(workgroup, items - 1u), items, workgroup >= items), thread);
    if (READS_FIRST) {
        load_rows(columns, columns.first);
    }
    // Loaded before the barriers of a merge, which hide the latency.
    var weight: array<vec4<f32>, QUADS>;
    var bias: array<vec4<f32>, QUADS>;
    let first_channel = select(0u, columns.first_channel, columns.count > 0u);
    for (var part = 0u; part < QUADS; part++) {
        weight[part] = weight_quad(first_channel + 4u * part);
        bias[part] = bias_quad(first_channel + 4u * part);
    }
    let groups = groups_of(columns);
    prepare_columns(at, thread, columns, workgroup < items);
    if (columns.count > 0u) {
        var shift: array<vec4<f32>, QUADS>;
        var scale: array<vec4<f32>, QUADS>;
        var offset: array<vec4<f32>, QUADS>;
        for (var element = 0u; element < ELEMENTS; element++) {
            let group = groups[element / 4u][element % 4u];
            let statistics = column_statistics(columns, thread, group, channel_at(columns, element));
            shift[element / 4u][element % 4u] = statistics.shift;
            scale[element / 4u][element % 4u] = statistics.rstd;
            offset[element / 4u][element % 4u] = -statistics.correction;
        }
        for (var part = 0u; part < QUADS; part++) {
            if (HAS_weight) {
                scale[part] *= weight[part];
            }
            offset[part] *= scale[part];
            if (HAS_bias) {
                offset[part] += bias[part];
            }
        }
        for (var first = columns.first; first < columns.end; first += AHEAD * LANES) {
            if (!READS_FIRST || first > columns.first) {
                load_rows(columns, first);
            }
            for (var k = 0u; k < AHEAD; k++) {
                let row = first + k * LANES;
                if (row < columns.end) {
                    var y: array<vec4<f32>, QUADS>;
                    for (var part = 0u; part < QUADS; part++) {
                        y[part] = y_of(quad(chunks[k], part) - shift[part], scale[part], offset[part], quad(addends[k], part));
                    }
                    y_store(chunk_start(columns, row, params.y), columns.count, chunk_of(y));
                }
            }
        }
    }
    count_batch(workgroup, thread);
}
