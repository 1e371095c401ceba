// What the kernels share that write rows where sorted keys say: a thread has a unit of a row, of one of the shares of the entries.
struct Params {
    entries: u32,
    groups_x: u32,
    units: u32, // of a row
    keys: u32,
    place: u32, // units of the source from one place to the next
    key: u32, // units of y from one key to the next
    shares: u32, // of the entries: each by itself, or parts of OF_PART
    axes: array<vec4<u32>, AXES>, // of a row, innermost first: extent, strides of the source and of y
}

@group(0) @binding(0) var<uniform> params: Params;

struct Place {
    share: u32,
    unit: u32,
    source: u32,
    y: u32,
}

fn place_of(number: u32) -> Place {
    var place: Place;
    place.share = number / params.units;
    place.unit = number - place.share * params.units;
    var rest = place.unit;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        place.source += i * axis.y;
        place.y += i * axis.z;
        rest = outer;
    }
    return place;
}
