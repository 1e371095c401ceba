// Channels last, last dispatch: dx and dresidual. prepare_columns, column_means and put_remaining come from channels_last_norm_backward_known, or
// from channels_last_norm_backward_merging and channel_norm_backward_merge_held.
//
// Slices are taken in reverse order: what the sums read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channels_last_norm_backward_apply(at: Invocation) {
    let thread = thread_index(at);
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.slices * params.column_blocks;
    if (group >= items) {
        put_remaining(at, thread, group - items);
        return;
    }
    let columns = columns_of(items - 1u - group, thread);
    if (READS_FIRST) {
        load_rows(columns, columns.first);
    }
    prepare_columns(at, thread, columns);
    if (columns.count == 0u) {
        return;
    }
    let constants = constants_of(columns, thread);
    for (var first = columns.first; first < columns.end; first += AHEAD * LANES) {
        if (!READS_FIRST || first > columns.first) {
            load_rows(columns, first);
        }
        for (var k = 0u; k < AHEAD; k++) {
            let row = first + k * LANES;
            if (row < columns.end) {
                var dx: array<vec4<f32>, QUADS>;
                var dresidual: array<vec4<f32>, QUADS>;
                for (var part = 0u; part < QUADS; part++) {
                    let rstd = constants.rstd[part];
                    let xhat = (quad(held_x[k], part) - constants.mean[part]) * rstd;
                    let dpre = dpre_of(k, part, xhat, constants);
                    dresidual[part] = dpre;
                    dx[part] = input_gradient(dpre, xhat, constants.weight[part], rstd, constants.mean_g[part], constants.mean_product[part]);
                }
                if (HAS_dx) {
                    dx_store(chunk_start(columns, row, params.dx), columns.count, chunk_of(dx));
                }
                if (HAS_dresidual) {
                    dresidual_store(chunk_start(columns, row, params.dresidual), columns.count, chunk_of(dresidual));
                }
            }
        }
    }
}
