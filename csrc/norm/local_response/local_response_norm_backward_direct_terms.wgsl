// Form direct, first dispatch: the term of an element, slope dy x d^(-beta - 1/2), and its root d^(-1/2).
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_direct_terms(at: Invocation) {
    let i = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (i >= params.batch * params.channels * params.spatial) {
        return;
    }
    let place = element_place(i);
    let reduced = reduce(sum_of_squares(place));
    let scaled = params.slope * (x_of(offset_of(place, params.x)) * reduced.root);
    terms_put(i, dy_of(offset_of(place, params.dy)) * reduced.power * scaled);
    roots_put(i, reduced.root);
}
