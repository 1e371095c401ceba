// Channels last: the statistics of a thread's channels, which the dispatch before wrote, or the running ones.
const READS_FIRST: bool = false; // whether the first rows are loaded before the statistics are known

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn thread_index(at: Invocation) -> u32 {
    return at.index;
}

fn prepare_columns(at: Invocation, thread: u32, columns: Columns, is_item: bool) {}

fn column_statistics(columns: Columns, thread: u32, group: u32, channel: u32) -> Statistics {
    return statistics_at(group, channel);
}
