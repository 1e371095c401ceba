// A row takes the workgroup: subgroups of any width sum up, then each subgroup sums their sums.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

var<workgroup> row_sums: array<vec2<f32>, 2u * MOST_SUBGROUPS>;

fn thread_index(at: Invocation) -> u32 {
    return at.index;
}

// The sum over the workgroup, in all its threads. Consecutive calls alternate `turn` between 0 and 1, so that one barrier is enough.
fn row_sum(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    let sum = subgroupAdd(values);
    if (at.lane == 0u) {
        row_sums[turn * MOST_SUBGROUPS + at.subgroup] = sum;
    }
    workgroupBarrier();
    var gathered = vec2<f32>();
    for (var first = 0u; first < at.subgroups; first += at.subgroup_size) {
        let i = first + at.lane;
        gathered += select(vec2<f32>(), row_sums[turn * MOST_SUBGROUPS + min(i, at.subgroups - 1u)], i < at.subgroups);
    }
    return subgroupAdd(gathered);
}
