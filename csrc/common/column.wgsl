// Lines that stride over what is dense: a thread owns a chunk of 16 bytes of neighbouring lines, ACROSS threads lie side by side, and DEEP
// threads below each other share lines.
const DEEP: u32 = WORKGROUP / ACROSS;
const SLICE: u32 = DEEP * CHUNKS; // elements of a line that one workgroup holds

var<workgroup> column_quads: array<vec4<f32>, select(1u, WORKGROUP * QUADS, DEEP > 1u)>;

// The largest of the values of the threads below each other, in all of them. Every thread of the workgroup takes part.
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

// Their sum, likewise.
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

// What a workgroup works on: a slice of the lines of ACROSS columns of one block, and a thread's part in it.
struct Place {
    block: u32,
    slice: u32,
    column: u32,
    first: u32, // the thread's first element of its lines
    end: u32, // of the slice; no elements for a thread without lines
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

// Where the thread's chunk of the element `index` of its lines starts.
fn chunk_start(place: Place, strides: vec3<u32>, step: u32, index: u32) -> u32 {
    return row_start(place.block, strides) + place.column * ELEMENTS + index * step;
}
