// The term of an element.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_direct_terms(at: Invocation) {
    let i = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (i >= params.batch * params.channels * params.spatial) {
        return;
    }
    let place = element_place(i);
    let reduced = reduce(sum_of_squares(place), x_of(offset_of(place, params.x)));
    terms_put(i, dy_of(offset_of(place, params.dy)) * reduced.power * reduced.ratio);
}
