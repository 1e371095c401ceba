// Copies of which neighbours in y are far apart in x and the other way round, in tiles of 32 lines of 32 words on each side. A word has PER_WORD units of
// its line. A workgroup takes one tile: it loads lines of x, and stores lines of y.
struct Params {
    tiles: u32,
    groups_x: u32,
    row_tiles: u32,
    column_tiles: u32,
    rows: u32,      // units of a line of x, which are as many lines of y
    columns: u32,   // units of a line of y
    y_step: u32,   // from line to line of y
    x_step: u32, // from line to line of x; below 0 it wraps
    x_at: u32,
    y_at: u32,
    axes: array<vec4<u32>, AXES>, // the others, innermost first: extent, stride of y, stride of x
}

@group(0) @binding(0) var<uniform> params: Params;

const WORDS: u32 = 32u;
const SIDE: u32 = WORDS * PER_WORD;

// A word of each line of x, and one more, so that neighbours in a column lie in other banks.
var<workgroup> held: array<array<u32, WORDS + 1u>, SIDE>;

// The unit of a column and a row of the tile, in the low bits.
fn unit(column: u32, row: u32) -> u32 {
    if (PER_WORD == 1u) {
        return held[column][row];
    }
    return (held[column][row >> 1u] >> (16u * (row & 1u))) & 0xffffu;
}

@compute @workgroup_size(WORKGROUP)
fn copy_tiles(at: Invocation) {
    // 1. The tile.
    let number = workgroup_number(at, params.groups_x);
    let is_tile = number < params.tiles;
    let column = number % params.column_tiles * SIDE;
    var rest = number / params.column_tiles;
    let row = rest % params.row_tiles * SIDE;
    rest = rest / params.row_tiles;
    var x_at = params.x_at + column * params.x_step + row;
    var y_at = params.y_at + row * params.y_step + column;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        y_at += i * axis.y;
        x_at += i * axis.z;
        rest = outer;
    }
    // 2. Lines of x.
    let lane = at.index % WORDS;
    if (is_tile) {
        for (var i = at.index / WORDS; i < SIDE; i += WORKGROUP / WORDS) {
            if (column + i < params.columns && row + lane * PER_WORD < params.rows) {
                held[i][lane] = x_bits((x_at + i * params.x_step) / PER_WORD + lane);
            }
        }
    }
    workgroupBarrier();
    // 3. Lines of y.
    if (is_tile) {
        for (var i = at.index / WORDS; i < SIDE; i += WORKGROUP / WORDS) {
            let first = lane * PER_WORD;
            if (row + i < params.rows && column + first < params.columns) {
                var bits = unit(first, i);
                if (PER_WORD > 1u) {
                    bits |= unit(first + 1u, i) << 16u;
                }
                y_scatter((y_at + i * params.y_step) / PER_WORD + lane, 1u, 1u, vec4<u32>(bits));
            }
        }
    }
}
