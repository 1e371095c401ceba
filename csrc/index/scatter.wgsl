// What goes to one row of y is combined. Entries lie in the order of their keys; a thread takes a part of OF_PART of them, whatever their keys. A run is the
// entries of a key: where it lies within a part its row is complete, else the part keeps its share of it, and the part in which it begins gathers the others in
// another dispatch.
@compute @workgroup_size(WORKGROUP)
fn scatter(at: Invocation) {
    let place = place_of(workgroup_number(at, params.groups_x) * WORKGROUP + at.index);
    let first = place.share * OF_PART;
    if (place.share >= params.shares) {
        return;
    }
    var key = keys_bits(first);
    if (key >= params.keys) {
        return;
    }
    let last = min(first + OF_PART, params.entries);
    var begins = first == 0u;
    if (first > 0u) {
        begins = keys_bits(first - 1u) != key;
    }
    var is_new = true;
    var held = 0u;
    for (var i = first; i < last; i++) {
        // 1. An entry.
        let own = keys_bits(i);
        if (own >= params.keys) {
            break;
        }
        let value = widened(source_bits(places_bits(i) * params.place + place.source));
        // 2. With those of its run before it.
        if (own != key) {
            if (begins) {
                put_row(key, place, held);
            } else {
                keep(kept(place.share, 0u, place.unit), held);
            }
            key = own;
            begins = true;
            is_new = true;
        }
        if (is_new) {
            held = value;
        } else {
            held = combined(held, value);
        }
        is_new = false;
    }
    // 3. The last run.
    var continues = false;
    if (last < params.entries) {
        continues = keys_bits(last) == key;
    }
    if (begins && !continues) {
        put_row(key, place, held);
    } else {
        keep(kept(place.share, select(0u, 1u, begins), place.unit), held);
    }
}
