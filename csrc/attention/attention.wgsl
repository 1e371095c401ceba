// Attention: y = softmax(scores) v, one workgroup a tile of queries. Keys come in tiles, of which those that no query of the workgroup sees are left out; the
// largest score so far and the sum of exponentials about it follow the tiles.
var<workgroup> parts: array<f32, THREADS>;
var<workgroup> improper_parts: array<u32, THREADS>;
var<workgroup> factors: array<f32, TILE>;

fn element_bits(which: u32, i: u32) -> u32 {
    if (which == Q) {
        return q_bits(i);
    }
    if (which == K) {
        return k_bits(i);
    }
    return v_bits(i);
}

// Queries that see no key have weights of 0, which forward leaves out.
fn is_silent(matrix: Matrix, row: u32) -> bool {
    return false;
}

@compute @workgroup_size(THREADS)
fn attention(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_row = number % params.tiles * TILE;
    let head = number / params.tiles % params.tile_heads;
    let sample = number / params.tiles / params.tile_heads;
    if (sample >= params.samples) {
        return;
    }
    if (at.index == 0u) {
        length_of_sample = length_of(sample);
    }
    let sight = sight_of(workgroupUniformLoad(&length_of_sample));
    let q = matrix_of(Q, sample, head);
    let k = matrix_of(K, sample, head / params.shared_by);
    let v = matrix_of(V, sample, head / params.shared_by);
    let bias = matrix_of(BIAS, sample, head);
    let y = at.index / 16u;
    let x = at.index % 16u;
    // 1. The tiles of keys that one of the queries sees.
    let keys = keys_of(sight, first_row, min(first_row + TILE, params.queries) - 1u);
    let length = u32(sight.length);
    var results = array<vec2<f32>, 4u * CHUNKS>();
    // Of a row that four threads share when scores become weights.
    let row = at.index / 4u;
    var about = LEAST;
    var sum = 0.0;
    var is_improper = false;
    for (var first = keys.x / TILE * TILE; first < keys.y; first += TILE) {
        // 2. Products of queries and keys, and scores.
        var products = array<vec2<f32>, 4>();
        for (var k_first = 0u; k_first < params.depth; k_first += TILE) {
            workgroupBarrier();
            put_rows(at, true, q, first_row, params.queries, k_first, params.depth);
            put_rows(at, false, k, first, length, k_first, params.depth);
            workgroupBarrier();
            products = tile_products(at, products);
        }
        for (var i = 0u; i < 4u; i++) {
            for (var j = 0u; j < 2u; j++) {
                let query = first_row + y + 8u * i;
                let key = first + x + 16u * j;
                var score = unseen();
                if (sees(sight, query, key) && (!IS_PAGED || begin_of(k, key).y != 0u)) {
                    score = score_of(products[i][j], bias, query, key).x;
                }
                weights[(y + 8u * i) * 36u + x + 16u * j] = score;
            }
        }
        workgroupBarrier();
        // 3. The largest score of each row, and weights.
        let place = row * 36u + at.index % 4u * 8u;
        let s0 = vec4<f32>(weights[place], weights[place + 1u], weights[place + 2u], weights[place + 3u]);
        let s1 = vec4<f32>(weights[place + 4u], weights[place + 5u], weights[place + 6u], weights[place + 7u]);
        is_improper = is_improper || any(are_improper(s0)) || any(are_improper(s1));
        let without0 = are_unseen(s0) | are_improper(s0);
        let without1 = are_unseen(s1) | are_improper(s1);
        let greater = max(select(s0, vec4<f32>(LEAST), without0), select(s1, vec4<f32>(LEAST), without1));
        parts[at.index] = max(max(greater.x, greater.y), max(greater.z, greater.w));
        workgroupBarrier();
        let start = row * 4u;
        let top = max(max(max(parts[start], parts[start + 1u]), max(parts[start + 2u], parts[start + 3u])), about);
        let p0 = select(exponential(min(s0 - top, vec4<f32>())), vec4<f32>(), without0);
        let p1 = select(exponential(min(s1 - top, vec4<f32>())), vec4<f32>(), without1);
        let factor = exponential(vec4<f32>(max(about - top, -100.0))).x;
        about = top;
        let both = p0 + p1;
        sum = sum * factor + ((both.x + both.y) + (both.z + both.w));
        for (var c = 0u; c < 4u; c++) {
            weights[place + c] = p0[c];
            weights[place + 4u + c] = p1[c];
        }
        if (at.index % 4u == 0u) {
            factors[row] = factor;
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            for (var c = 0u; c < CHUNKS; c++) {
                results[4u * c + i] *= factors[y + 8u * i];
            }
        }
        // 4. Weights times values.
        for (var c = 0u; c * TILE < params.value_depth; c++) {
            workgroupBarrier();
            put_columns(at, v, first, length, c * TILE, params.value_depth);
            workgroupBarrier();
            let added = weighted(at);
            for (var i = 0u; i < 4u; i++) {
                results[4u * c + i] += added[i];
            }
        }
    }
    // 5. The outputs.
    workgroupBarrier();
    parts[at.index] = sum;
    improper_parts[at.index] = select(0u, 1u, is_improper);
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let query = first_row + y + 8u * i;
        let start = (y + 8u * i) * 4u;
        let total = (parts[start] + parts[start + 1u]) + (parts[start + 2u] + parts[start + 3u]);
        let improper = improper_parts[start] | improper_parts[start + 1u] | improper_parts[start + 2u] | improper_parts[start + 3u];
        if (query >= params.queries) {
            continue;
        }
        let to = matrix_of(Y, sample, head);
        for (var c = 0u; c < CHUNKS; c++) {
            for (var j = 0u; j < 2u; j++) {
                let column = c * TILE + x + 16u * j;
                if (column < params.value_depth) {
                    var value = select(results[4u * c + i][j] / total, 0.0, total == 0.0);
                    value = select(value, no_number(), improper != 0u);
                    y_scatter(to.base + query * to.row + column * to.column, 1u, 1u, vec4<u32>(bits_of(value), 0u, 0u, 0u));
                }
            }
        }
    }
    if (HAS_LSE && at.index % 4u == 0u && first_row + row < params.queries) {
        let start = row * 4u;
        let total = (parts[start] + parts[start + 1u]) + (parts[start + 2u] + parts[start + 3u]);
        let improper = improper_parts[start] | improper_parts[start + 1u] | improper_parts[start + 2u] | improper_parts[start + 3u];
        var value = about + logarithm(vec4<f32>(max(total, 1e-30))).x;
        value = select(value, unseen(), total == 0.0);
        value = select(value, no_number(), improper != 0u);
        let to = matrix_of(LSE, sample, head);
        put_lse(to.base + (first_row + row) * to.row, bitcast<u32>(value));
    }
}
