// Makes of the totals of a line's pieces what lies before each. A workgroup takes a line, STEPS pieces of each thread at a time.

@compute @workgroup_size(WORKGROUP)
fn scan_pieces(at: Invocation) {
    let line = workgroup_number(at);
    let is_there = line < params.lines;
    var far = none();
    for (var tile = 0u; tile < params.tiles; tile++) {
        let first = (tile * WORKGROUP + at.index) * STEPS;
        let left = select(0u, params.pieces - min(first, params.pieces), is_there);
        var states: array<State, STEPS>;
        var own = none();
        for (var i = 0u; i < STEPS; i++) {
            if (i < left) {
                states[i] = total(line * params.pieces + first + i);
                own = both(own, states[i]);
            }
        }
        hold(at.index, own);
        workgroupBarrier();
        for (var step = 1u; step < WORKGROUP; step = step << 1u) {
            if (at.index >= step) {
                own = both(held(at.index - step), own);
            }
            workgroupBarrier();
            hold(at.index, own);
            workgroupBarrier();
        }
        var state = far;
        if (at.index > 0u) {
            state = both(state, held(at.index - 1u));
        }
        far = both(far, held(WORKGROUP - 1u));
        workgroupBarrier();
        for (var i = 0u; i < STEPS; i++) {
            if (i < left) {
                put_carry(line * params.pieces + first + i, state);
                state = both(state, states[i]);
            }
        }
    }
}
