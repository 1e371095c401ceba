// Elements that indices name. A thread takes a chunk of up to ELEMENTS units of y along a line, whose last chunk may be cut. The functions `load_chunk`,
// `read_unit`, `pack_units` and `store` are made from how units lie along a line.
struct Params {
    chunks: u32,
    groups_x: u32,
    chunks_of_line: u32,
    line: u32,
    extent: u32, // positions that an index may name
    apart: u32, // units of x from one of these to the next
    fill: vec2<u32>, // of even and of odd units
    y_step: u32,
    x_step: u32,
    index_step: u32,
    axes: array<vec4<u32>, AXES>, // the others, innermost first: extent, strides of y and of x, and of the indices
}

@group(0) @binding(0) var<uniform> params: Params;

struct Place {
    y_at: u32,
    count: u32,
}

@compute @workgroup_size(WORKGROUP)
fn lookup(at: Invocation) {
    let chunk = workgroup_number(at, params.groups_x) * WORKGROUP + at.index;
    if (chunk >= params.chunks) {
        return;
    }
    // 1. The part.
    var rest = chunk / params.chunks_of_line;
    let first = (chunk - rest * params.chunks_of_line) * ELEMENTS;
    var place = Place(first * params.y_step, count_before(params.line, first));
    var x_at = first * params.x_step;
    var index_at = first * params.index_step;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        place.y_at += i * axis.y;
        x_at += i * axis.z;
        index_at += i * axis.w;
        rest = outer;
    }
    // 2. The positions: where one index names the line, one.
    var positions: array<u32, ELEMENTS>;
    for (var e = 0u; e < ELEMENTS; e++) {
        if (e == 0u || (!IS_ONE_INDEX && e < place.count)) {
            positions[e] = named_position(index_at + e * params.index_step);
        } else {
            positions[e] = positions[0];
        }
    }
    // 3. Their units.
    if (HAS_X && IS_ONE_INDEX && positions[0] != NO_POSITION) {
        store(place, load_chunk(x_at + positions[0] * params.apart, place.count));
        return;
    }
    var units: array<u32, ELEMENTS>;
    for (var e = 0u; e < ELEMENTS; e++) {
        units[e] = select(params.fill.x, params.fill.y, ((first + e) & 1u) == 1u);
        if (HAS_X && !IS_ONE_INDEX && e < place.count && positions[e] != NO_POSITION) {
            units[e] = read_unit(x_at + e * params.x_step + positions[e] * params.apart);
        }
    }
    store(place, pack_units(units));
}
