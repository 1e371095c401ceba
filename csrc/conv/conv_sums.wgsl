// The output of a convolution whose terms are divided over workgroups: adds up the parts in order, and applies the epilogue. Each part is
// [groups][lines][quads of a line] in the workspace, where lines are columns or rows of the output. A thread has one quad.
@compute @workgroup_size(WORKGROUP)
fn conv_sums(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    let index = workgroup * WORKGROUP + thread;
    let quad = quad_of(index);
    if (quad.matrix >= params.channel_groups) {
        return;
    }
    var sums = vec4<f32>();
    for (var part = 0u; part < params.parts; part++) {
        sums += partials_read(part * params.channel_groups * quad.matrix_quads + index);
    }
    finish_quad(0u, quad.matrix, quad.m, quad.n, sums);
}
