// Reductions across an extent that stays, in which elements lie next to each other: a thread takes a chunk of neighbouring outputs, and THREADS threads share
// what is reduced to them, a piece of THREADS * ROUNDS positions.
const ACROSS: u32 = WORKGROUP / THREADS;

var<workgroup> tree: array<Held, WORKGROUP * QUADS>;

@compute @workgroup_size(WORKGROUP)
fn reduce_columns(at: Invocation) {
    // A group takes ACROSS chunks side by side of one line, and a piece.
    let chunks_of_line = params.extents[0].x;
    let across = (chunks_of_line + ACROSS - 1u) / ACROSS;
    let number = workgroup_number(at);
    let piece = number % params.pieces;
    let outer = number / params.pieces / across;
    let chunk = (number / params.pieces - outer * across) * ACROSS + at.index % ACROSS;
    let thread = at.index / ACROSS;
    let is_there = outer < params.rows && chunk < chunks_of_line;
    // 1. The thread's positions.
    load_repeated();
    var total: array<Held, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        total[part] = none();
    }
    if (is_there) {
        for (var k = 0u; k < ROUNDS; k++) {
            let item = (piece * ROUNDS + k) * THREADS + thread;
            if (item < params.items) {
                let x = load(places_of((outer * params.items + item) * chunks_of_line + chunk));
                for (var part = 0u; part < QUADS; part++) {
                    total[part] = with_values(total[part], evaluate(x, part).y0, vec4<bool>(true), vec4<u32>(item));
                }
            }
        }
    }
    // 2. The threads that share columns.
    for (var part = 0u; part < QUADS; part++) {
        tree[part * WORKGROUP + at.index] = total[part];
    }
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (thread < half) {
            for (var part = 0u; part < QUADS; part++) {
                let own = part * WORKGROUP + at.index;
                tree[own] = combine(tree[own], tree[own + half * ACROSS]);
            }
        }
        workgroupBarrier();
    }
    // 3. The outputs, or the piece's part of them.
    if (thread == 0u && is_there) {
        let first = chunk * ELEMENTS;
        let count = count_before(params.line, first);
        for (var i = 0u; i < ELEMENTS; i++) {
            if (i < count) {
                let output = outer * params.line + first + i;
                let held = tree[(i / 4u) * WORKGROUP + at.index];
                if (IS_SPLIT) {
                    partials_scatter(((params.first_piece + piece) * params.outputs + output) * WORDS, 1u, WORDS, words_of(held, i % 4u));
                } else {
                    store_result(output, held, i % 4u);
                }
            }
        }
    }
}
