// The gradient of q: one workgroup a tile of queries, over the tiles of keys that one of them sees.
@compute @workgroup_size(THREADS)
fn attention_backward_queries(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_row = number % params.tiles * TILE;
    let head = number / params.tiles % params.tile_heads;
    let sample = number / params.tiles / params.tile_heads;
    if (sample >= params.samples) {
        return;
    }
    let place = place_of(at, sample, head);
    let keys = keys_of(place.sight, first_row, min(first_row + TILE, params.queries) - 1u);
    let length = u32(place.sight.length);
    var sums = array<vec2<f32>, 4u * CHUNKS>();
    for (var first = keys.x / TILE * TILE; first < keys.y; first += TILE) {
        let tile = weights_of(at, place, first_row, first);
        var receive = received(at, place, tile.weights, first_row, first);
        for (var i = 0u; i < 4u; i++) {
            receive[i] = receive[i] * tile.slopes[i];
        }
        put_weights(at, receive);
        for (var c = 0u; c * TILE < params.depth; c++) {
            let added = weighted_columns(at, place.k, first, length, c * TILE, params.depth);
            for (var i = 0u; i < 4u; i++) {
                sums[4u * c + i] += added[i];
            }
        }
    }
    let to = matrix_of(DQ, sample, head);
    for (var i = 0u; i < 4u; i++) {
        let query = first_row + at.index / 16u + 8u * i;
        for (var c = 0u; c < 2u * CHUNKS; c++) {
            let column = c * 16u + at.index % 16u;
            if (query < params.queries && column < params.depth) {
                let place_of_value = to.base + query * to.row + column * to.column;
                // Infinite keys make NaN of sums of weights that are 0.
                let sum = select(sums[4u * (c / 2u) + i][c % 2u], 0.0, is_blind(number_of(place, query)));
                let value = with_before(params.scale * sum, params.betas.x, value_of(dq_before(place_of_value)));
                put_dq(place_of_value, bits_of(value));
            }
        }
    }
}
