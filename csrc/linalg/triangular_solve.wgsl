// Systems with a lower triangular matrix: a workgroup solves TILE of them, block by block of TILE rows. From a block it takes what is solved, tile by tile, and
// then solves it row by row. Each thread has four elements of a block: those 16 rows and 16 columns apart.
const TILE: u32 = 32u;
const ACROSS: u32 = 16u; // threads of a row
const PADDED: u32 = 33u; // elements from row to row of a tile of the matrix, so that those of a column lie in different banks

struct Params {
    n: u32,
    systems: u32,
    panels: u32, // workgroups of a matrix
    groups: u32,
    groups_x: u32,
    alpha: f32,
    a: vec2<u32>, // from row to row, and from column to column
    b: vec2<u32>,
    x: vec2<u32>,
    axes: array<vec4<u32>, AXES>, // of the matrices, innermost first: extent, and the strides of x, b and a
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> triangle: array<f32, TILE * PADDED>;
var<workgroup> solved: array<f32, TILE * TILE>;

// Where row i lies in the operands.
fn place(i: u32) -> u32 {
    return select(i, params.n - 1u - i, IS_REVERSED);
}

// A tile of the matrix: below the diagonal, and on it where it is read.
fn load_triangle(index: u32, start: u32, row: u32, column: u32) {
    for (var at = index; at < TILE * TILE; at += WORKGROUP) {
        let i = row + at / TILE;
        let j = column + at % TILE;
        var value = 0.0;
        if (i < params.n && (j < i || (j == i && !IS_UNIT))) {
            value = a_of(start + place(i) * params.a.x + place(j) * params.a.y);
        }
        triangle[(at / TILE) * PADDED + at % TILE] = value;
    }
}

@compute @workgroup_size(WORKGROUP)
fn triangular_solve(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    if (number >= params.groups) {
        return;
    }
    // 1. The matrix, and the thread's columns.
    var rest = number / params.panels;
    let across = at.index % ACROSS;
    let down = at.index / ACROSS;
    let first = (number - rest * params.panels) * TILE;
    let columns = vec2<u32>(first + across, first + across + ACROSS);
    let is_column = columns < vec2<u32>(params.systems);
    var x_start = 0u;
    var b_start = 0u;
    var a_start = 0u;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        x_start += i * axis.y;
        b_start += i * axis.z;
        a_start += i * axis.w;
        rest = outer;
    }
    for (var block = 0u; block < params.n; block += TILE) {
        // 2. The right-hand sides, of the upper and of the lower 16 rows.
        let rows = vec2<u32>(block + down, block + down + ACROSS);
        var upper = vec2<f32>();
        var lower = vec2<f32>();
        for (var k = 0u; k < 2u; k++) {
            let start = b_start + columns[k] * params.b.y;
            if (is_column[k] && rows.x < params.n) {
                upper[k] = params.alpha * b_of(start + place(rows.x) * params.b.x);
            }
            if (is_column[k] && rows.y < params.n) {
                lower[k] = params.alpha * b_of(start + place(rows.y) * params.b.x);
            }
        }
        // 3. Without the rows that are solved.
        for (var before = 0u; before < block; before += TILE) {
            load_triangle(at.index, a_start, block, before);
            for (var i = at.index; i < TILE * TILE; i += WORKGROUP) {
                let column = first + i % TILE;
                var value = 0.0;
                if (column < params.systems) {
                    value = x_of(x_start + place(before + i / TILE) * params.x.x + column * params.x.y);
                }
                solved[i] = value;
            }
            workgroupBarrier();
            for (var k = 0u; k < TILE; k++) {
                let values = vec2<f32>(solved[k * TILE + across], solved[k * TILE + across + ACROSS]);
                upper -= triangle[down * PADDED + k] * values;
                lower -= triangle[(down + ACROSS) * PADDED + k] * values;
            }
            workgroupBarrier();
        }
        // 4. The rows of the block: first the upper ones, which the lower ones then do without.
        load_triangle(at.index, a_start, block, block);
        workgroupBarrier();
        for (var k = 0u; k < ACROSS; k++) {
            if (down == k) {
                if (!IS_UNIT) {
                    upper /= triangle[k * PADDED + k];
                }
                solved[k * TILE + across] = upper.x;
                solved[k * TILE + across + ACROSS] = upper.y;
            }
            workgroupBarrier();
            let values = vec2<f32>(solved[k * TILE + across], solved[k * TILE + across + ACROSS]);
            if (down > k) {
                upper -= triangle[down * PADDED + k] * values;
            }
            lower -= triangle[(down + ACROSS) * PADDED + k] * values;
        }
        for (var k = ACROSS; k < TILE; k++) {
            if (down + ACROSS == k) {
                if (!IS_UNIT) {
                    lower /= triangle[k * PADDED + k];
                }
                solved[k * TILE + across] = lower.x;
                solved[k * TILE + across + ACROSS] = lower.y;
            }
            workgroupBarrier();
            let values = vec2<f32>(solved[k * TILE + across], solved[k * TILE + across + ACROSS]);
            if (down + ACROSS > k) {
                lower -= triangle[(down + ACROSS) * PADDED + k] * values;
            }
        }
        // 5. The solution, which later blocks read.
        for (var k = 0u; k < 2u; k++) {
            let to = x_start + columns[k] * params.x.y;
            if (is_column[k] && rows.x < params.n) {
                x_put(to + place(rows.x) * params.x.x, upper[k]);
            }
            if (is_column[k] && rows.y < params.n) {
                x_put(to + place(rows.y) * params.x.x, lower[k]);
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
}
