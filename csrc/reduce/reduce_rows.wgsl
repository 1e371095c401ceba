// Reductions along the extents in which elements lie next to each other, and of any strides: a team of THREADS threads takes a piece of what is reduced to one
// output, THREADS * ROUNDS chunks.
const TEAMS: u32 = WORKGROUP / THREADS;

var<workgroup> tree: array<Held, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn reduce_rows(at: Invocation) {
    let team = workgroup_number(at) * TEAMS + at.index / THREADS;
    let row = team / params.pieces;
    let piece = team - row * params.pieces;
    let thread = at.index % THREADS;
    // 1. The thread's chunks.
    load_repeated();
    let chunks_of_line = params.extents[0].x;
    var total = none();
    if (row < params.rows) {
        for (var k = 0u; k < ROUNDS; k++) {
            let item = (piece * ROUNDS + k) * THREADS + thread;
            if (item < params.items) {
                let x = load(places_of(row * params.items + item));
                let line = item / chunks_of_line;
                let first = line * params.line + (item - line * chunks_of_line) * ELEMENTS;
                for (var part = 0u; part < QUADS; part++) {
                    let positions = vec4<u32>(0u, 1u, 2u, 3u) + vec4<u32>(first + 4u * part);
                    total = with_values(total, evaluate(x, part).y0, are_present(part, x.count), positions);
                }
            }
        }
    }
    // 2. The team.
    tree[at.index] = combine_lanes(total);
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (thread < half) {
            tree[at.index] = combine(tree[at.index], tree[at.index + half]);
        }
        workgroupBarrier();
    }
    // 3. The output, or the piece's part of it.
    if (thread == 0u && row < params.rows) {
        if (IS_SPLIT) {
            partials_scatter(((params.first_piece + piece) * params.outputs + row) * WORDS, 1u, WORDS, words_of(tree[at.index], 0u));
        } else {
            store_result(row, tree[at.index], 0u);
        }
    }
}
