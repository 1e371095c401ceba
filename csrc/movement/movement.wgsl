// What the kernels of moves share. A unit is 1, 2 or 4 bytes of an element, or several elements; a line is the units along the innermost axis.
struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

// The number of a workgroup in a grid of rows of `groups_x`.
fn workgroup_number(at: Invocation, groups_x: u32) -> u32 {
    return at.workgroup.y * groups_x + at.workgroup.x;
}
