// Adds up the losses of lines, and for the mean what they add to the divisor: `of_group` of them in each workgroup, and what workgroups have in a last one.
struct Params {
    count: u32,
    of_group: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> losses: array<f32, WORKGROUP>;
var<workgroup> weights: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn cross_entropy_total(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let first = number * params.of_group;
    let end = min(params.count, first + params.of_group);
    // A loss and a weight, in chains of 16 on each level.
    var sums = vec2<f32>();
    var above = vec2<f32>();
    var top = vec2<f32>();
    var added = 0u;
    for (var i = first + at.index; i < end; i += WORKGROUP) {
        sums = sums + vec2<f32>(bitcast<f32>(loss_of(i)), bitcast<f32>(weight_of(i)));
        added += 1u;
        if (added % 16u == 0u) {
            above = above + sums;
            sums = vec2<f32>();
            if (added % 256u == 0u) {
                top = top + above;
                above = vec2<f32>();
            }
        }
    }
    let mine = (sums + above) + top;
    losses[at.index] = mine.x;
    weights[at.index] = mine.y;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half = half >> 1u) {
        if (at.index < half) {
            losses[at.index] = losses[at.index] + losses[at.index + half];
            weights[at.index] = weights[at.index] + weights[at.index + half];
        }
        workgroupBarrier();
    }
    if (at.index > 0u || (number > 0u && first >= params.count)) {
        return;
    }
    var loss = losses[0];
    if (IS_MEAN && IS_LAST) {
        // By 0 what is 0 or NaN is NaN, everything else infinite.
        let bits = bitcast<u32>(loss);
        let is_number = (bits & 0x7fffffffu) > 0u && (bits & 0x7fffffffu) <= 0x7f800000u;
        let by_zero = params.all_bits & select(0x7fc00000u, (bits & 0x80000000u) | 0x7f800000u, is_number);
        loss = select(loss / weights[0], bitcast<f32>(by_zero), weights[0] == 0.0);
    }
    put_loss(number, bitcast<u32>(loss));
    put_weight(number, bitcast<u32>(weights[0]));
}
