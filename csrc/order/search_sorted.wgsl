// Where values could be inserted among sorted elements. A thread bisects the positions for one value, CUDA's for several. The file of the keys stands behind this one;
// the functions `sorted_element`, `value_element` and `put_index` are made from the operands.
struct Params {
    elements: u32, // of the values
    groups_x: u32,
    length: u32, // elements of a line
    step: u32, // from one of them to the next
    sign: vec2<u32>, // the bit of the sign, the low word first
    infinity: vec2<u32>, // the bits of infinity
    axes: array<vec4<u32>, AXES>, // of the values, innermost first: extent, and the strides of the indices, the values and their lines
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

@compute @workgroup_size(WORKGROUP)
fn search_sorted(at: Invocation) {
    let number = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (number >= params.elements) {
        return;
    }
    // 1. The value, and where its line begins.
    var to = 0u;
    var value_at = 0u;
    var line = 0u;
    var rest = number;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        to += i * axis.y;
        value_at += i * axis.z;
        line += i * axis.w;
        rest = outer;
    }
    let wanted = order_key(value_element(value_at));
    // 2. The position is one of `left` behind what was found, or the one behind these.
    var found = 0u;
    var left = params.length;
    while (left > 0u) {
        let half = max(left / 2u, 1u);
        let key = order_key(sorted_element(line + (found + half - 1u) * params.step));
        var is_before = is_less(key, wanted);
        if (IS_RIGHT) {
            is_before = !is_less(wanted, key);
        }
        found += select(0u, half, is_before);
        left -= half;
    }
    // 3. The index.
    put_index(to, found);
}
