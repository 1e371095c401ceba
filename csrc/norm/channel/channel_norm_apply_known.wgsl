// The statistics of a slice's segment: those that the dispatch before wrote, or the running ones.
fn segment_statistics(at: Invocation, thread: u32, slice: Slice) -> Statistics {
    return statistics_of(slice.batch, slice.channel);
}
