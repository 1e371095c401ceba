// LayerNorm and RMSNorm backward over rows: the kernels of row_norm_backward.cuh. A thread owns the same columns of all rows that its
// workgroup takes, so that the gradients of the parameters add up in registers.
struct Params {
    rows: u32,
    cols: u32,
    extent1: u32,
    extent2: u32,
    dy: vec3<u32>,
    x: vec3<u32>,
    dh: vec3<u32>,
    dx: vec3<u32>,
    weight_offset: f32,
    reciprocal_cols: f32,
    rounds: u32, // rows that a thread adds up before it hands its sums on
    blocks: u32, // of so many rounds
    slices: u32, // split: parts of a row, each one workgroup's
    sum_slices: u32, // split: parts of a row in the dispatch that sums
    groups_x: u32,
    partials: u32, // sums of the parameters' gradients in the workspace
    sums_first: u32, // where they start there, in quads
}

@group(0) @binding(0) var<uniform> params: Params;

const HAS_PARAMETERS: bool = WANTS_DWEIGHT || WANTS_DBIAS;
const SLICE: u32 = THREADS * CHUNKS * ELEMENTS;
const TEAMS: u32 = WORKGROUP / THREADS;

var<private> held_dy: array<vec4<u32>, CHUNKS>;
var<private> held_x: array<vec4<u32>, CHUNKS>;
var<private> dweight_sums: array<vec4<f32>, CHUNKS * QUADS>;
var<private> dbias_sums: array<vec4<f32>, CHUNKS * QUADS>;

// The thread's chunks of dy and x, unless they are too many for its registers and read twice, the second time from a cache.
fn load_row(row: u32, first_col: u32, end_col: u32) {
    if (RELOADS) {
        return;
    }
    let dy_row = row_start(row, params.dy);
    let x_row = row_start(row, params.x);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        held_dy[k] = vec4<u32>();
        held_x[k] = vec4<u32>();
        if (count > 0u) {
            held_dy[k] = dy_load(dy_row + col, count);
            held_x[k] = x_load(x_row + col, count);
        }
    }
}

fn dy_chunk(k: u32, at: u32, count: u32) -> vec4<u32> {
    if (RELOADS) {
        return dy_load(at, count);
    }
    return held_dy[k];
}

fn x_chunk(k: u32, at: u32, count: u32) -> vec4<u32> {
    if (RELOADS) {
        return x_load(at, count);
    }
    return held_x[k];
}

// The normalized elements of a quad, 0 past the row.
fn normalized(x: vec4<u32>, part: u32, count: u32, mean: f32, rstd: f32) -> vec4<f32> {
    var v = quad(x, part);
    if (CENTERED) {
        v = v - mean;
    }
    return keep(v * rstd, part, count);
}

fn with_weight(dy: vec4<f32>, col: u32) -> vec4<f32> {
    if (HAS_weight) {
        return dy * (weight_quad(col) + params.weight_offset);
    }
    return dy;
}

// The thread's part of sum(g) and sum(g * xhat); adds to the gradients of the parameters on the way.
fn thread_sums(row: u32, first_col: u32, end_col: u32, mean: f32, rstd: f32) -> vec2<f32> {
    let dy_row = row_start(row, params.dy);
    let x_row = row_start(row, params.x);
    var g_sum = vec4<f32>();
    var product_sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        if (count > 0u) {
            let dy_words = dy_chunk(k, dy_row + col, count);
            let x_words = x_chunk(k, x_row + col, count);
            for (var part = 0u; part < QUADS; part++) {
                let dy = quad(dy_words, part);
                let xhat = normalized(x_words, part, count, mean, rstd);
                if (WANTS_DWEIGHT) {
                    dweight_sums[k * QUADS + part] += dy * xhat;
                }
                if (WANTS_DBIAS) {
                    dbias_sums[k * QUADS + part] += dy;
                }
                if (WANTS_DX) {
                    let g = with_weight(dy, col + 4u * part);
                    g_sum += g;
                    product_sum += g * xhat;
                }
            }
        }
    }
    return vec2<f32>(add_up(g_sum), add_up(product_sum));
}

fn store_dx(row: u32, first_col: u32, end_col: u32, mean: f32, rstd: f32, means: vec2<f32>) {
    let dy_row = row_start(row, params.dy);
    let x_row = row_start(row, params.x);
    let dh_row = row_start(row, params.dh);
    let dx_row = row_start(row, params.dx);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(end_col, col);
        if (count > 0u) {
            let dy_words = dy_chunk(k, dy_row + col, count);
            let x_words = x_chunk(k, x_row + col, count);
            let dh = dh_load(dh_row + col, count);
            var dx = vec4<u32>();
            for (var part = 0u; part < QUADS; part++) {
                let g = with_weight(quad(dy_words, part), col + 4u * part);
                var rest = normalized(x_words, part, count, mean, rstd) * means.y;
                if (CENTERED) {
                    rest = rest + means.x;
                }
                var v = rstd * (g - rest);
                if (HAS_dh) {
                    v = v + quad(dh, part);
                }
                dx = with_quad(dx, part, v);
            }
            dx_store(dx_row + col, count, dx);
        }
    }
}

// A quad of each thread of the workgroup, for the sum over its teams.
var<workgroup> team_sums: array<vec4<f32>, select(1u, WORKGROUP, TEAMS > 1u)>;

fn sum_of_teams(thread: u32, values: vec4<f32>) -> vec4<f32> {
    if (TEAMS == 1u) {
        return values;
    }
    team_sums[thread] = values;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= THREADS; half = half >> 1u) {
        if (thread < half) {
            team_sums[thread] += team_sums[thread + half];
        }
        workgroupBarrier();
    }
    let sum = team_sums[thread % THREADS];
    workgroupBarrier();
    return sum;
}

// Adds one quad of sums to the workspace, [partials][dweight, dbias][cols]: the same thread wrote what it reads.
fn hand_on(i: u32, values: vec4<f32>, is_first: bool) {
    var sum = values;
    if (!is_first) {
        sum += work_read(params.sums_first + i);
    }
    work_write(params.sums_first + i, sum);
}

fn hand_on_sums(thread: u32, partial: u32, first_col: u32, end_col: u32, is_first: bool) {
    let quads = (params.cols + ELEMENTS - 1u) / ELEMENTS * QUADS;
    let row = partial * (u32(WANTS_DWEIGHT) + u32(WANTS_DBIAS)) * quads;
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        for (var part = 0u; part < QUADS; part++) {
            let i = row + col / 4u + part;
            let is_owner = thread < THREADS && col < end_col;
            if (WANTS_DWEIGHT) {
                let sum = sum_of_teams(thread, dweight_sums[k * QUADS + part]);
                if (is_owner) {
                    hand_on(i, sum, is_first);
                }
                dweight_sums[k * QUADS + part] = vec4<f32>();
            }
            if (WANTS_DBIAS) {
                let sum = sum_of_teams(thread, dbias_sums[k * QUADS + part]);
                if (is_owner) {
                    hand_on(i + select(0u, quads, WANTS_DWEIGHT), sum, is_first);
                }
                dbias_sums[k * QUADS + part] = vec4<f32>();
            }
        }
    }
}

// sum(g) and sum(g * xhat) of a row, from its slices in the workspace.
fn slice_sums(at: Invocation, row: u32) -> vec2<f32> {
    var sums = vec2<f32>();
    for (var base = 0u; base < params.sum_slices; base += THREADS) {
        let slice = base + thread_index(at) % THREADS;
        if (slice < params.sum_slices) {
            sums += work_read(row * params.sum_slices + slice).xy;
        }
    }
    return sums;
}

// dx of a block of rows, or of a slice of their columns where rows are split, and its part of the gradients of the parameters.
@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_rows(at: Invocation) {
    let thread = thread_index(at);
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let partial = group / params.slices;
    let slice = group % params.slices;
    let first_col = slice * SLICE + thread % THREADS * ELEMENTS;
    let last_col = min((slice + 1u) * SLICE, params.cols);
    for (var block = 0u; block < params.blocks; block++) {
        for (var round = 0u; round < params.rounds; round++) {
            let turn = block * params.rounds + round;
            let team_row = (partial * params.blocks * params.rounds + turn) * TEAMS + thread / THREADS;
            let row = min(team_row, params.rows - 1u);
            let end_col = select(0u, last_col, team_row < params.rows);
            load_row(row, first_col, end_col);
            let mean = mean_of(row);
            let rstd = rstd_of(row);
            var sums = thread_sums(row, first_col, end_col, mean, rstd);
            if (WANTS_DX) {
                if (SPLIT) {
                    sums = slice_sums(at, row);
                }
                let means = row_sum(at, sums * params.reciprocal_cols, turn & 1u);
                store_dx(row, first_col, end_col, mean, rstd, means);
            }
        }
        if (HAS_PARAMETERS) {
            if (partial < params.partials) {
                hand_on_sums(thread, partial, first_col, last_col, block == 0u);
            }
        }
    }
}
