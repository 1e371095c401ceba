// What the gradients of attention share: of a tile of queries and keys the weights, which follow from lse, and what scores receive. Rows of a tile are queries, or, for
// dk and dv, keys.
fn element_bits(which: u32, i: u32) -> u32 {
    if (which == Q) {
        return q_bits(i);
    }
    if (which == K) {
        return k_bits(i);
    }
    if (which == V) {
        return v_bits(i);
    }
    return dy_bits(i);
}

// Whether a query has no gradients, since it sees no key. Then nothing that its rows of q and dy hold, NaN neither, gets into a sum.
fn is_blind(number: u32) -> bool {
    return stats_bits(2u * number) == 0xff800000u;
}

fn is_silent(matrix: Matrix, row: u32) -> bool {
    return (matrix.which == Q || matrix.which == DY) && is_blind(matrix.first + row);
}

// A sample and a head of q.
struct Place {
    sample: u32,
    head: u32,
    sight: Sight,
    q: Matrix,
    k: Matrix,
    v: Matrix,
    dy: Matrix,
    bias: Matrix,
}

// Called by all threads at once.
fn place_of(at: Invocation, sample: u32, head: u32) -> Place {
    if (at.index == 0u) {
        length_of_sample = stats_bits(2u * params.samples * params.heads * params.queries + sample);
    }
    let sight = sight_of(workgroupUniformLoad(&length_of_sample));
    let of_keys = head / params.shared_by;
    return Place(
        sample,
        head,
        sight,
        matrix_of(Q, sample, head),
        matrix_of(K, sample, of_keys),
        matrix_of(V, sample, of_keys),
        matrix_of(DY, sample, head),
        matrix_of(BIAS, sample, head),
    );
}

// Products of 32 rows of one matrix and of another. Called by all threads at once; before and after it the tiles are theirs.
fn products_of(at: Invocation, left: Matrix, left_first: u32, left_rows: u32, right: Matrix, right_first: u32, right_rows: u32, depth: u32) -> array<vec2<f32>, 4> {
    var products = array<vec2<f32>, 4>();
    for (var first = 0u; first < depth; first += TILE) {
        workgroupBarrier();
        put_rows(at, true, left, left_first, left_rows, first, depth);
        put_rows(at, false, right, right_first, right_rows, first, depth);
        workgroupBarrier();
        products = tile_products(at, products);
    }
    return products;
}

// The weights of the thread's places, and the slopes of the soft cap.
struct Weights {
    weights: array<vec2<f32>, 4>,
    slopes: array<vec2<f32>, 4>,
}

fn weights_of(at: Invocation, place: Place, first_row: u32, first_column: u32) -> Weights {
    let length = u32(place.sight.length);
    var products: array<vec2<f32>, 4>;
    if (ROWS_ARE_KEYS) {
        products = products_of(at, place.k, first_row, length, place.q, first_column, params.queries, params.depth);
    } else {
        products = products_of(at, place.q, first_row, params.queries, place.k, first_column, length, params.depth);
    }
    var result: Weights;
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 2u; j++) {
            let row = first_row + at.index / 16u + 8u * i;
            let column = first_column + at.index % 16u + 16u * j;
            let query = select(row, column, ROWS_ARE_KEYS);
            let key = select(column, row, ROWS_ARE_KEYS);
            var weight = 0.0;
            var slope = 1.0;
            if (sees(place.sight, query, key)) {
                let score = score_of(products[i][j], place.bias, query, key);
                let lse = bitcast<f32>(stats_bits(2u * number_of(place, query)));
                let both = vec4<f32>(score.x, lse, 0.0, 0.0);
                weight = exponential(vec4<f32>(min(score.x - lse, 89.0))).x;
                weight = select(weight, 0.0, any(are_unseen(both)));
                weight = select(weight, no_number(), any(are_improper(both)));
                // Of a query without a part even if keys are infinite, so that scores are NaN.
                weight = select(weight, 0.0, are_unseen(both).y);
                slope = score.y;
            }
            result.weights[i][j] = weight;
            result.slopes[i][j] = slope;
        }
    }
    return result;
}

// Among the queries of all heads and samples.
fn number_of(place: Place, query: u32) -> u32 {
    return (place.sample * params.heads + place.head) * params.queries + query;
}

// What the scores of the thread's places receive.
fn received(at: Invocation, place: Place, weight: array<vec2<f32>, 4>, first_row: u32, first_column: u32) -> array<vec2<f32>, 4> {
    let length = u32(place.sight.length);
    var products: array<vec2<f32>, 4>;
    if (ROWS_ARE_KEYS) {
        products = products_of(at, place.v, first_row, length, place.dy, first_column, params.queries, params.value_depth);
    } else {
        products = products_of(at, place.dy, first_row, params.queries, place.v, first_column, length, params.value_depth);
    }
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 2u; j++) {
            let row = first_row + at.index / 16u + 8u * i;
            let column = first_column + at.index % 16u + 16u * j;
            let query = select(row, column, ROWS_ARE_KEYS);
            var value = 0.0;
            if (sees(place.sight, query, select(column, row, ROWS_ARE_KEYS))) {
                let delta = bitcast<f32>(stats_bits(2u * number_of(place, query) + 1u));
                value = weight[i][j] * (products[i][j] - delta);
            }
            products[i][j] = value;
        }
    }
    return products;
}

// Puts a number of each place where products with other tiles find it.
fn put_weights(at: Invocation, values: array<vec2<f32>, 4>) {
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 2u; j++) {
            weights[(at.index / 16u + 8u * i) * 36u + at.index % 16u + 16u * j] = values[i][j];
        }
    }
}

// The products of those numbers and 32 columns of a matrix.
fn weighted_columns(at: Invocation, matrix: Matrix, first_row: u32, rows: u32, first_column: u32, columns: u32) -> array<vec2<f32>, 4> {
    workgroupBarrier();
    put_columns(at, matrix, first_row, rows, first_column, columns);
    workgroupBarrier();
    return weighted(at);
}

// With beta times what is there.
fn with_before(value: f32, beta: f32, before: f32) -> f32 {
    if (!is_nonzero(beta)) {
        return value;
    }
    return value + times_before(beta, vec4<f32>(before)).x;
}
