// Makes of the counts of tiles, digit by digit, what comes before each. One workgroup takes them all.
@compute @workgroup_size(WORKGROUP)
fn sort_scan(at: Invocation) {
    let count = DIGITS * params.tiles;
    var before = 0u;
    for (var first = 0u; first < count; first += WORKGROUP * STEPS) {
        let own = first + at.index * STEPS;
        var values: array<u32, STEPS>;
        var sum = 0u;
        for (var i = 0u; i < STEPS; i++) {
            if (own + i < count) {
                values[i] = counts_bits(own + i);
                sum += values[i];
            }
        }
        let of_threads = sum_before(at.index, sum);
        var place = before + of_threads.x;
        for (var i = 0u; i < STEPS; i++) {
            if (own + i < count) {
                counts_scatter(own + i, 1u, 1u, vec4<u32>(place, 0u, 0u, 0u));
                place += values[i];
            }
        }
        before += of_threads.y;
    }
}
