// The statistics of a slice's segment where groups have few parts: every team merges the parts of its group, and the team of the group's
// first slice saves the statistics.
fn segment_statistics(at: Invocation, thread: u32, slice: Slice) -> Statistics {
    let group = group_of(slice.batch, slice.channel);
    let statistics = merge_moments(at, thread, group);
    let is_first = select(slice.channel % params.group_channels == 0u, slice.batch == 0u, GROUPS_ARE_CHANNELS);
    if (is_first && slice.index == 0u && slice.end > 0u && thread % THREADS == 0u) {
        save_statistics(group, statistics);
    }
    return statistics;
}
