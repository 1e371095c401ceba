// Sums and maxima over a team of whole subgroups: each subgroup adds up its values; then every thread adds up the sums of all subgroups or, if there
// may be more than FEW_SUBGROUPS, the lanes of each subgroup share these sums. The width of subgroups is at least NARROWEST and at most THREADS.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

const MOST_SUBGROUPS: u32 = THREADS / NARROWEST; // of a team
// Up to this many subgroups, which are 512 threads in subgroups of 32, a thread reads all of their sums, one after the other. Of more subgroups each
// lane reads some sums, and the subgroup adds up again, in five exchanges if it has 32 threads. With a larger number the chain of reads would be
// longer, with a smaller one short chains would be replaced by the exchanges.
const FEW_SUBGROUPS: u32 = 16u;

var<workgroup> subgroup_sums: array<vec2<f32>, 2u * WORKGROUP / NARROWEST>;

// Numbers threads by subgroup and lane, so that a team is whole subgroups: WGSL does not promise that local indices follow lanes.
fn thread_index(at: Invocation) -> u32 {
    return select(at.subgroup * at.subgroup_size + at.lane, at.index, THREADS == WORKGROUP);
}

// The sums of subgroup i of the team, 0 past the last.
fn sums_of(at: Invocation, i: u32, turn: u32) -> vec2<f32> {
    let subgroups = THREADS / at.subgroup_size;
    let first = turn * (WORKGROUP / NARROWEST) + select(at.subgroup / subgroups * subgroups, 0u, THREADS == WORKGROUP);
    return select(vec2<f32>(), subgroup_sums[first + min(i, subgroups - 1u)], i < subgroups);
}

// Two sums over the subgroup: even lanes return the first, odd lanes the second one.
fn subgroup_pair(at: Invocation, values: vec2<f32>) -> f32 {
    let is_odd = (at.lane & 1u) == 1u;
    var sum = select(values.x, values.y, is_odd) + subgroupShuffleXor(select(values.y, values.x, is_odd), 1u);
    for (var step = 2u; step < NARROWEST; step = step << 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    for (var step = NARROWEST; step < at.subgroup_size; step = step << 1u) {
        sum += subgroupShuffleXor(sum, step);
    }
    return sum;
}

// The sum over the THREADS threads of a team, in all of them. Every thread of the workgroup calls it. Consecutive calls of this and of
// `row_sums` alternate `turn` between 0 and 1: a call writes where no thread still reads, so that one barrier a call is enough.
fn row_sum(at: Invocation, value: f32, turn: u32) -> f32 {
    let own = subgroupAdd(value);
    if (at.lane == 0u) {
        subgroup_sums[turn * (WORKGROUP / NARROWEST) + at.subgroup].x = own;
    }
    workgroupBarrier();
    var sum = 0.0;
    if (MOST_SUBGROUPS <= FEW_SUBGROUPS) {
        for (var i = 0u; i < MOST_SUBGROUPS; i++) {
            sum += sums_of(at, i, turn).x;
        }
        return sum;
    }
    for (var first = 0u; first < MOST_SUBGROUPS; first += at.subgroup_size) {
        sum += sums_of(at, first + at.lane, turn).x;
    }
    return subgroupAdd(sum);
}

// Two sums at once.
fn row_sums(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    let own = subgroup_pair(at, values);
    if (at.lane == 0u) {
        subgroup_sums[turn * (WORKGROUP / NARROWEST) + at.subgroup].x = own;
    }
    if (at.lane == 1u) {
        subgroup_sums[turn * (WORKGROUP / NARROWEST) + at.subgroup].y = own;
    }
    workgroupBarrier();
    var sum = vec2<f32>();
    if (MOST_SUBGROUPS <= FEW_SUBGROUPS) {
        for (var i = 0u; i < MOST_SUBGROUPS; i++) {
            sum += sums_of(at, i, turn);
        }
        return sum;
    }
    for (var first = 0u; first < MOST_SUBGROUPS; first += at.subgroup_size) {
        sum += sums_of(at, first + at.lane, turn);
    }
    return members_sums(at, sum, turn);
}

// The largest value of the threads of a team, in all of them. It may or may not be NaN if one of the values is. `turn` alternates as in row_sum.
fn row_max(at: Invocation, value: f32, turn: u32) -> f32 {
    let own = subgroupMax(value);
    if (at.lane == 0u) {
        subgroup_sums[turn * (WORKGROUP / NARROWEST) + at.subgroup].x = own;
    }
    workgroupBarrier();
    let subgroups = THREADS / at.subgroup_size;
    let first = turn * (WORKGROUP / NARROWEST) + select(at.subgroup / subgroups * subgroups, 0u, THREADS == WORKGROUP);
    var most = own;
    if (MOST_SUBGROUPS <= FEW_SUBGROUPS) {
        for (var i = 0u; i < MOST_SUBGROUPS; i++) {
            most = max(most, subgroup_sums[first + min(i, subgroups - 1u)].x);
        }
        return most;
    }
    for (var base = 0u; base < MOST_SUBGROUPS; base += at.subgroup_size) {
        most = max(most, subgroup_sums[first + min(base + at.lane, subgroups - 1u)].x);
    }
    return subgroupMax(most);
}

// Members: threads that share out a sum whose result every thread of the team needs. In this file they are a subgroup of the team: each
// subgroup adds up for itself, without a barrier.

// The number of a thread among its members.
fn member_index(at: Invocation) -> u32 {
    return at.lane;
}

// The number of a thread's set of members among those of its workgroup.
fn members_number(at: Invocation) -> u32 {
    return at.subgroup;
}

fn member_count(at: Invocation) -> u32 {
    return at.subgroup_size;
}

fn members_sum(at: Invocation, value: f32, turn: u32) -> f32 {
    return subgroupAdd(value);
}

fn members_sums(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    let total = subgroup_pair(at, values);
    let other = subgroupShuffleXor(total, 1u);
    return select(vec2<f32>(total, other), vec2<f32>(other, total), (at.lane & 1u) == 1u);
}
