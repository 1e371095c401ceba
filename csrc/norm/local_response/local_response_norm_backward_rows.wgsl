// Form rows: a position lies in the registers of a row of invocations, four channels each.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_rows(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let row = at.index / params.vectors;
    let quad = at.index % params.vectors;
    let position = group * params.blocks + row;
    let is_used = row < params.blocks && position < params.batch * params.spatial;
    let n = position / params.spatial;
    let s = position % params.spatial;
    let slot = slot_of(row, quad);

    var own = vec4<f32>();
    var dy = vec4<f32>();
    if (is_used) {
        own = x_of(n * params.x.x + s * params.x.z + quad * 4u);
        dy = dy_of(n * params.dy.x + s * params.dy.z + quad * 4u);
    }
    share(slot, quad, is_used, own);
    let reduced = reduce(sums_of_squares(with_neighbours(slot, is_used, own)));
    let e = dy * reduced.power;
    let term = e * (params.slope * (own * reduced.root));
    // x in workgroup memory is overwritten once every invocation has read it.
    workgroupBarrier();
    share(slot, quad, is_used, term);
    var terms = with_neighbours(slot, is_used, term);
    // And so are the terms.
    workgroupBarrier();
    share(slot, quad, is_used, reduced.root);
    var roots = with_neighbours(slot, is_used, reduced.root);
    var sum = vec4<f32>();
    for (var w = 4u - AFTER; w < 4u - AFTER + SIZE; w++) {
        let root = vec4<f32>(roots[w], roots[w + 1u], roots[w + 2u], roots[w + 3u]);
        sum += vec4<f32>(terms[w], terms[w + 1u], terms[w + 2u], terms[w + 3u]) * (root * own);
    }
    if (is_used) {
        dx_put(n * params.dx.x + s * params.dx.z + quad * 4u, e - sum);
    }
}
