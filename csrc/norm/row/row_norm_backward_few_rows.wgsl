// The form few_rows, in one dispatch. Its first workgroups take dx of rows; each of the others takes the gradient of a parameter for COLUMNS chunks
// of columns, for which it reads dy and x of all rows again: a thread has one of these chunks of every LANES-th row, and the lanes meet in a tree.
// Where dx takes the place of dy there are two dispatches: the workgroups of the parameters, then those of the rows.
const LANES: u32 = WORKGROUP / COLUMNS;
const GRADIENTS: u32 = u32(HAS_dweight) + u32(HAS_dbias); // gradients of parameters that are wanted

// Half of the threads. The upper half stores its sums in workgroup memory, and the lower half adds its own to them there: so the memory has room for the
// sums of half of the threads.
const HALF: u32 = WORKGROUP / 2u;
var<workgroup> lane_sums: array<vec4<f32>, HALF * QUADS>;

fn put_parameters(thread: u32, item: u32) {
    let is_weight = HAS_dweight && item % GRADIENTS == 0u;
    let first_col = (item / GRADIENTS * COLUMNS + thread % COLUMNS) * ELEMENTS;
    let count = count_before(params.cols, first_col);
    var sums: array<vec4<f32>, QUADS>;
    for (var row = thread / COLUMNS; row < params.rows; row += LANES) {
        if (count > 0u) {
            let dy = dy_load(row_start(row, params.dy) + first_col, count);
            if (is_weight) {
                let x = x_load(row_start(row, params.x) + first_col, count);
                let mean = mean_of(row);
                let rstd = rstd_of(row);
                for (var part = 0u; part < QUADS; part++) {
                    sums[part] += quad(dy, part) * normalized(x, part, mean, rstd);
                }
            } else {
                for (var part = 0u; part < QUADS; part++) {
                    sums[part] += quad(dy, part);
                }
            }
        }
    }
    for (var part = 0u; part < QUADS; part++) {
        if (thread >= HALF) {
            lane_sums[part * HALF + thread - HALF] = sums[part];
        }
    }
    workgroupBarrier();
    for (var part = 0u; part < QUADS; part++) {
        if (thread < HALF) {
            lane_sums[part * HALF + thread] += sums[part];
        }
    }
    workgroupBarrier();
    for (var half = HALF / 2u; half >= COLUMNS; half = half >> 1u) {
        if (thread < half) {
            for (var part = 0u; part < QUADS; part++) {
                lane_sums[part * HALF + thread] += lane_sums[part * HALF + thread + half];
            }
        }
        workgroupBarrier();
    }
    if (thread < COLUMNS && count > 0u) {
        for (var part = 0u; part < QUADS; part++) {
            sums[part] = lane_sums[part * HALF + thread];
        }
        if (is_weight) {
            put_dweight(first_col, count, sums);
        } else {
            put_dbias(first_col, count, sums);
        }
    }
}

// Parameters have the type of the rows or, if WIDE_PARAMETERS, f32.
fn put_dweight(first: u32, count: u32, sums: array<vec4<f32>, QUADS>) {
    if (!WIDE_PARAMETERS) {
        dweight_store(first, count, chunk_of(sums));
        return;
    }
    for (var part = 0u; part < QUADS; part++) {
        if (count > 4u * part) {
            dweight_store(first + 4u * part, min(count - 4u * part, 4u), bitcast<vec4<u32>>(sums[part]));
        }
    }
}

fn put_dbias(first: u32, count: u32, sums: array<vec4<f32>, QUADS>) {
    if (!WIDE_PARAMETERS) {
        dbias_store(first, count, chunk_of(sums));
        return;
    }
    for (var part = 0u; part < QUADS; part++) {
        if (count > 4u * part) {
            dbias_store(first + 4u * part, min(count - 4u * part, 4u), bitcast<vec4<u32>>(sums[part]));
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn row_norm_backward_few_rows(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = params.first_workgroup + at.workgroup.y * params.groups_x + at.workgroup.x;
    let row_groups = (params.rows + TEAMS - 1u) / TEAMS;
    if (workgroup >= row_groups) {
        put_parameters(thread, workgroup - row_groups);
        return;
    }
    let team_row = workgroup * TEAMS + team_of(thread);
    let row = min(team_row, params.rows - 1u);
    let first_col = thread % THREADS * ELEMENTS;
    let place = place_of(team_row, params.cols);
    load_row(place, first_col);
    let mean = mean_of(row);
    let rstd = rstd_of(row);
    let sums = thread_sums(place, first_col, mean, rstd);
    let means = row_sums(at, sums * params.reciprocal_cols, 0u);
    store_dx(row, place, place, first_col, mean, rstd, means);
}
