// LayerNorm and RMSNorm forward over rows: the kernels of row_norm.cuh. A thread owns every THREADS-th chunk of 16 bytes of its row.
struct Params {
    rows: u32,
    cols: u32,
    extent1: u32,
    extent2: u32,
    x: vec3<u32>,
    residual: vec3<u32>,
    y: vec3<u32>,
    h: vec3<u32>,
    eps: f32,
    weight_offset: f32,
    reciprocal_cols: f32,
    slices: u32, // split: parts of a row, each one workgroup's
    groups_x: u32,
    tail_cols: u32, // split: columns of a row's last part
}

@group(0) @binding(0) var<uniform> params: Params;

const SLICE: u32 = THREADS * CHUNKS * ELEMENTS; // columns of one workgroup where rows are split

struct Statistics {
    shift: f32, // the mean before correction
    correction: f32,
    rstd: f32,
}

fn finish_statistics(shift: f32, correction: f32, square: f32) -> Statistics {
    let variance = select(square, without_sign(square - correction * correction), CENTERED);
    return Statistics(shift, correction, reciprocal_sqrt(variance + params.eps));
}

fn save_statistics(row: u32, statistics: Statistics) {
    mean_put(row, statistics.shift + statistics.correction);
    rstd_put(row, statistics.rstd);
}

var<private> chunks: array<vec4<u32>, CHUNKS>;

// 1. The thread's chunks from column `lane * ELEMENTS` on: x, or h = x + residual rounded to the output type, which is also stored.
fn load_row(row: u32, first_col: u32, end_col: u32) {
    let x_row = row_start(row, params.x);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        chunks[k] = vec4<u32>();
        if (count > 0u) {
            chunks[k] = x_load(x_row + col, count);
        }
    }
    if (HAS_residual) {
        let residual_row = row_start(row, params.residual);
        let h_row = row_start(row, params.h);
        var addends: array<vec4<u32>, CHUNKS>;
        for (var k = 0u; k < CHUNKS; k++) {
            let col = first_col + k * THREADS * ELEMENTS;
            let count = count_before(end_col, col);
            if (count > 0u) {
                addends[k] = residual_load(residual_row + col, count);
            }
        }
        for (var k = 0u; k < CHUNKS; k++) {
            let col = first_col + k * THREADS * ELEMENTS;
            let count = count_before(end_col, col);
            if (count > 0u) {
                var sum = chunks[k];
                for (var part = 0u; part < QUADS; part++) {
                    sum = with_quad(sum, part, quad(chunks[k], part) + quad(addends[k], part));
                }
                chunks[k] = sum;
                h_store(h_row + col, count, sum);
            }
        }
    }
}

// 2. The sum of the elements, or of their squares. What lies past the row was loaded as 0.
fn thread_sum() -> f32 {
    var sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        for (var part = 0u; part < QUADS; part++) {
            let v = quad(chunks[k], part);
            sum += select(v * v, v, CENTERED);
        }
    }
    return add_up(sum);
}

// 3. The sums of the differences from `shift` and of their squares.
fn thread_moments(shift: f32, first_col: u32, end_col: u32) -> vec2<f32> {
    var sum = vec4<f32>();
    var square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(end_col, first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            let d = keep(quad(chunks[k], part) - shift, part, count);
            sum += d;
            square += d * d;
        }
    }
    return vec2<f32>(add_up(sum), add_up(square));
}

// 4. y of one chunk.
fn normalize(chunk: vec4<u32>, col: u32, statistics: Statistics) -> vec4<u32> {
    var y = chunk;
    for (var part = 0u; part < QUADS; part++) {
        var v = quad(chunk, part);
        if (CENTERED) {
            v = (v - statistics.shift) - statistics.correction;
        }
        v = v * statistics.rstd;
        if (HAS_weight) {
            v = v * (weight_quad(col + 4u * part) + params.weight_offset);
        }
        if (HAS_bias) {
            v = v + bias_quad(col + 4u * part);
        }
        y = with_quad(y, part, v);
    }
    return y;
}

// The whole row in the registers of THREADS threads.
@compute @workgroup_size(WORKGROUP)
fn row_norm_resident(at: Invocation) {
    let thread = thread_index(at);
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let row = min(group * (WORKGROUP / THREADS) + thread / THREADS, params.rows - 1u);
    let is_row = group * (WORKGROUP / THREADS) + thread / THREADS < params.rows;
    let first_col = thread % THREADS * ELEMENTS;
    let end_col = select(0u, params.cols, is_row);
    load_row(row, first_col, end_col);
    // Scaled before the threads meet: a compiler could merge products of sums, and with them the mean and its correction.
    let first = row_sum(at, vec2<f32>(thread_sum() * params.reciprocal_cols, 0.0), 0u).x;
    var statistics = finish_statistics(0.0, 0.0, first);
    if (CENTERED) {
        let moments = row_sum(at, thread_moments(first, first_col, end_col) * params.reciprocal_cols, 1u);
        statistics = finish_statistics(first, moments.x, moments.y);
    }
    if (is_row && thread % THREADS == 0u) {
        save_statistics(row, statistics);
    }
    let y_row = row_start(row, params.y);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        if (count > 0u) {
            y_store(y_row + col, count, normalize(chunks[k], col, statistics));
        }
    }
}
