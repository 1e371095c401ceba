// Copies of any strides. A thread takes CHUNKS chunks, WORKGROUP chunks apart, all of which it loads before it stores the first. A chunk is up to ELEMENTS
// units along a line, whose last chunk may be cut. The functions `load` and `store` are made from how units lie along a line. Strides below 0 wrap.
struct Params {
    chunks: u32,
    groups_x: u32,
    line: u32,
    chunks_of_line: u32,
    x_at: u32,
    y_at: u32,
    x_step: u32,
    y_step: u32,
    axes: array<vec4<u32>, AXES>, // the others, innermost first: extent, stride of y, stride of x
}

@group(0) @binding(0) var<uniform> params: Params;

struct Place {
    x_at: u32,
    y_at: u32,
    count: u32,
}

fn place_of(chunk: u32) -> Place {
    var rest = chunk / params.chunks_of_line;
    let first = (chunk - rest * params.chunks_of_line) * ELEMENTS;
    var place: Place;
    place.x_at = params.x_at + first * params.x_step;
    place.y_at = params.y_at + first * params.y_step;
    place.count = count_before(params.line, first);
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        place.y_at += i * axis.y;
        place.x_at += i * axis.z;
        rest = outer;
    }
    return place;
}

@compute @workgroup_size(WORKGROUP)
fn copy_strided(at: Invocation) {
    let first = workgroup_number(at, params.groups_x) * CHUNKS * WORKGROUP + at.index;
    var places: array<Place, CHUNKS>;
    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let chunk = first + k * WORKGROUP;
        if (chunk < params.chunks) {
            places[k] = place_of(chunk);
            chunks[k] = load(places[k]);
        }
    }
    for (var k = 0u; k < CHUNKS; k++) {
        if (first + k * WORKGROUP < params.chunks) {
            store(places[k], chunks[k]);
        }
    }
}
