// Programs of operands that lie alike, or are one element. The types `Loaded` and `Results`, and the functions `load_repeated`,
// `load`, `evaluate` and `store` are made from the program and its operands.

// Where a chunk lies in every operand.
struct Places {
    first: u32,
    count: u32,
}

@compute @workgroup_size(WORKGROUP)
fn pointwise_dense(at: Invocation) {
    // 1. All loads before the first store.
    load_repeated();
    var x: array<Loaded, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            x[k] = load(Places(first, count));
        }
    }
    // 2. Results.
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            var y: array<Results, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                y[part] = evaluate(x[k], part);
            }
            store(Places(first, count), y);
        }
    }
}
