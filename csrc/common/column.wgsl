// Lines along an axis that is not the dense one, so that neighbouring lines lie side by side in memory: a thread owns a chunk of neighbouring
// lines, ACROSS threads lie side by side, and DEEP threads below each other share the same lines.
const DEEP: u32 = WORKGROUP / ACROSS;
const SLICE: u32 = DEEP * CHUNKS; // elements of a line that one workgroup holds

var<workgroup> column_quads: array<vec4<f32>, select(1u, WORKGROUP * QUADS, DEEP > 1u)>;

// The largest values of the threads that share lines, in all of them. Every thread of the workgroup calls it.
fn column_max(thread: u32, values: array<vec4<f32>, QUADS>) -> array<vec4<f32>, QUADS> {
    if (DEEP == 1u) {
        return values;
    }
    var result = values;
    for (var part = 0u; part < QUADS; part++) {
        column_quads[part * WORKGROUP + thread] = result[part];
    }
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= ACROSS; half = half >> 1u) {
        if (thread < half) {
            for (var part = 0u; part < QUADS; part++) {
                let own = part * WORKGROUP + thread;
                column_quads[own] = max(column_quads[own], column_quads[own + half]);
            }
        }
        workgroupBarrier();
    }
    for (var part = 0u; part < QUADS; part++) {
        result[part] = column_quads[part * WORKGROUP + thread % ACROSS];
    }
    workgroupBarrier();
    return result;
}

// The sums over the threads that share lines, in all of them. Every thread of the workgroup calls it.
fn column_sum(thread: u32, values: array<vec4<f32>, QUADS>) -> array<vec4<f32>, QUADS> {
    if (DEEP == 1u) {
        return values;
    }
    var result = values;
    for (var part = 0u; part < QUADS; part++) {
        column_quads[part * WORKGROUP + thread] = result[part];
    }
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half >= ACROSS; half = half >> 1u) {
        if (thread < half) {
            for (var part = 0u; part < QUADS; part++) {
                let own = part * WORKGROUP + thread;
                column_quads[own] += column_quads[own + half];
            }
        }
        workgroupBarrier();
    }
    for (var part = 0u; part < QUADS; part++) {
        result[part] = column_quads[part * WORKGROUP + thread % ACROSS];
    }
    workgroupBarrier();
    return result;
}

// A thread's part in the work of its workgroup, which is a slice of the lines in ACROSS columns of one block.
struct Place {
    block: u32,
    slice: u32,
    column: u32,
    first: u32, // the thread's first element in its lines
    end: u32, // of the slice; 0 for a thread without lines
    count: u32, // lines of the thread
}

fn place_of(thread: u32, item: u32) -> Place {
    let groups_across = (params.columns + ACROSS - 1u) / ACROSS;
    let slice = item / groups_across % params.slices;
    let column = item % groups_across * ACROSS + thread % ACROSS;
    let count = select(0u, min(params.inner - min(column * ELEMENTS, params.inner), ELEMENTS), column < params.columns);
    let end = select(0u, min((slice + 1u) * SLICE, params.dim), count > 0u);
    return Place(item / groups_across / params.slices, slice, column, slice * SLICE + thread / ACROSS, end, count);
}

// The first element in the tensor of the thread's chunk: element `index` of each of its lines.
fn chunk_start(place: Place, strides: vec3<u32>, step: u32, index: u32) -> u32 {
    return row_start(place.block, strides) + place.column * ELEMENTS + index * step;
}
