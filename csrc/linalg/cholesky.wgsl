// Cholesky factors of lower triangles: a workgroup factors a matrix, column of tiles by column of tiles, and of each the tile on the diagonal first. From a tile it takes
// the products of the columns before; then it factors it, or solves with the factor of the diagonal, column by column. Each thread has four elements of a tile: those 16
// rows and 16 columns apart. The function `put_info` is made from the operands.
const TILE: u32 = 32u;
const HALF: u32 = 16u; // threads of a row
const PADDED: u32 = 33u; // elements from row to row of a tile, so that those of a column lie in different banks

struct Params {
    n: u32,
    groups: u32,
    groups_x: u32,
    no_number: u32, // the bits of NaN, which no compiler knows
    a: vec2<u32>, // from row to row, and from column to column
    factor: vec2<u32>,
    axes: array<vec4<u32>, AXES>, // of the matrices, innermost first: extent, and the strides of the factor, a and info
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> left: array<f32, TILE * PADDED>;
var<workgroup> right: array<f32, TILE * PADDED>;
var<workgroup> diagonal: array<f32, TILE * PADDED>;
var<workgroup> pivot: f32;
var<workgroup> failed: u32; // counted from 1

// Whether a number is above 0, decided on its bits, since devices may take comparisons with NaN for others.
fn is_positive(value: f32) -> bool {
    let bits = bitcast<u32>(value);
    return bits > 0u && bits <= 0x7f800000u;
}

// An element of the lower triangle of a.
fn element(start: u32, i: u32, j: u32) -> f32 {
    var value = 0.0;
    if (i < params.n && j <= i) {
        value = a_of(start + i * params.a.x + j * params.a.y);
    }
    return value;
}

// An element of the factor, which has all columns.
fn of_factor(start: u32, i: u32, j: u32) -> f32 {
    var value = 0.0;
    if (i < params.n) {
        value = factor_of(start + i * params.factor.x + j * params.factor.y);
    }
    return value;
}

@compute @workgroup_size(WORKGROUP)
fn cholesky(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    if (number >= params.groups) {
        return;
    }
    // 1. The matrix.
    var rest = number;
    var start = 0u;
    var a_start = 0u;
    var info_at = 0u;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        start += i * axis.y;
        a_start += i * axis.z;
        info_at += i * axis.w;
        rest = outer;
    }
    let across = at.index % HALF;
    let down = at.index / HALF;
    if (at.index == 0u) {
        failed = 0u;
    }
    for (var column = 0u; column < params.n; column += TILE) {
        for (var row = column; row < params.n; row += TILE) {
            // 2. The elements below the diagonal and on it, of the upper and of the lower 16 rows.
            let j = column + across;
            var upper = vec2<f32>(element(a_start, row + down, j), element(a_start, row + down, j + HALF));
            var lower = vec2<f32>(element(a_start, row + down + HALF, j), element(a_start, row + down + HALF, j + HALF));
            // 3. Without the products of the columns before.
            for (var before = 0u; before < column; before += TILE) {
                for (var i = at.index; i < TILE * TILE; i += WORKGROUP) {
                    let to = (i / TILE) * PADDED + i % TILE;
                    left[to] = of_factor(start, row + i / TILE, before + i % TILE);
                    right[to] = of_factor(start, column + i / TILE, before + i % TILE);
                }
                workgroupBarrier();
                for (var k = 0u; k < TILE; k++) {
                    let values = vec2<f32>(right[across * PADDED + k], right[(across + HALF) * PADDED + k]);
                    upper -= left[down * PADDED + k] * values;
                    lower -= left[(down + HALF) * PADDED + k] * values;
                }
                workgroupBarrier();
            }
            // 4. The columns of the tile.
            for (var k = 0u; k < TILE; k++) {
                let is_late = k >= HALF;
                let is_owner = across == k % HALF;
                if (row == column) {
                    if (is_owner && down == k % HALF) {
                        let value = select(upper.x, lower.y, is_late);
                        if (is_positive(value)) {
                            pivot = sqrt(value);
                        } else {
                            pivot = bitcast<f32>(params.no_number);
                            if (failed == 0u && column + k < params.n) {
                                failed = column + k + 1u;
                            }
                        }
                    }
                    workgroupBarrier();
                    if (is_owner) {
                        var values = select(vec2<f32>(upper.x, lower.x), vec2<f32>(upper.y, lower.y), is_late);
                        values = select(values / pivot, vec2<f32>(pivot), vec2<u32>(down, down + HALF) == vec2<u32>(k));
                        if (is_late) {
                            upper.y = values.x;
                            lower.y = values.y;
                        } else {
                            upper.x = values.x;
                            lower.x = values.y;
                        }
                        diagonal[down * PADDED + k] = values.x;
                        diagonal[(down + HALF) * PADDED + k] = values.y;
                    }
                    workgroupBarrier();
                    let values = vec2<f32>(diagonal[across * PADDED + k], diagonal[(across + HALF) * PADDED + k]);
                    let is_right = vec2<u32>(across, across + HALF) > vec2<u32>(k);
                    if (down > k) {
                        upper = select(upper, upper - diagonal[down * PADDED + k] * values, is_right);
                    }
                    if (down + HALF > k) {
                        lower = select(lower, lower - diagonal[(down + HALF) * PADDED + k] * values, is_right);
                    }
                } else {
                    if (is_owner) {
                        var values = select(vec2<f32>(upper.x, lower.x), vec2<f32>(upper.y, lower.y), is_late);
                        values = values / diagonal[k * PADDED + k];
                        if (is_late) {
                            upper.y = values.x;
                            lower.y = values.y;
                        } else {
                            upper.x = values.x;
                            lower.x = values.y;
                        }
                        left[down * PADDED + k] = values.x;
                        left[(down + HALF) * PADDED + k] = values.y;
                    }
                    workgroupBarrier();
                    let values = vec2<f32>(diagonal[across * PADDED + k], diagonal[(across + HALF) * PADDED + k]);
                    let is_right = vec2<u32>(across, across + HALF) > vec2<u32>(k);
                    upper = select(upper, upper - left[down * PADDED + k] * values, is_right);
                    lower = select(lower, lower - left[(down + HALF) * PADDED + k] * values, is_right);
                }
            }
            // 5. The factor, which later tiles read, and 0 beyond the diagonal.
            for (var r = 0u; r < 2u; r++) {
                for (var c = 0u; c < 2u; c++) {
                    let i = row + down + r * HALF;
                    let j = column + across + c * HALF;
                    let values = select(upper, lower, r == 1u);
                    if (i < params.n && j < params.n) {
                        let value = select(0.0, select(values.x, values.y, c == 1u), j <= i);
                        factor_put(start + i * params.factor.x + j * params.factor.y, value);
                    }
                    // The tile on the other side of the diagonal.
                    let above = column + down + r * HALF;
                    let beyond = row + across + c * HALF;
                    if (row != column && beyond < params.n) {
                        factor_put(start + above * params.factor.x + beyond * params.factor.y, 0.0);
                    }
                }
            }
            storageBarrier();
            workgroupBarrier();
        }
    }
    // 6. What failed.
    if (at.index == 0u) {
        put_info(info_at, failed);
    }
}
