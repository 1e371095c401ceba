// Copies chunks of 16 bytes: the yardstick of the memory-bound kernels.
struct Params {
    chunks: u32,
    groups_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn copy(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = (workgroup.y * params.groups_x + workgroup.x) * WORKGROUP * CHUNKS + thread;
    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        if (first + k * WORKGROUP < params.chunks) {
            chunks[k] = x_load((first + k * WORKGROUP) * ELEMENTS, ELEMENTS);
        }
    }
    for (var k = 0u; k < CHUNKS; k++) {
        if (first + k * WORKGROUP < params.chunks) {
            y_store((first + k * WORKGROUP) * ELEMENTS, ELEMENTS, chunks[k]);
        }
    }
}
