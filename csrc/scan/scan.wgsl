// Scans of any layout: THREADS threads share a line, or a piece of it, tile by tile, of which each has STEPS neighbouring positions. Lines of a workgroup lie
// side by side: those of columns thread by thread, those of rows team by team. How values are combined, decided on the bits where NaN matters, stands first; the
// functions `load_steps`, `store_steps` and `store_index` are made from the operands.
const ADD: u32 = 0u;
const MULTIPLY: u32 = 1u;
const GREATEST: u32 = 2u;
const LEAST: u32 = 3u;
const LOG_ADD_EXP: u32 = 4u;

const LINES: u32 = WORKGROUP / THREADS; // of a workgroup
const CHAIN: u32 = 8u; // totals that are combined one after another

struct Params {
    lines: u32,
    groups_x: u32,
    all_bits: u32, // all ones, which no compiler knows
    length: u32,
    pieces: u32, // of a line
    tiles: u32, // of a piece
    no_values: u32, // bits of what no values are together
    x_step: u32,
    y_step: u32,
    indices_step: u32,
    axes: array<vec4<u32>, AXES>, // of lines, innermost first: extent, and the strides of x, y and the indices
}

@group(0) @binding(0) var<uniform> params: Params;

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn workgroup_number(at: Invocation) -> u32 {
    return at.workgroup.y * params.groups_x + at.workgroup.x;
}

// What is known of some neighbouring positions: bits of their value, and of an extreme its position; or those of `most` and `sum` of sum * exp(most).
struct State {
    value: u32,
    other: u32,
}

const NOWHERE: u32 = 0xffffffffu; // of no positions

fn none() -> State {
    return State(params.no_values, select(NOWHERE, 0u, COMBINE == LOG_ADD_EXP));
}

fn is_nan(bits: u32) -> bool {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

// Numbers in the order of their values, 0 and -0 as one, those that come first in a scan for LEAST in reverse; NaN is the greatest.
fn order(bits: u32) -> u32 {
    var at = bits;
    if (IS_FLOAT) {
        if (is_nan(bits)) {
            return 0xffffffffu;
        }
        at = select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
    } else if (IS_SIGNED) {
        at = bits ^ 0x80000000u;
    }
    return select(at, ~at, COMBINE == LEAST);
}

// Of neighbouring positions, of which x has the earlier ones.
fn both(x: State, y: State) -> State {
    if (COMBINE == ADD) {
        if (IS_FLOAT) {
            return State(bitcast<u32>(bitcast<f32>(x.value) + bitcast<f32>(y.value)), 0u);
        }
        return State(x.value + y.value, 0u);
    }
    if (COMBINE == MULTIPLY) {
        if (IS_FLOAT) {
            return State(bitcast<u32>(bitcast<f32>(x.value) * bitcast<f32>(y.value)), 0u);
        }
        return State(x.value * y.value, 0u);
    }
    if (COMBINE == LOG_ADD_EXP) {
        return log_add_exp(x, y);
    }
    // Of equal ones the later.
    if (y.other == NOWHERE || (x.other != NOWHERE && order(y.value) < order(x.value))) {
        return x;
    }
    return y;
}

// What a state stands for.
fn result(state: State) -> u32 {
    if (COMBINE == LOG_ADD_EXP) {
        return logarithm_of(state);
    }
    return state.value;
}

fn of_element(bits: u32, position: u32) -> State {
    return State(bits, select(position, 0x3f800000u, COMBINE == LOG_ADD_EXP));
}

var<workgroup> values: array<u32, WORKGROUP>;
var<workgroup> others: array<u32, WORKGROUP>;

fn hold(at: u32, state: State) {
    values[at] = state.value;
    others[at] = state.other;
}

fn held(at: u32) -> State {
    return State(values[at], others[at]);
}

struct Places {
    x: u32,
    y: u32,
    indices: u32,
}

// From a thread to the next of its line.
fn next_thread() -> u32 {
    return select(1u, LINES, IS_COLUMNS);
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
        at.y += i * axis.z;
        at.indices += i * axis.w;
        rest = outer;
    }
    return at;
}

// The element of a position along the axis.
fn element(position: u32) -> u32 {
    return select(position, params.length - 1u - position, IS_REVERSE);
}

@compute @workgroup_size(WORKGROUP)
fn scan(at: Invocation) {
    let number = workgroup_number(at);
    let group = number / params.pieces;
    let piece = number - group * params.pieces;
    let thread = select(at.index % THREADS, at.index / LINES, IS_COLUMNS);
    let line = group * LINES + select(at.index / THREADS, at.index % LINES, IS_COLUMNS);
    let is_there = line < params.lines;
    let start = at.index - thread * next_thread(); // the first thread of the line
    let places = places_of(select(0u, line, is_there));
    var far = none();
    var near = none();
    if (HAS_CARRY && is_there) {
        far = carried(line * params.pieces + piece);
    }
    for (var tile = 0u; tile < params.tiles; tile++) {
        // 1. The thread's elements.
        let first = ((piece * params.tiles + tile) * THREADS + thread) * STEPS;
        let left = select(0u, params.length - min(first, params.length), is_there);
        var bits = load_steps(places.x, first, left);
        var own = none();
        for (var i = 0u; i < STEPS; i++) {
            if (i < left) {
                own = both(own, of_element(bits[i], first + i));
            }
        }
        // 2. The threads of the line.
        hold(at.index, own);
        workgroupBarrier();
        for (var step = 1u; step < THREADS; step = step << 1u) {
            if (thread >= step) {
                own = both(held(at.index - step * next_thread()), own);
            }
            workgroupBarrier();
            hold(at.index, own);
            workgroupBarrier();
        }
        var state = both(far, near);
        if (thread > 0u) {
            state = both(state, held(at.index - next_thread()));
        }
        near = both(near, held(start + (THREADS - 1u) * next_thread()));
        workgroupBarrier();
        if (tile % CHAIN == CHAIN - 1u) {
            far = both(far, near);
            near = none();
        }
        // 3. The results.
        if (!IS_OF_TOTALS) {
            for (var i = 0u; i < STEPS; i++) {
                if (i < left) {
                    let after = both(state, of_element(bits[i], first + i));
                    store_index(places.indices + element(first + i) * params.indices_step, element(after.other));
                    if (IS_EXCLUSIVE) {
                        bits[i] = result(state);
                    } else {
                        bits[i] = result(after);
                    }
                    state = after;
                }
            }
            store_steps(places.y, first, left, bits);
        }
    }
    if (IS_OF_TOTALS && is_there && thread == 0u) {
        put_total(line * params.pieces + piece, both(far, near));
    }
}
