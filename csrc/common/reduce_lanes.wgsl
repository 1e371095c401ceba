// Sums and maxima over a team whose THREADS threads lie within one subgroup: they exchange values by shuffles, without a barrier.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

// Numbers threads by subgroup and lane, so that a team lies within a subgroup: WGSL does not promise that local indices follow lanes.
fn thread_index(at: Invocation) -> u32 {
    return at.subgroup * at.subgroup_size + at.lane;
}

// The sum over the THREADS threads of a team, in all of them. Every thread of the workgroup calls it; `turn` is of no account here.
fn row_sum(at: Invocation, value: f32, turn: u32) -> f32 {
    var sum = value;
    for (var step = 1u; step < THREADS; step = step << 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}

// Two sums at once: even lanes add up the first, odd lanes the second one.
fn row_sums(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    let is_odd = (at.lane & 1u) == 1u;
    var sum = select(values.x, values.y, is_odd) + subgroupShuffleXor(select(values.y, values.x, is_odd), 1u);
    for (var step = 2u; step < THREADS; step = step << 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    let other = subgroupShuffleXor(sum, 1u);
    return select(vec2<f32>(sum, other), vec2<f32>(other, sum), is_odd);
}

// The largest value of the threads of a team, in all of them. It may or may not be NaN if one of the values is.
fn row_max(at: Invocation, value: f32, turn: u32) -> f32 {
    var most = value;
    for (var step = 1u; step < THREADS; step = step << 1u) {
        most = max(most, subgroupShuffleXor(most, step));
    }
    return most;
}

// Members: threads that share out a sum whose result every thread of the team needs. In this file they are all threads of the team.

// The number of a thread among its members.
fn member_index(at: Invocation) -> u32 {
    return at.lane % THREADS;
}

// The number of a thread's set of members among those of its workgroup.
fn members_number(at: Invocation) -> u32 {
    return thread_index(at) / THREADS;
}

fn member_count(at: Invocation) -> u32 {
    return THREADS;
}

fn members_sum(at: Invocation, value: f32, turn: u32) -> f32 {
    return row_sum(at, value, turn);
}

fn members_sums(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    return row_sums(at, values, turn);
}
