// Form rows: a position lies in the registers of a row of threads, four channels each.
@compute @workgroup_size(WORKGROUP)
fn local_response_norm_rows(at: Invocation) {
    let place = place_of(at);
    var own = vec4<f32>();
    if (place.is_used) {
        own = x_of(offset_of(place, params.x));
    }
    share(place, own);
    let sum = sums_of_squares(with_neighbours(place, own));
    if (place.is_used) {
        y_put(offset_of(place, params.y), own * reduce(sum).power);
    }
}
