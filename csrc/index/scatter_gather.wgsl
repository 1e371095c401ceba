// Rows of runs that begin in one part and end in another.
const OF_CHAIN: u32 = 32u;

@compute @workgroup_size(WORKGROUP)
fn scatter_gather(at: Invocation) {
    let place = place_of(workgroup_number(at, params.groups_x) * WORKGROUP + at.index);
    let first = place.share * OF_PART;
    let next = first + OF_PART;
    if (place.share >= params.shares || next >= params.entries) {
        return;
    }
    let key = keys_bits(next - 1u);
    if (key >= params.keys || keys_bits(next) != key) {
        return;
    }
    if (first > 0u) {
        if (keys_bits(first - 1u) == key) {
            return;
        }
    }
    // 1. The last part that the run reaches.
    var reached = place.share + 1u;
    var beyond = params.shares;
    while (beyond - reached > 1u) {
        let middle = reached + (beyond - reached) / 2u;
        if (keys_bits(middle * OF_PART) == key) {
            reached = middle;
        } else {
            beyond = middle;
        }
    }
    // 2. Chains of a fixed number of parts, one after another.
    var total = parts_bits(kept(place.share, 1u, place.unit));
    for (var chain = place.share + 1u; chain <= reached; chain += OF_CHAIN) {
        let end = min(chain + OF_CHAIN, reached + 1u);
        var held = parts_bits(kept(chain, 0u, place.unit));
        for (var part = chain + 1u; part < end; part++) {
            held = combined(held, parts_bits(kept(part, 0u, place.unit)));
        }
        total = combined(total, held);
    }
    put_row(key, place, total);
}
