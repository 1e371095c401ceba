// The first records of tiles of lines, of elements of x or of records of an earlier dispatch. THREADS threads share a tile.
var<workgroup> counts: array<atomic<u32>, 3>;
var<workgroup> sums: array<u32, WORKGROUP>;

// Of threads of a workgroup, the sum of what those up to each have.
fn sum_until(index: u32, own: u32) -> u32 {
    var until = own;
    sums[index] = until;
    workgroupBarrier();
    for (var step = 1u; step < WORKGROUP; step = step << 1u) {
        if (index >= step) {
            until += sums[index - step];
        }
        workgroupBarrier();
        sums[index] = until;
        workgroupBarrier();
    }
    return until;
}

// Leaves in the workgroup's memory the first `kept` records of its tile, of which those behind the first `left` are none: those of lesser keys than the last one
// that is kept, and of that key those of the least positions, both in the order of positions. The rest of `padded` records are the last ones of all.
fn select_items(index: u32, left: u32, most: u32, padded: u32) {
    let kept = min(most, left);
    // 1. The key of the last one, bit by bit: the greatest number that fewer keys are less than. A count is cleared two rounds before it is used.
    if (index < 3u) {
        atomicStore(&counts[index], 0u);
    }
    workgroupBarrier();
    var last: Key;
    for (var round = 0u; round < KEY_BITS; round++) {
        let next = with_bit(last, KEY_BITS - 1u - round);
        var less = 0u;
        for (var k = 0u; k < ITEMS; k++) {
            less += select(0u, 1u, is_less(keys[k], next));
        }
        if (less > 0u) {
            atomicAdd(&counts[round % 3u], less);
        }
        workgroupBarrier();
        if (atomicLoad(&counts[round % 3u]) < kept) {
            last = next;
        }
        if (index == 0u) {
            atomicStore(&counts[(round + 2u) % 3u], 0u);
        }
    }
    // 2. Where each goes: lesser ones in the low half of a number, equal ones in the high half.
    let first = index * ITEMS;
    var own = 0u;
    for (var k = 0u; k < ITEMS; k++) {
        if (first + k < left) {
            if (is_less(keys[k], last)) {
                own += 1u;
            } else if (!is_less(last, keys[k])) {
                own += 0x10000u;
            }
        }
    }
    let before = sum_until(index, own) - own;
    var less_to = before & 0xffffu;
    var equal_to = (sums[WORKGROUP - 1u] & 0xffffu) + (before >> 16u);
    for (var k = 0u; k < ITEMS; k++) {
        if (first + k < left && !is_less(last, keys[k])) {
            var to = equal_to;
            if (is_less(keys[k], last)) {
                to = less_to;
                less_to += 1u;
            } else {
                equal_to += 1u;
            }
            if (to < kept) {
                shared_keys[to] = keys[k];
                shared_positions[to] = positions[k];
            }
        }
    }
    for (var k = kept + index; k < padded; k += WORKGROUP) {
        shared_keys[k] = LAST_KEY;
        shared_positions[k] = 0u;
    }
    workgroupBarrier();
}

@compute @workgroup_size(WORKGROUP)
fn order_tiles(at: Invocation) {
    let thread = at.index % THREADS;
    let number = workgroup_number(at) * (WORKGROUP / THREADS) + at.index / THREADS;
    let line = number / params.tiles;
    let tile = number - line * params.tiles;
    let is_there = line < params.lines;
    let places = places_of(select(0u, line, is_there));
    let start = tile * (THREADS * ITEMS);
    let left = select(0u, min(params.length - min(start, params.length), THREADS * ITEMS), is_there);
    // 1. The thread's records, neighbours along the line.
    let first = thread * ITEMS;
    for (var k = 0u; k < ITEMS; k++) {
        keys[k] = LAST_KEY;
        positions[k] = 0u;
        if (first + k < left) {
            let from_at = start + first + k;
            if (READS_RECORDS) {
                keys[k] = record_key(line * params.length + from_at);
                positions[k] = record_position(line * params.length + from_at);
            } else {
                keys[k] = order_key(element(places.x + from_at * params.x_step));
                positions[k] = from_at;
            }
        }
    }
    // 2. Those that are kept, if they are few.
    if (IS_SELECTED) {
        select_items(at.index, left, params.kept, SHARING * ITEMS);
        if (thread < SHARING) {
            for (var k = 0u; k < ITEMS; k++) {
                keys[k] = shared_keys[first + k];
                positions[k] = shared_positions[first + k];
            }
        }
    }
    // 3. Runs of each thread, which are merged in pairs.
    sort_items();
    let base = at.index * ITEMS - first;
    for (var width = 1u; width < SHARING; width = width << 1u) {
        workgroupBarrier();
        if (thread < SHARING) {
            put_items(base + first);
        }
        workgroupBarrier();
        if (thread < SHARING) {
            let run = width * ITEMS;
            let pair = first & ~(2u * run - 1u);
            merge_items(base + pair, run, base + pair + run, run, first - pair);
        }
    }
    // 4. The results, side by side.
    workgroupBarrier();
    if (thread < SHARING) {
        put_items(base + first);
    }
    workgroupBarrier();
    let kept = min(left, params.kept);
    for (var k = thread; k < kept; k += THREADS) {
        store_record(places, line, tile * params.kept + k, base + k);
    }
}
