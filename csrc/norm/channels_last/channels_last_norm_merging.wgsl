// Channels last, if the channels of a workgroup lie in few groups of few parts: every workgroup merges the parts of its groups, with a team
// for each group. The workgroup with a group's first channel and first slice saves the statistics.
const READS_FIRST: bool = true; // whether the first rows are loaded before the statistics are known
var<workgroup> tile_statistics: array<vec4<f32>, TEAMS>;

// Every thread of the workgroup calls it. is_item: the workgroup is not past the last.
fn prepare_columns(at: Invocation, thread: u32, columns: Columns, is_item: bool) {
    let team = team_of(thread);
    let first_channel = tile_channel(columns, thread);
    let number = first_channel / params.group_channels + team; // in its sample
    let group = columns.batch * params.groups + min(number, params.groups - 1u);
    let statistics = merge_moments(at, thread, group);
    if (thread % THREADS == 0u) {
        tile_statistics[team] = vec4<f32>(statistics.shift, statistics.correction, statistics.rstd, statistics.variance);
        // The first channel of a group lies in one workgroup of a slice.
        let start = number * params.group_channels;
        let is_first = start >= first_channel && start < first_channel + COLUMNS * ELEMENTS && number < params.groups;
        if (is_item && columns.slice == 0u && is_first) {
            save_statistics(group, statistics);
        }
    }
    workgroupBarrier();
}

fn column_statistics(columns: Columns, thread: u32, group: u32, channel: u32) -> Statistics {
    return statistics_in(tile_statistics[group - group_of(columns.batch, tile_channel(columns, thread))]);
}
