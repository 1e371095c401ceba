// What ops on each element alone share: a thread takes CHUNKS chunks of 16 bytes, WORKGROUP chunks apart.
struct Params {
    elements: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

// The first element of chunk k of a thread.
fn chunk_start(at: Invocation, k: u32) -> u32 {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    return (workgroup * CHUNKS * WORKGROUP + at.index) * ELEMENTS + k * WORKGROUP * ELEMENTS;
}
