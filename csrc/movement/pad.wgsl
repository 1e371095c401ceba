// Padding. A thread takes a chunk of up to ELEMENTS units of y along a line, whose last chunk may be cut, and reads each by itself. The function `store` is
// made from how they lie along a line.
struct Params {
    chunks: u32,
    groups_x: u32,
    chunks_of_line: u32,
    y_at: u32,
    value: vec2<u32>, // of even and of odd units
    x_at: u32,
    axes: array<array<vec4<u32>, 2>, AXES>, // innermost first: extent, stride of y, stride of x, extent of x; before, dilation, whether there is an edge
}

@group(0) @binding(0) var<uniform> params: Params;

// The modes, by their numbers.
const CONSTANT: u32 = 0u;
const REFLECT: u32 = 1u;
const REPLICATE: u32 = 2u;

// Of a position that reads no element.
const NONE: u32 = 0xffffffffu;

// The element of x along an axis that a position reads.
fn source(k: u32, i: u32) -> u32 {
    let axis = params.axes[k];
    if (axis[1].z == 0u) {
        return i;
    }
    let at = bitcast<i32>(i - axis[1].x);
    let last = bitcast<i32>(axis[0].w) - 1;
    if (MODE == CONSTANT) {
        if (at < 0) {
            return NONE;
        }
        let element = bitcast<u32>(at) / axis[1].y;
        let is_element = element * axis[1].y == bitcast<u32>(at) && element < axis[0].w;
        return select(NONE, element, is_element);
    } else if (MODE == REFLECT) {
        return bitcast<u32>(select(abs(at), 2 * last - at, at > last));
    } else if (MODE == REPLICATE) {
        return bitcast<u32>(clamp(at, 0, last));
    }
    let wrapped = select(at, at + last + 1, at < 0);
    return bitcast<u32>(select(wrapped, at - last - 1, at > last));
}

struct Place {
    y_at: u32,
    count: u32,
}

@compute @workgroup_size(WORKGROUP)
fn pad(at: Invocation) {
    let chunk = workgroup_number(at, params.groups_x) * WORKGROUP + at.index;
    if (chunk >= params.chunks) {
        return;
    }
    // 1. The line.
    var rest = chunk / params.chunks_of_line;
    let first = (chunk - rest * params.chunks_of_line) * ELEMENTS;
    let line = params.axes[0][0];
    var place = Place(params.y_at + first * line.y, count_before(line.x, first));
    var x_at = params.x_at;
    var is_inside = true;
    for (var k = 1u; k < AXES; k++) {
        let axis = params.axes[k][0];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        let element = source(k, i);
        is_inside = is_inside && element != NONE;
        place.y_at += i * axis.y;
        x_at += element * axis.z;
        rest = outer;
    }
    // 2. Its units.
    var units: array<u32, ELEMENTS>;
    for (var e = 0u; e < ELEMENTS; e++) {
        let i = first + e;
        units[e] = select(params.value.x, params.value.y, (i & 1u) == 1u);
        let element = select(NONE, source(0u, i), is_inside && e < place.count);
        if (HAS_X && element != NONE) {
            units[e] = read_unit(x_at + element * line.z);
        }
    }
    store(place, pack_units(units));
}
