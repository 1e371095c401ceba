// Contiguous segments: the chunks of dy, x and `saved` that a thread holds of its slice.
const HELD: u32 = CHUNKS; // chunks of each tensor that a thread has in registers

// Elements of chunk `k` of a thread.
fn slice_count(slice: Slice, k: u32) -> u32 {
    return count_before(slice.end, slice.first + k * THREADS * ELEMENTS);
}

fn hold_slice(slice: Slice) {
    let dy_start = segment_start(slice, params.dy);
    let x_start = segment_start(slice, params.x);
    let saved_start = segment_start(slice, saved_strides());
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = slice_count(slice, k);
        if (count > 0u) {
            hold(k, dy_start + first, x_start + first, saved_start + first, count);
        }
    }
}
