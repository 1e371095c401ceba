// The means of a slice's group and its statistics, from the table or as they are where dx takes no means.
fn segment_means(at: Invocation, thread: u32, slice: Slice) -> vec4<f32> {
    return means_of(slice.batch, slice.channel);
}

fn put_remaining(at: Invocation, thread: u32, group: u32) {}
