// Form rows: a position lies in the registers of a row of threads, four channels each.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_backward_rows(at: Invocation) {
    let place = place_of(at);
    var own = vec4<f32>();
    var dy = vec4<f32>();
    if (place.is_used) {
        own = x_of(offset_of(place, params.x));
        dy = dy_of(offset_of(place, params.dy));
    }
    share(place, own);
    let reduced = reduce(sums_of_squares(with_neighbours(place, own)));
    let e = dy * reduced.power;
    let term = e * (params.slope * (own * reduced.root));
    // x in workgroup memory is overwritten once every thread has read it.
    workgroupBarrier();
    share(place, term);
    var terms = with_neighbours(place, term);
    // The terms in workgroup memory are overwritten once every thread has read them.
    workgroupBarrier();
    share(place, reduced.root);
    var roots = with_neighbours(place, reduced.root);
    var sum = vec4<f32>();
    for (var w = 4u - AFTER; w < 4u - AFTER + SIZE; w++) {
        let root = vec4<f32>(roots[w], roots[w + 1u], roots[w + 2u], roots[w + 3u]);
        sum += vec4<f32>(terms[w], terms[w + 1u], terms[w + 2u], terms[w + 3u]) * (root * own);
    }
    if (place.is_used) {
        dx_put(offset_of(place, params.dx), e - sum);
    }
}
