// Sums and maxima over a team by a tree in workgroup memory: for adapters without subgroup operations, and for teams that neither lie within a
// subgroup nor are whole ones.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

var<workgroup> tree: array<vec2<f32>, 2u * WORKGROUP>;

fn thread_index(at: Invocation) -> u32 {
    return at.index;
}

// Two sums over the THREADS threads of a team, in all of them. Every thread of the workgroup calls it. Consecutive calls alternate `turn`
// between 0 and 1: a call writes where no thread still reads.
fn row_sums(at: Invocation, values: vec2<f32>, turn: u32) -> vec2<f32> {
    let own = turn * WORKGROUP + at.index;
    tree[own] = values;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            tree[own] += tree[own + half];
        }
        workgroupBarrier();
    }
    return tree[own - at.index % THREADS];
}

fn row_sum(at: Invocation, value: f32, turn: u32) -> f32 {
    return row_sums(at, vec2<f32>(value, 0.0), turn).x;
}

// The largest value of the threads of a team, in all of them. It may or may not be NaN if one of the values is. `turn` alternates as in row_sums.
fn row_max(at: Invocation, value: f32, turn: u32) -> f32 {
    let own = turn * WORKGROUP + at.index;
    tree[own].x = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (at.index % THREADS < half) {
            tree[own].x = max(tree[own].x, tree[own + half].x);
        }
        workgroupBarrier();
    }
    return tree[own - at.index % THREADS].x;
}

// Members: threads that share out a sum whose result every thread of the team needs. In this file they are all threads of the team.

// The number of a thread among its members.
fn member_index(at: Invocation) -> u32 {
    return at.index % THREADS;
}

// The number of a thread's set of members among those of its workgroup.
fn members_number(at: Invocation) -> u32 {
    return at.index / THREADS;
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
