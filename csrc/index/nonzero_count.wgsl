// How many elements of each share of x are not 0.
@compute @workgroup_size(WORKGROUP)
fn nonzero_count(at: Invocation) {
    let share = workgroup_number(at, params.groups_x);
    let end = first_tile(share + 1u);
    var found = 0u;
    for (var tile = first_tile(share); tile < end; tile++) {
        found += countOneBits(nonzero_bits(tile, at.index));
    }
    let of_threads = sum_before(at.index, found);
    if (at.index == 0u && share < params.shares) {
        counts_scatter(share, 1u, 1u, vec4<u32>(of_threads.y, 0u, 0u, 0u));
    }
}
