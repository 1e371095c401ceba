// A row lies within one subgroup: its THREADS lanes exchange values directly.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

// Neighbours in a subgroup are neighbours here; that local indices follow lanes is promised nowhere.
fn thread_index(at: Invocation) -> u32 {
    return at.subgroup * at.subgroup_size + at.lane;
}

// The sum over the THREADS threads of a row, in all of them. Every thread of the workgroup takes part.
fn row_sum(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    var sum = values;
    for (var step = 1u; step < THREADS; step = step << 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}
