// Gradients through activations: the kernel of activation_backward.cu. An invocation takes CHUNKS chunks of 16 bytes, WORKGROUP chunks apart.
// FROM_Y: `saved` is the activation's result, else its argument.
struct Params {
    elements: u32,
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

@compute @workgroup_size(WORKGROUP)
fn activation_backward(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let start = (group * CHUNKS * WORKGROUP + at.index) * ELEMENTS;
    // 1. All loads before the first store.
    var dy: array<vec4<u32>, CHUNKS>;
    var saved: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = start + k * WORKGROUP * ELEMENTS;
        let count = count_before(params.elements, first);
        if (count > 0u) {
            dy[k] = dy_load(first, count);
            saved[k] = saved_load(first, count);
        }
    }
    // 2. dx.
    for (var k = 0u; k < CHUNKS; k++) {
        let first = start + k * WORKGROUP * ELEMENTS;
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
