// Each item of a tile goes behind those of lower digits, those of earlier tiles with its digit, and those before it in the tile. The function `before_tile` says how
// many the first two are: where the tile is alone, nothing.
const HALF: u32 = DIGITS / 2u;

// Counts of each thread, digit by digit: in the low halves of the lower digits, in the high ones of the others.
var<workgroup> held: array<u32, HALF * WORKGROUP>;
// Where each digit begins in the tile.
var<workgroup> starts: array<u32, DIGITS>;

fn shift_of(digit: u32) -> u32 {
    return select(0u, 16u, digit >= HALF);
}

fn column(digit: u32, thread: u32) -> u32 {
    return (digit % HALF) * WORKGROUP + thread;
}

@compute @workgroup_size(WORKGROUP)
fn sort_move(at: Invocation) {
    let tile = workgroup_number(at, params.groups_x);
    let first = (tile * WORKGROUP + at.index) * STEPS;
    // 1. The thread's items.
    for (var i = 0u; i < HALF; i++) {
        held[i * WORKGROUP + at.index] = 0u;
    }
    var keys: array<u32, STEPS>;
    for (var i = 0u; i < STEPS; i++) {
        if (first + i < params.items) {
            keys[i] = keys_bits(first + i);
            let digit = digit_of(keys[i]);
            held[column(digit, at.index)] += 1u << shift_of(digit);
        }
    }
    workgroupBarrier();
    // 2. What comes before each thread's items of each digit.
    var sum = 0u;
    for (var i = 0u; i < HALF; i++) {
        sum += held[at.index * HALF + i];
    }
    let of_threads = sum_before(at.index, sum);
    // Higher digits come behind all lower ones.
    var place = of_threads.x + (of_threads.y << 16u);
    for (var i = 0u; i < HALF; i++) {
        let count = held[at.index * HALF + i];
        held[at.index * HALF + i] = place;
        place += count;
    }
    workgroupBarrier();
    if (at.index < DIGITS) {
        starts[at.index] = (held[column(at.index, 0u)] >> shift_of(at.index)) & 0xffffu;
    }
    workgroupBarrier();
    // 3. Where they go.
    for (var i = 0u; i < STEPS; i++) {
        if (first + i < params.items) {
            let digit = digit_of(keys[i]);
            let own = column(digit, at.index);
            let rank = (held[own] >> shift_of(digit)) & 0xffffu;
            held[own] += 1u << shift_of(digit);
            let to = before_tile(digit, tile, starts[digit]) + rank;
            sorted_keys_scatter(to, 1u, 1u, vec4<u32>(keys[i], 0u, 0u, 0u));
            sorted_places_scatter(to, 1u, 1u, vec4<u32>(places_bits(first + i), 0u, 0u, 0u));
        }
    }
}
