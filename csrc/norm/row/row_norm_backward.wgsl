// LayerNorm and RMSNorm backward over rows: what the forms share, and the dispatch that takes dx of rows or of their slices. A thread has the same
// columns of all rows that its workgroup takes, so that the gradients of the parameters add up in registers. The CUDA kernels are in
// row_norm_backward_*.cu.
//
// g is dy times the weight, and xhat is the normalized x: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh, the means over a row. RMSNorm has
// no mean(g), and dh is 0 if there is none.
struct Params {
    rows: u32,
    cols: u32,
    extent1: u32,
    extent2: u32,
    dy: vec3<u32>,
    x: vec3<u32>,
    dh: vec3<u32>,
    dx: vec3<u32>,
    weight_offset: f32, // RMSNorm: added to every weight
    reciprocal_cols: f32, // 1 / cols
    rounds: u32, // rows of each team in a block, whose gradients of the parameters a thread adds up in registers
    blocks: u32, // blocks of rows that a workgroup takes one after the other; after each it adds its sums to the workspace
    slices: u32, // split: parts of a row, of which a workgroup takes one
    sum_slices: u32, // split: parts of a row in the dispatch that sums slices
    groups_x: u32,
    partials: u32, // partial sums of the parameters' gradients in the workspace
    sums_first: u32, // where the partial sums start in the workspace, in quads
    first_workgroup: u32, // few_rows: the number of the dispatch's first workgroup
}

@group(0) @binding(0) var<uniform> params: Params;

// Whether the teams that take rows add up gradients of parameters; in the form few_rows other workgroups do.
const HAS_PARAMETERS: bool = WANTS_DWEIGHT || WANTS_DBIAS;

// A thread's chunks of a row as they were read, and g and xhat if UNPACKED, where registers have room for that.
var<private> held_dy: array<vec4<u32>, CHUNKS>;
var<private> held_x: array<vec4<u32>, CHUNKS>;
var<private> held_g: array<vec4<f32>, select(1u, CHUNKS * QUADS, UNPACKED)>;
var<private> held_xhat: array<vec4<f32>, select(1u, CHUNKS * QUADS, UNPACKED)>;
var<private> dweight_sums: array<vec4<f32>, CHUNKS * QUADS>;
var<private> dbias_sums: array<vec4<f32>, CHUNKS * QUADS>;

// Where a thread's chunks of dy and x of a row lie.
struct Place {
    dy: u32,
    x: u32,
    end_col: u32, // chunks from here on are none of the thread's
}

fn place_of(team_row: u32, end_col: u32) -> Place {
    let row = min(team_row, params.rows - 1u);
    return Place(row_start(row, params.dy), row_start(row, params.x), select(0u, end_col, team_row < params.rows));
}

fn load_chunk(k: u32, place: Place, first_col: u32) {
    let col = first_col + k * THREADS * ELEMENTS;
    let count = count_before(place.end_col, col);
    held_dy[k] = vec4<u32>();
    held_x[k] = vec4<u32>();
    if (count > 0u) {
        held_dy[k] = dy_load(place.dy + col, count);
        held_x[k] = x_load(place.x + col, count);
    }
}

// Loads the thread's chunks of dy and x, unless it RELOADS: then they are too many for its registers, and it reads them where it uses them. A second
// reading comes from a cache.
fn load_row(place: Place, first_col: u32) {
    if (RELOADS) {
        return;
    }
    for (var k = 0u; k < CHUNKS; k++) {
        load_chunk(k, place, first_col);
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

// The normalized elements of a quad.
fn normalized(x: vec4<u32>, part: u32, mean: f32, rstd: f32) -> vec4<f32> {
    var v = quad(x, part);
    if (CENTERED) {
        v = v - mean;
    }
    return v * rstd;
}

// The thread's part of sum(g) and sum(g * xhat). It also adds to the thread's gradients of the parameters.
fn thread_sums(place: Place, first_col: u32, mean: f32, rstd: f32) -> vec2<f32> {
    var g_sum = vec4<f32>();
    var product_sum = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(place.end_col, col);
        if (count > 0u) {
            let dy_words = dy_chunk(k, place.dy + col, count);
            let x_words = x_chunk(k, place.x + col, count);
            for (var part = 0u; part < QUADS; part++) {
                let dy = quad(dy_words, part);
                let xhat = keep(normalized(x_words, part, mean, rstd), part, count);
                if (WANTS_DWEIGHT) {
                    dweight_sums[k * QUADS + part] += dy * xhat;
                }
                if (WANTS_DBIAS) {
                    dbias_sums[k * QUADS + part] += dy;
                }
                if (WANTS_DX) {
                    let g = weighted(dy, col + 4u * part);
                    if (CENTERED) {
                        g_sum += g;
                    }
                    product_sum += g * xhat;
                    if (UNPACKED) {
                        held_g[k * QUADS + part] = g;
                        held_xhat[k * QUADS + part] = xhat;
                    }
                }
            }
        }
    }
    return vec2<f32>(add_up(g_sum), add_up(product_sum));
}

// Writes dx. If PREFETCH, and not UNPACKED, a chunk of the next row takes the place of each chunk as it is used up.
fn store_dx(row: u32, place: Place, next: Place, first_col: u32, mean: f32, rstd: f32, means: vec2<f32>) {
    let dh_row = row_start(row, params.dh);
    let dx_row = row_start(row, params.dx);
    for (var k = 0u; k < CHUNKS; k++) {
        let col = first_col + k * THREADS * ELEMENTS;
        let count = count_before(place.end_col, col);
        if (count > 0u) {
            var dy_words: vec4<u32>;
            var x_words: vec4<u32>;
            if (!UNPACKED) {
                dy_words = dy_chunk(k, place.dy + col, count);
                x_words = x_chunk(k, place.x + col, count);
            }
            if (PREFETCH && !UNPACKED) {
                load_chunk(k, next, first_col);
            }
            let dh = dh_load(dh_row + col, count);
            var dx: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                var g: vec4<f32>;
                var xhat: vec4<f32>;
                if (UNPACKED) {
                    g = held_g[k * QUADS + part];
                    xhat = held_xhat[k * QUADS + part];
                } else {
                    g = weighted(quad(dy_words, part), col + 4u * part);
                    xhat = normalized(x_words, part, mean, rstd);
                }
                var rest = xhat * means.y;
                if (CENTERED) {
                    rest = rest + means.x;
                }
                var v = rstd * (g - rest);
                if (HAS_dh) {
                    v = v + quad(dh, part);
                }
                dx[part] = v;
            }
            dx_store(dx_row + col, count, chunk_of(dx));
        }
    }
}

// A quad of each thread, for sums over the teams of a workgroup.
var<workgroup> team_sums: array<vec4<f32>, select(1u, WORKGROUP, TEAMS > 1u)>;

fn sum_of_teams(thread: u32, values: vec4<f32>) -> vec4<f32> {
    if (TEAMS == 1u) {
        return values;
    }
    team_sums[thread] = values;
    workgroupBarrier();
    var even = vec4<f32>();
    var odd = vec4<f32>();
    for (var team = 0u; team < TEAMS; team += 2u) {
        even += team_sums[team * THREADS + thread % THREADS];
        odd += team_sums[(team + 1u) * THREADS + thread % THREADS];
    }
    workgroupBarrier();
    return even + odd;
}

// Adds one quad of sums to the workspace, [partials][dweight, dbias][cols]. What a thread reads there it has written itself.
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

// A member's part of sum(g) and sum(g * xhat) of a row, from the sums of the row's slices in the workspace.
fn slice_sums(at: Invocation, row: u32) -> vec2<f32> {
    var sums = vec2<f32>();
    for (var base = 0u; base < params.sum_slices; base += member_count(at)) {
        let slice = base + member_index(at);
        if (slice < params.sum_slices) {
            sums += work_read(row * params.sum_slices + slice).xy;
        }
    }
    return sums;
}

// What is known of a row before it is read. If SPLIT, `sums` is a member's part of the row's sums.
struct Known {
    mean: f32,
    rstd: f32,
    sums: vec2<f32>,
}

fn known_of(at: Invocation, row: u32) -> Known {
    var known = Known(mean_of(row), rstd_of(row), vec2<f32>());
    if (SPLIT && WANTS_DX) {
        known.sums = slice_sums(at, row);
    }
    return known;
}

// Whether the `Known` of a row is read while the row before is finished: if rows are split, and with PREFETCH in teams of more than 128 threads. Smaller
// teams lie in workgroups of at most 128 threads, of which an SM holds more: while one waits, others are at work.
const KNOWS_AHEAD: bool = SPLIT || (PREFETCH && THREADS > 128u);

// The row of a thread's team in a turn, perhaps past the last.
fn row_of(partial: u32, turn: u32, thread: u32) -> u32 {
    return (partial * params.blocks * params.rounds + turn) * TEAMS + team_of(thread);
}

// dx of `blocks` blocks of rows, or of a slice of their columns where rows are split, and their part of the gradients of the parameters.
@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_rows(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let partial = workgroup / params.slices;
    let slice = workgroup % params.slices;
    let first_col = slice * SLICE + thread % THREADS * ELEMENTS;
    let last_col = min((slice + 1u) * SLICE, params.cols);
    let turns = params.blocks * params.rounds;
    var place = place_of(row_of(partial, 0u, thread), last_col);
    if (PREFETCH) {
        load_row(place, first_col);
    }
    var known: Known;
    if (KNOWS_AHEAD) {
        known = known_of(at, min(row_of(partial, 0u, thread), params.rows - 1u));
    }
    for (var block = 0u; block < params.blocks; block++) {
        for (var round = 0u; round < params.rounds; round++) {
            let turn = block * params.rounds + round;
            let team_row = row_of(partial, turn, thread);
            let row = min(team_row, params.rows - 1u);
            if (!PREFETCH) {
                load_row(place, first_col);
            }
            if (!KNOWS_AHEAD) {
                known = known_of(at, row);
            }
            let own = known;
            let sums = thread_sums(place, first_col, own.mean, own.rstd);
            let next_row = row_of(partial, turn + 1u, thread);
            let next = place_of(next_row, select(0u, last_col, turn + 1u < turns));
            if (KNOWS_AHEAD) {
                known = known_of(at, min(next_row, params.rows - 1u));
            }
            if (PREFETCH && UNPACKED) {
                // The chunks are used up: those of the next row arrive while this one is finished.
                load_row(next, first_col);
            }
            if (WANTS_DX) {
                var means: vec2<f32>;
                if (SPLIT) {
                    means = members_sums(at, own.sums * params.reciprocal_cols, turn & 1u);
                } else {
                    means = row_sums(at, sums * params.reciprocal_cols, turn & 1u);
                }
                store_dx(row, place, next, first_col, own.mean, own.rstd, means);
            }
            place = next;
        }
        if (HAS_PARAMETERS) {
            if (partial < params.partials) {
                hand_on_sums(thread, partial, first_col, last_col, block == 0u);
            }
        }
    }
}
