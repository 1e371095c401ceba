// LayerNorm and RMSNorm forward over rows: what the forms share, and the resident one. A thread has every THREADS-th chunk of 16 bytes of its row.
// The CUDA kernels are in row_norm_resident.cu and row_norm_split.cu.
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
    weight_offset: f32, // RMSNorm: added to every weight
    reciprocal_cols: f32, // 1 / cols
    slices: u32, // split: parts of a row, of which a workgroup takes one
    groups_x: u32,
    tail_cols: u32, // split: columns of the last slice
    rounds: u32, // resident: rows that a team takes one after the other
}

@group(0) @binding(0) var<uniform> params: Params;

struct Statistics {
    shift: f32, // the mean before correction
    correction: f32,
    rstd: f32,
}

fn finish_statistics(shift: f32, correction: f32, square: f32) -> Statistics {
    let variance = select(square, without_sign(square - correction * correction), CENTERED);
    return Statistics(shift, correction, reciprocal_sqrt_of_squares(variance + params.eps));
}

fn save_statistics(row: u32, statistics: Statistics) {
    mean_put(row, statistics.shift + statistics.correction);
    rstd_put(row, statistics.rstd);
}

// 1. Loads the thread's chunks from `first_col` on: x, or h = x + residual, rounded to the output type, which it stores, too.
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
                var sum: array<vec4<f32>, QUADS>;
                for (var part = 0u; part < QUADS; part++) {
                    sum[part] = quad(chunks[k], part) + quad(addends[k], part);
                }
                chunks[k] = chunk_of(sum);
                h_store(h_row + col, count, chunks[k]);
            }
        }
    }
}

// 2. The thread's sum of the elements, for RMSNorm of their squares, is `thread_sum` of norm/moments.

// 3. The thread's sums of the differences from `shift`, and of their squares. With UNPACKED the differences take the place of the elements.
fn thread_moments(shift: f32, first_col: u32, end_col: u32) -> vec2<f32> {
    var sum = vec4<f32>();
    var square = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(end_col, first_col + k * THREADS * ELEMENTS);
        for (var part = 0u; part < QUADS; part++) {
            // What lies past the row is 0 and stays so.
            let shifts = within(shift, part, count);
            var d: vec4<f32>;
            if (UNPACKED) {
                d = values[k * QUADS + part] - shifts;
                values[k * QUADS + part] = d;
            } else {
                d = quad(chunks[k], part) - shifts;
            }
            sum += d;
            square += d * d;
        }
    }
    return vec2<f32>(add_up(sum), add_up(square));
}

// 4. y of chunk k. If UNPACKED, the values are differences from the shift.
fn normalize(k: u32, col: u32, statistics: Statistics) -> vec4<u32> {
    var y: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        var v: vec4<f32>;
        if (UNPACKED) {
            v = values[k * QUADS + part];
        } else {
            v = quad(chunks[k], part);
            if (CENTERED) {
                v = v - statistics.shift;
            }
        }
        if (CENTERED) {
            v = v - statistics.correction;
        }
        v = v * statistics.rstd;
        if (HAS_weight) {
            var weight = weight_quad(col + 4u * part);
            if (!CENTERED) {
                weight = weight + params.weight_offset;
            }
            v = v * weight;
        }
        if (HAS_bias) {
            v = v + bias_quad(col + 4u * part);
        }
        y[part] = v;
    }
    return chunk_of(y);
}

// A row is in the registers of a team of THREADS threads, which takes `rounds` rows; if PREFETCH, it reads one while the row before is finished.
@compute @workgroup_size(WORKGROUP)
fn row_norm_resident(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first_col = thread % THREADS * ELEMENTS;
    for (var round = 0u; round < params.rounds; round++) {
        let team_row = (workgroup * params.rounds + round) * TEAMS + team_of(thread);
        let row = min(team_row, params.rows - 1u);
        let is_row = team_row < params.rows;
        let end_col = select(0u, params.cols, is_row);
        if (!PREFETCH || round == 0u) {
            load_row(row, first_col, end_col);
        }
        // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
        let scaled_sum = thread_sum(!CENTERED) * params.reciprocal_cols;
        if (PREFETCH) {
            let next_row = team_row + TEAMS;
            let is_next = next_row < params.rows && round + 1u < params.rounds;
            load_row(min(next_row, params.rows - 1u), first_col, select(0u, params.cols, is_next));
        }
        let first = row_sum(at, scaled_sum, select(round & 1u, 0u, CENTERED));
        var statistics = finish_statistics(0.0, 0.0, first);
        if (CENTERED) {
            let moments = row_sums(at, thread_moments(first, first_col, end_col) * params.reciprocal_cols, 1u);
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
                y_store(y_row + col, count, normalize(k, col, statistics));
            }
        }
    }
}
