// Combines the parts of outputs whose items were divided into pieces: THREADS threads share an output, and outputs of a workgroup lie side by side. Without
// pieces, which is without values, it stores what a reduction of none is.
const ACROSS: u32 = WORKGROUP / THREADS;
const CHAIN: u32 = 16u;

var<workgroup> tree: array<Held, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn reduce_partials(at: Invocation) {
    let output = workgroup_number(at) * ACROSS + at.index % ACROSS;
    let thread = at.index / ACROSS;
    // 1. The thread's pieces, CHAIN at a time.
    var total = none();
    if (output < params.outputs) {
        for (var first = thread; first < params.pieces; first += CHAIN * THREADS) {
            var chain = none();
            for (var k = 0u; k < CHAIN; k++) {
                let piece = first + k * THREADS;
                if (piece < params.pieces) {
                    chain = combine(chain, held_of(partials_gather((piece * params.outputs + output) * WORDS, 1u, WORDS)));
                }
            }
            total = combine(total, chain);
        }
    }
    // 2. The threads of the output.
    tree[at.index] = total;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half = half >> 1u) {
        if (thread < half) {
            tree[at.index] = combine(tree[at.index], tree[at.index + half * ACROSS]);
        }
        workgroupBarrier();
    }
    if (thread == 0u && output < params.outputs) {
        store_result(output, tree[at.index], 0u);
    }
}
