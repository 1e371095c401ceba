// What sort and top-k share: sorted and merged runs of records, a key and the position that its element has along the line. The file of the keys stands behind this
// one; the functions `element`, `record_key`, `record_position`, `put_record`, `put_value` and `put_index` are made from the operands.
const TILE: u32 = WORKGROUP * ITEMS;

struct Params {
    lines: u32,
    groups_x: u32,
    length: u32, // records of a line that are read
    tiles: u32, // of a line
    kept: u32, // records of a tile, or in merges of a line, at most
    records: u32, // of a line that are written
    run: u32, // records of a sorted run
    x_step: u32,
    values_step: u32,
    indices_step: u32,
    sign: vec2<u32>, // the bit of the sign, the low word first
    infinity: vec2<u32>, // the bits of infinity
    axes: array<vec4<u32>, AXES>, // of lines, innermost first: extent, and the strides of x, the values and the indices
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn workgroup_number(at: Invocation) -> u32 {
    return at.workgroup.y * params.groups_x + at.workgroup.x;
}

// The records of a workgroup, and those of a thread.
var<workgroup> shared_keys: array<Key, TILE>;
var<workgroup> shared_positions: array<u32, TILE>;
var<private> keys: array<Key, ITEMS>;
var<private> positions: array<u32, ITEMS>;

// ---- merges

// Of the first `diagonal` records of two merged runs, how many come from the left one. Equal keys come from the left run first.
fn left_before(left: u32, lefts: u32, right: u32, rights: u32, diagonal: u32) -> u32 {
    var low = diagonal - min(diagonal, rights);
    var high = min(diagonal, lefts);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (is_less(shared_keys[right + diagonal - 1u - middle], shared_keys[left + middle])) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return low;
}

// A thread's records of the merged runs, from the diagonal on.
fn merge_items(left: u32, lefts: u32, right: u32, rights: u32, diagonal: u32) {
    var i = left_before(left, lefts, right, rights, diagonal);
    var j = diagonal - i;
    for (var k = 0u; k < ITEMS; k++) {
        if (i >= lefts && j >= rights) {
            break;
        }
        var is_left = j >= rights;
        if (i < lefts && j < rights) {
            is_left = !is_less(shared_keys[right + j], shared_keys[left + i]);
        }
        let from_at = select(right + j, left + i, is_left);
        keys[k] = shared_keys[from_at];
        positions[k] = shared_positions[from_at];
        i += select(0u, 1u, is_left);
        j += select(1u, 0u, is_left);
    }
}

// Puts a thread's records in order: equal keys are never exchanged.
fn sort_items() {
    for (var round = 0u; round < ITEMS; round++) {
        for (var k = round % 2u; k + 1u < ITEMS; k += 2u) {
            if (is_less(keys[k + 1u], keys[k])) {
                let other = keys[k];
                let of_other = positions[k];
                keys[k] = keys[k + 1u];
                positions[k] = positions[k + 1u];
                keys[k + 1u] = other;
                positions[k + 1u] = of_other;
            }
        }
    }
}

fn put_items(first: u32) {
    for (var k = 0u; k < ITEMS; k++) {
        shared_keys[first + k] = keys[k];
        shared_positions[first + k] = positions[k];
    }
}

// ---- results

struct Places {
    x: u32,
    values: u32,
    indices: u32,
}

// Where a line begins.
fn places_of(line: u32) -> Places {
    var at: Places;
    var rest = line;
    for (var k = 0u; k < AXES; k++) {
        let axis = params.axes[k];
        let outer = rest / axis.x;
        let i = rest - outer * axis.x;
        at.x += i * axis.y;
        at.values += i * axis.z;
        at.indices += i * axis.w;
        rest = outer;
    }
    return at;
}

// Where the sorted records of a line go: to the workspace, or as values and indices. `at`: of the records of the workgroup.
fn store_record(places: Places, line: u32, number: u32, at: u32) {
    let position = shared_positions[at];
    if (WRITES_RECORDS) {
        put_record(line * params.records + number, shared_keys[at], position);
    } else {
        put_value(places.values + number * params.values_step, places.x + position * params.x_step);
        put_index(places.indices + number * params.indices_step, position);
    }
}
