// Counts the indices that are out of range. Sums of integers are the same in any order. The first of two dispatches clears the count.
struct Params {
    elements: u32,
    groups_x: u32,
    extent: u32, // positions that an index may name
    axes: array<vec4<u32>, AXES>, // of the indices, innermost first: extent, stride
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn lookup_missing(at: Invocation) {
    let number = workgroup_number(at, params.groups_x) * WORKGROUP + at.index;
    if (IS_CLEAR) {
        if (number == 0u) {
            missing_clear();
        }
        return;
    }
    if (number >= params.elements) {
        return;
    }
    var rest = number;
    var index_at = 0u;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        index_at += (rest - outer * axis.x) * axis.y;
        rest = outer;
    }
    if (named_position(index_at) == NO_POSITION) {
        missing_add(1u);
    }
}
