// Programs of operands with any strides. A thread takes CHUNKS chunks, WORKGROUP chunks apart. A chunk is up to ELEMENTS
// neighbours along the innermost extent of the walk, a line, of which the last chunk may be cut. The types `Places`, `Loaded` and `Results`, and the functions
// `places_of`, `load_repeated`, `load`, `evaluate` and `store` are made from the program and its operands.
struct Params {
    chunks: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    line: u32,
    extents: array<vec4<u32>, VECTORS>, // innermost first, the first of which counts chunks
    strides: array<vec4<u32>, VECTORS * TENSORS>, // innermost first
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

// Chunk k of a thread.
fn chunk_at(at: Invocation, k: u32) -> u32 {
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    return (workgroup * CHUNKS + k) * WORKGROUP + at.index;
}

@compute @workgroup_size(WORKGROUP)
fn pointwise_strided(at: Invocation) {
    // 1. All loads before the first store.
    load_repeated();
    var places: array<Places, CHUNKS>;
    var x: array<Loaded, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let chunk = chunk_at(at, k);
        if (chunk < params.chunks) {
            places[k] = places_of(chunk);
            x[k] = load(places[k]);
        }
    }
    // 2. Results.
    for (var k = 0u; k < CHUNKS; k++) {
        if (chunk_at(at, k) < params.chunks) {
            var y: array<Results, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                y[part] = evaluate(x[k], part);
            }
            store(places[k], y);
        }
    }
}
