// Form direct: y of an element.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_direct(at: Invocation) {
    let i = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (i >= params.batch * params.channels * params.spatial) {
        return;
    }
    let place = element_place(i);
    let own = x_of(offset_of(place, params.x));
    y_put(offset_of(place, params.y), own * reduce(sum_of_squares(place)).power);
}
