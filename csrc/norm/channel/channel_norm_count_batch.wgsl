// Adds 1 to the number of batches: one thread of the last dispatch does, since an earlier dispatch reads the number.
fn count_batch(workgroup: u32, thread: u32) {
    if (COUNTS_BATCH && workgroup == 0u && thread == 0u) {
        let count = num_batches_count();
        num_batches_put(vec2<u32>(count.x + 1u, count.y + select(0u, 1u, count.x == 0xffffffffu)));
    }
}
