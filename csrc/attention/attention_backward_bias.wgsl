// The gradient of the bias: what scores receive, summed over the extents along which the bias is repeated. One workgroup a tile of its queries and keys.
@compute @workgroup_size(THREADS)
fn attention_backward_bias(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    // 1. The elements of the bias that the workgroup has, and what is summed for them.
    let extents = params.bias_extents;
    let key_tiles = (extents.w + TILE - 1u) / TILE;
    let query_tiles = (extents.z + TILE - 1u) / TILE;
    let has_queries = extents.z > 1u;
    let has_keys = extents.w > 1u;
    let first_key = number % key_tiles * TILE;
    let first_query = number / key_tiles % query_tiles * TILE;
    let head = number / key_tiles / query_tiles % extents.y;
    let sample = number / key_tiles / query_tiles / extents.y;
    if (sample >= extents.x) {
        return;
    }
    let samples = select(params.samples, sample + 1u, extents.x > 1u);
    let heads = select(params.heads, head + 1u, extents.y > 1u);
    let queries = select(params.queries, min(first_query + TILE, params.queries), has_queries);
    // 2. The sums.
    var sums = array<vec2<f32>, 4>();
    for (var s = sample; s < samples; s++) {
        for (var h = head; h < heads; h++) {
            let place = place_of(at, s, h);
            for (var row = first_query; row < queries; row += TILE) {
                let seen = keys_of(place.sight, row, min(row + TILE, params.queries) - 1u);
                let first = max(seen.x / TILE * TILE, first_key);
                let end = min(seen.y, select(params.keys, first_key + TILE, has_keys));
                for (var column = first; column < end; column += TILE) {
                    let tile = weights_of(at, place, row, column);
                    let receive = received(at, place, tile.weights, row, column);
                    for (var i = 0u; i < 4u; i++) {
                        sums[i] += receive[i];
                    }
                }
            }
        }
    }
    // 3. The sums of a tile, where the bias has one query or one key.
    workgroupBarrier();
    put_weights(at, sums);
    workgroupBarrier();
    let rows = select(1u, min(TILE, extents.z - first_query), has_queries);
    let columns = select(1u, min(TILE, extents.w - first_key), has_keys);
    let high = select(TILE, 1u, has_queries);
    let wide = select(TILE, 1u, has_keys);
    let strides = params.strides[DBIAS];
    for (var n = at.index; n < rows * columns; n += THREADS) {
        var sum = 0.0;
        for (var i = n / columns; i < n / columns + high; i++) {
            var of_row = 0.0;
            for (var j = n % columns; j < n % columns + wide; j++) {
                of_row += weights[i * 36u + j];
            }
            sum += of_row;
        }
        let to = sample * strides.x + head * strides.y + (first_query + n / columns) * strides.z + (first_key + n % columns) * strides.w;
        let bits = dbias_before(to);
        let value = with_before(sum, params.betas.w, select(bitcast<f32>(bits), unpack(bits).x, BIAS_IS_HALF));
        put_dbias(to, select(bitcast<u32>(value), round_to_half(value), BIAS_IS_HALF));
    }
}
