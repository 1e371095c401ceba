// Where the elements of x are not 0. Each workgroup has a share of the tiles of x, and knows from the counts before its own where its positions begin. The functions
// `put_index` and `put_count` are made from the operands. CUDA's kernel brings the positions of a tile side by side before it writes them.

// Writes a row of the indices: the number of an element, or its position along each extent.
fn put_row(row: u32, number: u32) {
    let at = row * params.row;
    if (COLUMNS == 0u) {
        put_index(at, vec2<u32>(number, 0u));
        return;
    }
    var rest = number;
    for (var k = 0u; k < COLUMNS; k++) {
        let extent = params.axes[k].z;
        let outer = rest / extent;
        put_index(at + (COLUMNS - 1u - k) * params.column, vec2<u32>(rest - outer * extent, 0u));
        rest = outer;
    }
}

@compute @workgroup_size(WORKGROUP)
fn nonzero(at: Invocation) {
    let share = workgroup_number(at, params.groups_x);
    // 1. How many positions there are before this share, and in all.
    var before = 0u;
    var all_found = 0u;
    for (var k = at.index; k < params.shares; k += WORKGROUP) {
        let count = counts_bits(k);
        all_found += count;
        before += select(0u, count, k < share);
    }
    var base = sum_before(at.index, before).y;
    let total = sum_before(at.index, all_found).y;
    // 2. The positions of each tile.
    let end = first_tile(share + 1u);
    for (var tile = first_tile(share); tile < end; tile++) {
        let bits = nonzero_bits(tile, at.index);
        let of_threads = sum_before(at.index, countOneBits(bits));
        var row = base + of_threads.x;
        for (var i = 0u; i < STEPS; i++) {
            if (((bits >> i) & 1u) == 1u) {
                if (row < params.rows) {
                    put_row(row, first_number(tile, at.index) + i);
                }
                row++;
            }
        }
        base += of_threads.y;
    }
    // 3. What is behind the last position.
    for (var row = total + share * WORKGROUP + at.index; row < params.rows; row += params.shares * WORKGROUP) {
        for (var k = 0u; k < max(COLUMNS, 1u); k++) {
            put_index(row * params.row + k * params.column, params.fill);
        }
    }
    // 4. The count.
    if (share == 0u && at.index == 0u) {
        put_count(total);
    }
}
