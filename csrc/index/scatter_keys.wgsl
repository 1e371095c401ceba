// Where each entry goes, as a key, and where it comes from, as a place.
struct Params {
    entries: u32,
    groups_x: u32,
    extent: u32, // positions that an index may name
    apart: u32, // keys from one of these to the next
    keys: u32, // and the key of entries that go nowhere
    axes: array<vec4<u32>, AXES>, // of entries, innermost first: extent, elements of the indices, keys, places
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn scatter_keys(at: Invocation) {
    let entry = workgroup_number(at, params.groups_x) * WORKGROUP + at.index;
    if (entry >= params.entries) {
        return;
    }
    var rest = entry;
    var index_at = 0u;
    var key = 0u;
    var place = 0u;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        index_at += i * axis.y;
        key += i * axis.z;
        place += i * axis.w;
        rest = outer;
    }
    let position = named_position(index_at);
    key = select(key + position * params.apart, params.keys, position == NO_POSITION);
    keys_scatter(entry, 1u, 1u, vec4<u32>(key, 0u, 0u, 0u));
    places_scatter(entry, 1u, 1u, vec4<u32>(place, 0u, 0u, 0u));
}
