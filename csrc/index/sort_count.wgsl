// How many items of each tile have each digit: counts of tiles, digit by digit.
var<workgroup> of_tile: array<atomic<u32>, DIGITS>;

@compute @workgroup_size(WORKGROUP)
fn sort_count(at: Invocation) {
    let tile = workgroup_number(at, params.groups_x);
    if (at.index < DIGITS) {
        atomicStore(&of_tile[at.index], 0u);
    }
    workgroupBarrier();
    for (var i = 0u; i < STEPS; i++) {
        let item = (tile * STEPS + i) * WORKGROUP + at.index;
        if (item < params.items) {
            atomicAdd(&of_tile[digit_of(keys_bits(item))], 1u);
        }
    }
    workgroupBarrier();
    if (at.index < DIGITS && tile < params.tiles) {
        counts_scatter(at.index * params.tiles + tile, 1u, 1u, vec4<u32>(atomicLoad(&of_tile[at.index]), 0u, 0u, 0u));
    }
}
