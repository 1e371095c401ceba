// Activations: the kernel of activation.cu.

@compute @workgroup_size(WORKGROUP)
fn activation(at: Invocation) {
    // 1. All loads before the first store.
    var x: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            x[k] = x_load(first, count);
        }
    }
    // 2. y.
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                y[part] = activate(ACTIVATION, quad(x[k], part));
            }
            y_store(first, count, chunk_of(y));
        }
    }
}
