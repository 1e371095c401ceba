// Sorted runs of records, merged in pairs. Each workgroup writes a tile of the merged runs: a diagonal says which records of both it consists of.
var<workgroup> lefts_before: array<u32, 2>;

// As left_before, of runs in memory. CUDA's kernel tries as many places at once as a warp has lanes.
fn left_before_in_memory(left: u32, lefts: u32, right: u32, rights: u32, diagonal: u32) -> u32 {
    var low = diagonal - min(diagonal, rights);
    var high = min(diagonal, lefts);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (is_less(record_key(right + diagonal - 1u - middle), record_key(left + middle))) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return low;
}

@compute @workgroup_size(WORKGROUP)
fn order_merge(at: Invocation) {
    let number = workgroup_number(at);
    let line = number / params.tiles;
    let start = (number - line * params.tiles) * TILE;
    let is_there = line < params.lines;
    let places = places_of(select(0u, line, is_there));
    // 1. The pair of runs, and the records of each before this tile and before the next.
    let pair = start / (2u * params.run) * (2u * params.run);
    let middle = min(pair + params.run, params.length);
    let end = min(pair + 2u * params.run, params.length);
    let left_first = line * params.length + pair;
    let right_first = line * params.length + middle;
    let diagonal = start - pair;
    let next = min(diagonal + TILE, end - pair);
    if (is_there && at.index < 2u) {
        lefts_before[at.index] = left_before_in_memory(left_first, middle - pair, right_first, end - middle, select(diagonal, next, at.index == 1u));
    }
    workgroupBarrier();
    let left = lefts_before[0];
    let right = diagonal - left;
    let lefts = lefts_before[1] - left;
    let count = select(0u, next - diagonal, is_there);
    let rights = count - lefts;
    // 2. These records, those of the left run first.
    for (var k = at.index; k < count; k += WORKGROUP) {
        let from_at = select(right_first + right + k - lefts, left_first + left + k, k < lefts);
        shared_keys[k] = record_key(from_at);
        shared_positions[k] = record_position(from_at);
    }
    workgroupBarrier();
    // 3. The thread's records of the merged ones.
    let first = at.index * ITEMS;
    if (first < count) {
        merge_items(0u, lefts, lefts, rights, first);
    }
    workgroupBarrier();
    put_items(first);
    workgroupBarrier();
    // 4. The results, side by side.
    let kept = min(count, params.kept - min(start, params.kept));
    for (var k = at.index; k < kept; k += WORKGROUP) {
        store_record(places, line, start + k, k);
    }
}
