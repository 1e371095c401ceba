// The gradients of k and v: one workgroup a tile of keys, over the tiles of queries that see one of them, of one head after the other that shares them.
@compute @workgroup_size(THREADS)
fn attention_backward_keys(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_row = number % params.tiles * TILE;
    let of_keys = number / params.tiles % params.tile_heads;
    let sample = number / params.tiles / params.tile_heads;
    if (sample >= params.samples) {
        return;
    }
    var of_k = array<vec2<f32>, 4u * CHUNKS>();
    var of_v = array<vec2<f32>, 4u * CHUNKS>();
    for (var head = of_keys * params.shared_by; head < (of_keys + 1u) * params.shared_by; head++) {
        let place = place_of(at, sample, head);
        let length = u32(place.sight.length);
        let queries = queries_of(place.sight, first_row, max(min(first_row + TILE, length), 1u) - 1u);
        let end = select(queries.y, 0u, first_row >= length);
        for (var first = queries.x / TILE * TILE; first < end; first += TILE) {
            let tile = weights_of(at, place, first_row, first);
            put_weights(at, tile.weights);
            for (var c = 0u; c * TILE < params.value_depth; c++) {
                let added = weighted_columns(at, place.dy, first, params.queries, c * TILE, params.value_depth);
                for (var i = 0u; i < 4u; i++) {
                    of_v[4u * c + i] += added[i];
                }
            }
            var receive = received(at, place, tile.weights, first_row, first);
            for (var i = 0u; i < 4u; i++) {
                receive[i] = receive[i] * tile.slopes[i];
            }
            put_weights(at, receive);
            for (var c = 0u; c * TILE < params.depth; c++) {
                let added = weighted_columns(at, place.q, first, params.queries, c * TILE, params.depth);
                for (var i = 0u; i < 4u; i++) {
                    of_k[4u * c + i] += added[i];
                }
            }
        }
    }
    let dk = matrix_of(DK, sample, of_keys);
    let dv = matrix_of(DV, sample, of_keys);
    for (var i = 0u; i < 4u; i++) {
        let key = first_row + at.index / 16u + 8u * i;
        // Keys beyond the length are rows of the tile, but of no sum.
        let is_there = key < length_of_sample;
        for (var c = 0u; c < 2u * CHUNKS; c++) {
            let column = c * 16u + at.index % 16u;
            if (HAS_DK && key < params.keys && column < params.depth) {
                let to = dk.base + key * dk.row + column * dk.column;
                let value = with_before(select(0.0, params.scale * of_k[4u * (c / 2u) + i][c % 2u], is_there), params.betas.y, value_of(dk_before(to)));
                put_dk(to, bits_of(value));
            }
            if (HAS_DV && key < params.keys && column < params.value_depth) {
                let to = dv.base + key * dv.row + column * dv.column;
                let value = with_before(select(0.0, of_v[4u * (c / 2u) + i][c % 2u], is_there), params.betas.z, value_of(dv_before(to)));
                put_dv(to, bits_of(value));
            }
        }
    }
}
