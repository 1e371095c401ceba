// Counts the targets that are out of range. Sums of integers are the same in any order. The first of two dispatches clears the count.
struct Params {
    elements: u32,
    groups_x: u32,
    classes: u32,
    ignored: u32, // the target of lines that do not count, if HAS_IGNORED; of 64 bits the lower half
    ignored_above: u32, // the upper half
    axes: array<vec4<u32>, AXES>, // of the targets, innermost first: extent, stride
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn cross_entropy_missing(at: Invocation) {
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
    var place = 0u;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        place += (rest - outer * axis.x) * axis.y;
        rest = outer;
    }
    var above = 0u;
    if (IS_WIDE) {
        above = target_bits(2u * place + 1u);
        place = 2u * place;
    }
    let target_number = target_bits(place);
    let is_ignored = HAS_IGNORED && target_number == params.ignored && above == params.ignored_above;
    // There are fewer than 2^31 classes, so that a negative target is none of them as an unsigned number, too.
    if (!is_ignored && (above != 0u || target_number >= params.classes)) {
        missing_add(1u);
    }
}
