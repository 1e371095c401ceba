// Reductions along the extents in which elements lie next to each other, and of any strides: a team of THREADS threads takes a piece of what is reduced to one
// output, THREADS * ROUNDS chunks.
const TEAMS: u32 = WORKGROUP / THREADS;

var<workgroup> tree: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn reduce_rows(at: Invocation) {
    let team = workgroup_number(at) * TEAMS + at.index / THREADS;
    let row = team / params.pieces;
    let piece = team - row * params.pieces;
    let thread = at.index % THREADS;
    // 1. The thread's chunks.
    load_repeated();
    var total = none();
    if (row < params.rows) {
        for (var k = 0u; k < ROUNDS; k++) {
            let item = (piece * ROUNDS + k) * THREADS + thread;
            if (item < params.items) {
                let x = load(places_of(row * params.items + item));
                for (var part = 0u; part < QUADS; part++) {
                    let values = each(evaluate(x, part).y0);
                    total = combine(total, select(none(), values, are_present(part, x.count)));
                }
            }
        }
    }
    // 2. The team.
    tree[at.index] = combine_lanes(total);
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (thread < half) {
            tree[at.index] = combine(vec4<f32>(tree[at.index]), vec4<f32>(tree[at.index + half])).x;
        }
        workgroupBarrier();
    }
    // 3. The output, or the piece's part of it.
    if (thread == 0u && row < params.rows) {
        if (IS_SPLIT) {
            partials_scatter(piece * params.outputs + row, 1u, 1u, bitcast<vec4<u32>>(vec4<f32>(tree[at.index])));
        } else {
            store_result(row, tree[at.index]);
        }
    }
}
