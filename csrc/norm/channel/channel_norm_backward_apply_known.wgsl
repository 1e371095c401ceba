// The means and the statistics of a slice's group, which the dispatch before wrote; or the statistics alone, if dx does not depend on means.
fn segment_means(at: Invocation, thread: u32, slice: Slice) -> vec4<f32> {
    return means_of(slice.batch, slice.channel);
}

fn put_remaining(at: Invocation, thread: u32, workgroup: u32) {}
