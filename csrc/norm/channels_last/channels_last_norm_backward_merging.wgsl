// Channels last, if the channels of a workgroup lie in few groups of few parts: every workgroup adds up the parts of its groups, with a team
// for each group.
const READS_FIRST: bool = true; // whether the first rows are loaded before the means are known
var<workgroup> tile_means: array<vec4<f32>, TEAMS>;
var<private> tile_group: u32; // of the workgroup's first channel, in its sample

// Every thread of the workgroup calls it.
fn prepare_columns(at: Invocation, thread: u32, columns: Columns) {
    tile_group = tile_channel(columns, thread) / params.group_channels;
    let number = tile_group + team_of(thread);
    let group = columns.batch * params.groups + min(number, params.groups - 1u);
    let sums = held_sums(at, group);
    if (thread % THREADS == 0u) {
        tile_means[team_of(thread)] = vec4<f32>(means_from(sums, group), statistics_of_group(group));
    }
    workgroupBarrier();
}

fn channel_means(batch: u32, channel: u32) -> vec4<f32> {
    return tile_means[channel / params.group_channels - tile_group];
}
