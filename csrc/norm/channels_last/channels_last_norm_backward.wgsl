// Channels last: the terms of the channels of a chunk, and functions that load, add up and write a chunk. channel_means comes from
// channels_last_norm_backward_known, channels_last_norm_backward_merging or channels_last_norm_backward_tile.

// The terms of the channels from `first_channel` on, past the last channel those of the last.
fn row_chunk_terms(batch: u32, first_channel: u32) -> array<Terms, QUADS> {
    var terms: array<Terms, QUADS>;
    for (var element = 0u; element < ELEMENTS; element++) {
        let channel = min(first_channel + element, params.channels - 1u);
        let means = channel_means(batch, channel);
        terms[element / 4u].mean[element % 4u] = means.z;
        terms[element / 4u].rstd[element % 4u] = means.w;
        terms[element / 4u].weight[element % 4u] = weight_of(channel);
        terms[element / 4u].bias[element % 4u] = bias_of(channel);
        terms[element / 4u].mean_g[element % 4u] = means.x;
        terms[element / 4u].mean_product[element % 4u] = means.y;
    }
    return terms;
}

// The sums of dpre, then of dpre * xhat, of each of a thread's channels.
var<private> row_chunk_sums: array<vec4<f32>, 2u * QUADS>;

fn add_row_chunk(k: u32, terms: array<Terms, QUADS>) {
    for (var part = 0u; part < QUADS; part++) {
        let gradient = gradient_of(k, part, terms[part]);
        row_chunk_sums[part] += gradient.dpre;
        row_chunk_sums[QUADS + part] += gradient.dpre * gradient.xhat;
    }
}

// Where the chunk of row `row` of a sample from `first_channel` on lies in a tensor.
fn row_chunk_start(batch: u32, first_channel: u32, row: u32, strides: vec3<u32>) -> u32 {
    return batch * strides.x + first_channel + row * strides.z;
}

// Loads chunk `k`.
fn hold_row_chunk(k: u32, batch: u32, first_channel: u32, row: u32, count: u32) {
    let dy_first = row_chunk_start(batch, first_channel, row, params.dy);
    let x_first = row_chunk_start(batch, first_channel, row, params.x);
    hold(k, dy_first, x_first, row_chunk_start(batch, first_channel, row, saved_strides()), count);
}

// Writes dx and dresidual of chunk `k`.
fn put_row_chunk(k: u32, batch: u32, first_channel: u32, row: u32, count: u32, terms: array<Terms, QUADS>) {
    var dx: array<vec4<f32>, QUADS>;
    var dresidual: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        let gradient = gradient_of(k, part, terms[part]);
        dresidual[part] = gradient.dpre;
        dx[part] = dx_of(gradient, terms[part]);
    }
    let dx_first = row_chunk_start(batch, first_channel, row, params.dx);
    put_gradients(count, dx_first, dx, row_chunk_start(batch, first_channel, row, params.dresidual), dresidual);
}
