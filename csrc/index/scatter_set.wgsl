// The last entry of each key goes to y.
@compute @workgroup_size(WORKGROUP)
fn scatter_set(at: Invocation) {
    let place = place_of(workgroup_number(at, params.groups_x) * WORKGROUP + at.index);
    if (place.share >= params.shares) {
        return;
    }
    let key = keys_bits(place.share);
    if (key >= params.keys || (place.share + 1u < params.entries && keys_bits(place.share + 1u) == key)) {
        return;
    }
    let bits = source_bits(places_bits(place.share) * params.place + place.source);
    y_scatter(key * params.key + place.y, 1u, 1u, vec4<u32>(bits, 0u, 0u, 0u));
}
