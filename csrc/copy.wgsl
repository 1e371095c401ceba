// Copies chunks of 16 bytes: the yardstick of the memory-bound kernels. A thread loads its four chunks before it stores the first, so that their latencies
// overlap: with fewer, a thread has fewer loads in flight, with more, their words take more registers until they are stored. A workgroup has the most
// threads that WebGPU promises. Complete in itself.
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<u32>>;

const WORKGROUP: u32 = 256u;
const CHUNKS: u32 = 4u;

// Dispatched over x and y so that x * y * WORKGROUP * CHUNKS covers the chunks of `source`.
@compute @workgroup_size(WORKGROUP)
fn copy(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = (workgroup.y * workgroups.x + workgroup.x) * WORKGROUP * CHUNKS + thread;
    let end = arrayLength(&source);
    var chunks: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        if (first + k * WORKGROUP < end) {
            chunks[k] = source[first + k * WORKGROUP];
        }
    }
    for (var k = 0u; k < CHUNKS; k++) {
        if (first + k * WORKGROUP < end) {
            destination[first + k * WORKGROUP] = chunks[k];
        }
    }
}
