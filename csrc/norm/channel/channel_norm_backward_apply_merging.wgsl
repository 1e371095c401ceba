// The means and the statistics of a slice's group where groups have few parts: every team adds up the parts of its group.
fn segment_means(at: Invocation, thread: u32, slice: Slice) -> vec4<f32> {
    let group = group_of(slice.batch, slice.channel);
    return vec4<f32>(means_from(held_sums(at, group), group), statistics_of_group(group));
}
