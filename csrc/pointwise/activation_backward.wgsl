// Gradients through activations: the kernel of activation_backward.cu. FROM_Y: `saved` is the activation's result, else its argument.

@compute @workgroup_size(WORKGROUP)
fn activation_backward(at: Invocation) {
    // 1. All loads before the first store.
    var dy: array<vec4<u32>, CHUNKS>;
    var saved: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            dy[k] = dy_load(first, count);
            saved[k] = saved_load(first, count);
        }
    }
    // 2. dx.
    for (var k = 0u; k < CHUNKS; k++) {
        let first = chunk_start(at, k);
        let count = count_before(params.elements, first);
        if (count > 0u) {
            var dx: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let of_dy = quad(dy[k], part);
                let of_saved = quad(saved[k], part);
                if (FROM_Y) {
                    dx[part] = differentiate_from_output(ACTIVATION, of_dy, of_saved);
                } else {
                    dx[part] = differentiate(ACTIVATION, of_dy, of_saved);
                }
            }
            dx_store(first, count, chunk_of(dx));
        }
    }
}
