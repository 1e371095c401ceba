// The statistics of a slice's segment, from the dispatch before or the running ones.
fn segment_statistics(at: Invocation, thread: u32, slice: Slice) -> Statistics {
    return statistics_of(slice.batch, slice.channel);
}
