// Form direct, second dispatch: dx of an element, from the terms of the channels whose windows hold it.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_direct(at: Invocation) {
    let i = (at.workgroup.y * params.groups_x + at.workgroup.x) * WORKGROUP + at.index;
    if (i >= params.batch * params.channels * params.spatial) {
        return;
    }
    let place = element_place(i);
    let own = x_of(offset_of(place, params.x));
    let power = reduce(sum_of_squares(place)).power;
    let all = window_of(place.y, params.size - params.before - 1u);
    let step = select(params.spatial, 1u, params.is_last == 1u);
    let start = i - place.y * step;
    var sum = LongSum(0.0, 0.0, 0.0);
    for (var c = all.x; c < all.y; c++) {
        let neighbour = start + c * step;
        sum = add_up(sum, terms_of(neighbour) * (roots_of(neighbour) * own), c - all.x);
    }
    let total = (sum.part + sum.parts) + sum.total;
    dx_put(offset_of(place, params.dx), dy_of(offset_of(place, params.dy)) * power - total);
}
