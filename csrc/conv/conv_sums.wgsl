// The output of a convolution whose terms are divided over workgroups: the sums of the parts, in order, of which each is
// [groups][lines][quads of a line] in the workspace, and the epilogue. Lines are rows of the output, or its columns. A thread has one quad.
@compute @workgroup_size(WORKGROUP)
fn conv_sums(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    if (group >= params.groups) {
        return;
    }
    let are_rows = params.quads_are_rows != 0u;
    let line_quads = (select(params.n, params.m, are_rows) + 3u) / 4u;
    let lines = select(params.m, params.n, are_rows);
    let quads = params.channel_groups * lines * line_quads;
    let quad = group * WORKGROUP + thread;
    if (quad >= quads) {
        return;
    }
    var sums = vec4<f32>();
    for (var part = 0u; part < params.parts; part++) {
        sums += partials_read(part * quads + quad);
    }
    let line = quad / line_quads % lines;
    let first = quad % line_quads * 4u;
    finish_quad(0u, quad / line_quads / lines, select(line, first, are_rows), select(first, line, are_rows), sums);
}
