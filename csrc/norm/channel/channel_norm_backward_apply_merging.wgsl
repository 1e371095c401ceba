// Where groups have few parts, every team adds them up itself.
fn segment_means(at: Invocation, thread: u32, slice: Slice) -> vec4<f32> {
    let group = group_of(slice.batch, slice.channel);
    return vec4<f32>(means_from(held_sums(at, group), group), statistics_of_group(group));
}
