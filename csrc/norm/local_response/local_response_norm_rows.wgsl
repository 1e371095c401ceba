// Form rows: a position lies in the registers of a row of invocations, four channels each.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_rows(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let row = at.index / params.vectors;
    let quad = at.index % params.vectors;
    let position = group * params.blocks + row;
    let is_used = row < params.blocks && position < params.batch * params.spatial;
    let n = position / params.spatial;
    let s = position % params.spatial;
    let slot = slot_of(row, quad);

    var own = vec4<f32>();
    if (is_used) {
        own = x_of(n * params.x.x + s * params.x.z + quad * 4u);
    }
    share(slot, quad, is_used, own);
    let sum = sums_of_squares(with_neighbours(slot, is_used, own));
    if (is_used) {
        y_put(n * params.y.x + s * params.y.z + quad * 4u, own * reduce(sum).power);
    }
}
