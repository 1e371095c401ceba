// Attention of few queries: a workgroup takes the queries of all heads that share a head of keys through one part of the keys, so that each key is read once for up to
// 32 of them, and writes the largest score, the sum of exponentials and the sums of weighted values; attention_split_merge merges the parts in their order.
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

// Puts 32 columns of the queries of a tile into the left tile.
fn put_shared_rows(at: Invocation, sample: u32, kv_head: u32, first_row: u32, first_column: u32) {
    for (var n = at.index; n < 256u; n += THREADS) {
        let row = first_row + n / 8u;
        var four = vec4<f32>();
        if (row < params.split.z) {
            let q = matrix_of(Q, sample, kv_head * params.shared_by + row / params.queries);
            four = four_of(q, row % params.queries, params.queries, first_column + 4u * (n % 8u), params.depth);
        }
        left_tile[n / 8u * ROW + n % 8u] = four;
    }
}

@compute @workgroup_size(THREADS)
fn attention_split(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let part = number % params.split.x;
    let first_row = number / params.split.x % params.tiles * TILE;
    let group = number / params.split.x / params.tiles;
    let kv_head = group % params.tile_heads;
    let sample = group / params.tile_heads;
    if (sample >= params.samples) {
        return;
    }
    if (at.index == 0u) {
        length_of_sample = length_of(sample);
    }
    let sight = sight_of(workgroupUniformLoad(&length_of_sample));
    let k = matrix_of(K, sample, kv_head);
    let v = matrix_of(V, sample, kv_head);
    let y = at.index / 16u;
    let x = at.index % 16u;
    // 1. The keys of the part that one of the rows sees, which are queries of heads that share a head of keys.
    let last_row = min(first_row + TILE, params.split.z) - 1u;
    let is_one_head = first_row / params.queries == last_row / params.queries;
    let all_keys = keys_of(
        sight,
        select(0u, first_row % params.queries, is_one_head),
        select(params.queries - 1u, last_row % params.queries, is_one_head),
    );
    let keys = vec2<u32>(max(all_keys.x, part * params.split.y), min(all_keys.y, (part + 1u) * params.split.y));
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
            put_shared_rows(at, sample, kv_head, first_row, k_first);
            put_rows(at, false, k, first, length, k_first, params.depth);
            workgroupBarrier();
            products = tile_products(at, products);
        }
        for (var i = 0u; i < 4u; i++) {
            for (var j = 0u; j < 2u; j++) {
                let shared_row = first_row + y + 8u * i;
                let query = shared_row % params.queries;
                let key = first + x + 16u * j;
                var score = unseen();
                if (shared_row < params.split.z && sees(sight, query, key) && (!IS_PAGED || begin_of(k, key).y != 0u)) {
                    let bias = matrix_of(BIAS, sample, kv_head * params.shared_by + shared_row / params.queries);
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
    // 5. What the part gives each row.
    workgroupBarrier();
    parts[at.index] = sum;
    improper_parts[at.index] = select(0u, 1u, is_improper);
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let shared_row = first_row + y + 8u * i;
        if (shared_row >= params.split.z) {
            continue;
        }
        let place = ((group * params.split.z + shared_row) * params.split.x + part) * params.value_depth;
        for (var c = 0u; c < CHUNKS; c++) {
            for (var j = 0u; j < 2u; j++) {
                let column = c * TILE + x + 16u * j;
                if (column < params.value_depth) {
                    of_parts_scatter(place + column, 1u, 1u, vec4<u32>(bitcast<u32>(results[4u * c + i][j]), 0u, 0u, 0u));
                }
            }
        }
    }
    if (at.index % 4u == 0u && first_row + row < params.split.z) {
        let start = row * 4u;
        let total = (parts[start] + parts[start + 1u]) + (parts[start + 2u] + parts[start + 3u]);
        let improper = improper_parts[start] | improper_parts[start + 1u] | improper_parts[start + 2u] | improper_parts[start + 3u];
        let of_rows = params.samples * params.heads * params.queries * params.split.x * params.value_depth;
        let place = of_rows + 3u * ((group * params.split.z + first_row + row) * params.split.x + part);
        of_parts_scatter(place, 1u, 3u, vec4<u32>(bitcast<u32>(about), bitcast<u32>(total), improper, 0u));
    }
}
