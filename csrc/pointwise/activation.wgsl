// Activations: the kernel of activation.cu. An invocation takes CHUNKS chunks of 16 bytes, WORKGROUP chunks apart.
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
fn activation(at: Invocation) {
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let start = (group * CHUNKS * WORKGROUP + at.index) * ELEMENTS;
    // 1. All loads before the first store.
    var x: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = start + k * WORKGROUP * ELEMENTS;
        let count = count_before(params.elements, first);
        if (count > 0u) {
            x[k] = x_load(first, count);
        }
    }
    // 2. y.
    for (var k = 0u; k < CHUNKS; k++) {
        let first = start + k * WORKGROUP * ELEMENTS;
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
