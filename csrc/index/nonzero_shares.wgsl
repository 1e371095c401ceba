// What the kernels share that find elements that are not 0: tiles of x in row-major order, and shares of them, one for each workgroup. A thread has STEPS neighbouring
// elements of a tile. The function `is_there` is made from the operand.
struct Params {
    elements: u32,
    groups_x: u32,
    tiles: u32,
    shares: u32,
    rows: u32, // that are written
    row: u32, // how far apart in the indices rows are
    column: u32, // and positions along two extents
    of_share: u32, // tiles of a share, of the last one perhaps fewer
    mask: vec2<u32>, // the bits of an element that are all 0 where it is, the low word first
    fill: vec2<u32>, // what the indices have behind the last position
    axes: array<vec4<u32>, AXES>, // innermost first: an extent of x as it is walked through and its stride; the extent of x itself
}

@group(0) @binding(0) var<uniform> params: Params;

fn first_tile(share: u32) -> u32 {
    return min(share * params.of_share, params.tiles);
}

// The number of a thread's first element of a tile.
fn first_number(tile: u32, index: u32) -> u32 {
    return (tile * WORKGROUP + index) * STEPS;
}

// Which of a thread's elements of a tile are not 0.
fn nonzero_bits(tile: u32, index: u32) -> u32 {
    let first = first_number(tile, index);
    var bits = 0u;
    for (var i = 0u; i < STEPS; i++) {
        if (first + i >= params.elements) {
            break;
        }
        var x_at = 0u;
        var rest = first + i;
        for (var k = 0u; k < AXES; k++) {
            let axis = params.axes[k];
            let outer = rest / axis.x;
            x_at += (rest - outer * axis.x) * axis.y;
            rest = outer;
        }
        bits |= select(0u, 1u << i, is_there(x_at));
    }
    return bits;
}
