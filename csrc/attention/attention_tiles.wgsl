// What forward and backward of attention share: tiles of queries and keys, products of tiles, and which keys a query sees. A workgroup has 128 threads, eight high
// and sixteen wide: thread (y, x) has rows y + 8 i and columns x + 16 j of a tile of 32 rows and 32 columns.
struct Params {
    samples: u32,
    heads: u32, // of q
    shared_by: u32, // heads of q that share one of k and v
    groups_x: u32,
    queries: u32,
    keys: u32,
    depth: u32,
    value_depth: u32,
    tiles: u32, // of rows
    from_end: u32, // whether the last query's own position is the last key
    left: i32, // keys before its own position that a query sees, and as many after it
    right: i32,
    scale: f32,
    soft_cap: f32, // 0: none
    all_bits: u32, // all ones, which no compiler knows
    tile_heads: u32, // of the rows of tiles
    bias_extents: vec4<u32>, // of the bias's own samples, heads, queries and keys
    betas: vec4<f32>, // of dq, dk, dv and dbias
    pages: vec4<u32>, // keys of a page, pages of the pool, elements from one sample's numbers to the next and from one number to the next
    split: vec4<u32>, // parts of the keys, keys of a part, queries of heads that share keys
    strides: array<vec4<u32>, 11>, // from one sample, head, row and column to the next
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

const TILE: u32 = 32u;
const THREADS: u32 = 128u;
// Vectors of a row of a tile, of which the last is padding.
const ROW: u32 = 9u;
const LEAST: f32 = -3.40282347e+38;

// Matrices, by their numbers among the strides.
const Q: u32 = 0u;
const K: u32 = 1u;
const V: u32 = 2u;
const BIAS: u32 = 3u;
const Y: u32 = 4u;
const LSE: u32 = 5u; // its columns are the lengths
const DY: u32 = 6u;
const DQ: u32 = 7u;
const DK: u32 = 8u;
const DV: u32 = 9u;
const DBIAS: u32 = 10u;

var<workgroup> left_tile: array<vec4<f32>, 288>;
var<workgroup> right_tile: array<vec4<f32>, 288>;
var<workgroup> weights: array<f32, 1152>; // rows of 36
var<workgroup> length_of_sample: u32;

// A matrix of a sample and a head.
struct Matrix {
    which: u32,
    base: u32, // of keys and values in pages without that of the page
    row: u32,
    column: u32,
    numbers: u32, // where those of the pages of the sample begin
    first: u32, // the number of the first query among those of all samples and heads, of matrices with a row for each
}

fn is_in_pages(which: u32) -> bool {
    return IS_PAGED && (which == K || which == V);
}

fn matrix_of(which: u32, sample: u32, head: u32) -> Matrix {
    let strides = params.strides[which];
    let of_sample = select(sample * strides.x, 0u, is_in_pages(which));
    let first = (sample * params.heads + head) * params.queries;
    return Matrix(which, of_sample + head * strides.y, strides.z, strides.w, sample * params.pages.z, first);
}

// Where a row begins, in .x; .y is 0 if it is in no page.
fn begin_of(matrix: Matrix, row: u32) -> vec2<u32> {
    if (!is_in_pages(matrix.which)) {
        return vec2<u32>(matrix.base + row * matrix.row, 1u);
    }
    let at = matrix.numbers + row / params.pages.x * params.pages.w;
    var number = 0u;
    var above = 0u;
    if (PAGES_ARE_WIDE) {
        number = pages_bits(2u * at);
        above = pages_bits(2u * at + 1u);
    } else {
        number = pages_bits(at);
    }
    // A number below 0 is one beyond all pages.
    let is_there = above == 0u && number < params.pages.y;
    let page = select(0u, number, is_there);
    return vec2<u32>(matrix.base + page * params.strides[matrix.which].x + row % params.pages.x * matrix.row, select(0u, 1u, is_there));
}

fn value_of(bits: u32) -> f32 {
    return select(bitcast<f32>(bits), unpack(bits).x, IS_HALF);
}

fn bits_of(value: f32) -> u32 {
    return select(bitcast<u32>(value), round_to_half(value), IS_HALF);
}

// Four columns of a row, 0 beyond the extents and in rows without a part in any sum.
fn four_of(matrix: Matrix, row: u32, rows: u32, column: u32, columns: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if (row < rows && !is_silent(matrix, row)) {
        let begin = begin_of(matrix, row);
        for (var c = 0u; c < 4u; c++) {
            if (column + c < columns && begin.y != 0u) {
                four[c] = value_of(element_bits(matrix.which, begin.x + (column + c) * matrix.column));
            }
        }
    }
    return four;
}

// Puts 32 rows and 32 columns of a matrix into the left, or the right, tile.
fn put_rows(at: Invocation, is_left: bool, matrix: Matrix, first_row: u32, rows: u32, first_column: u32, columns: u32) {
    for (var n = at.index; n < 256u; n += THREADS) {
        let row = n / 8u;
        let four = four_of(matrix, first_row + row, rows, first_column + 4u * (n % 8u), columns);
        if (is_left) {
            left_tile[row * ROW + n % 8u] = four;
        } else {
            right_tile[row * ROW + n % 8u] = four;
        }
    }
}

// Puts 32 rows and 32 columns of a matrix into the right tile, whose rows are these columns.
fn put_columns(at: Invocation, matrix: Matrix, first_row: u32, rows: u32, first_column: u32, columns: u32) {
    for (var n = at.index; n < 256u; n += THREADS) {
        let column = first_column + n % TILE;
        let row = first_row + 4u * (n / TILE);
        var four = vec4<f32>();
        if (column < columns) {
            for (var c = 0u; c < 4u; c++) {
                if (row + c < rows && !is_silent(matrix, row + c)) {
                    let begin = begin_of(matrix, row + c);
                    if (begin.y != 0u) {
                        four[c] = value_of(element_bits(matrix.which, begin.x + column * matrix.column));
                    }
                }
            }
        }
        right_tile[n % TILE * ROW + n / TILE] = four;
    }
}

// The products of rows of the left and the right tile, two columns of each of the thread's four rows.
fn tile_products(at: Invocation, before: array<vec2<f32>, 4>) -> array<vec2<f32>, 4> {
    var sums = before;
    let y = at.index / 16u;
    let x = at.index % 16u;
    for (var k = 0u; k < 8u; k++) {
        let b0 = right_tile[x * ROW + k];
        let b1 = right_tile[(x + 16u) * ROW + k];
        for (var i = 0u; i < 4u; i++) {
            let a = left_tile[(y + 8u * i) * ROW + k];
            sums[i] += vec2<f32>(dot(a, b0), dot(a, b1));
        }
    }
    return sums;
}

// As tile_products, of weights and the right tile.
fn weighted(at: Invocation) -> array<vec2<f32>, 4> {
    var sums = array<vec2<f32>, 4>();
    let y = at.index / 16u;
    let x = at.index % 16u;
    for (var k = 0u; k < 8u; k++) {
        let b0 = right_tile[x * ROW + k];
        let b1 = right_tile[(x + 16u) * ROW + k];
        for (var i = 0u; i < 4u; i++) {
            let first = (y + 8u * i) * 36u + 4u * k;
            let a = vec4<f32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]);
            sums[i] += vec2<f32>(dot(a, b0), dot(a, b1));
        }
    }
    return sums;
}

// The keys of a sample, and which of them queries see: query i those keys j for which before <= j - i <= after.
struct Sight {
    length: i32,
    before: i32,
    after: i32,
}

fn sight_of(length: u32) -> Sight {
    let shift = select(0, i32(length) - i32(params.queries), params.from_end != 0u);
    return Sight(i32(length), shift - params.left, shift + params.right);
}

fn sees(sight: Sight, query: u32, key: u32) -> bool {
    let between = i32(key) - i32(query);
    return query < params.queries && i32(key) < sight.length && between >= sight.before && between <= sight.after;
}

// The keys that queries see from a first to a last one, from .x on and before .y.
fn keys_of(sight: Sight, first: u32, last: u32) -> vec2<u32> {
    return vec2<u32>(vec2<i32>(
        clamp(i32(first) + sight.before, 0, sight.length),
        clamp(i32(last) + sight.after + 1, 0, sight.length),
    ));
}

// The queries that see keys from a first to a last one.
fn queries_of(sight: Sight, first: u32, last: u32) -> vec2<u32> {
    let queries = i32(params.queries);
    return vec2<u32>(vec2<i32>(
        clamp(i32(first) - sight.after, 0, queries),
        clamp(i32(last) - sight.before + 1, 0, queries),
    ));
}

// -infinity, for what is not seen. It is computed, since WGSL has no constant for it.
fn unseen() -> f32 {
    return bitcast<f32>(params.all_bits << 23u);
}

fn no_number() -> f32 {
    return bitcast<f32>(params.all_bits & 0x7fc00000u);
}

fn are_unseen(values: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(values) == vec4<u32>(0xff800000u);
}

// Whether values are NaN or +infinity.
fn are_improper(values: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(values);
    return ((bits & vec4<u32>(0x7fffffffu)) >= vec4<u32>(0x7f800000u)) & (bits != vec4<u32>(0xff800000u));
}

// The score of a product, and the slope of the soft cap.
fn score_of(product: f32, bias: Matrix, query: u32, key: u32) -> vec2<f32> {
    var score = product * params.scale;
    var slope = 1.0;
    if (HAS_CAP) {
        let part = activate(TANH, vec4<f32>(score / params.soft_cap)).x;
        score = params.soft_cap * part;
        slope = (1.0 - part) * (1.0 + part);
    }
    if (HAS_BIAS) {
        let bits = bias_bits(bias.base + query * bias.row + key * bias.column);
        if (BIAS_IS_BOOL) {
            score = select(unseen(), score, bits != 0u);
        } else {
            score += select(bitcast<f32>(bits), unpack(bits).x, BIAS_IS_HALF);
        }
    }
    return vec2<f32>(score, slope);
}
