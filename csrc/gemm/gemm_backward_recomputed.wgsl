// The epilogue that computes the gradient of the pre-activation from a product whose sums, with the bias, are the pre-activation:
// dpre = dout * act'(sums). beside is dout. If dbias is wanted, the columns of a tile's unrounded dpre are added up to partials
// [batch][row of tiles][columns].
fn put_quad(out_at: u32, dout_at: u32, count: u32, sums: vec4<f32>) -> vec4<f32> {
    let dpre = differentiate(params.activation, dout_line(dout_at, params.beside_n, count), sums);
    out_put_line(out_at, params.out_n, count, dpre);
    return dpre;
}

fn finish_tile(tile: Tile, thread: u32, column_sums: vec4<f32>) {
    if (params.wants_column_sums == 0u) {
        return;
    }
    workgroupBarrier();
    tiles[thread] = column_sums;
    workgroupBarrier();
    let n = tile.n + thread * 4u;
    if (thread < RIGHT_QUADS && n < params.n) {
        var sum = tiles[thread];
        for (var other = thread + RIGHT_QUADS; other < WORKGROUP; other += RIGHT_QUADS) {
            sum += tiles[other];
        }
        let row = tile.batch * params.tiles_m + tile.m / TILE_M;
        partials_write(row * ((params.n + 3u) / 4u) + n / 4u, sum);
    }
}
