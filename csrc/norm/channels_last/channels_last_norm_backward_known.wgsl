// Channels last: the means and statistics of a thread's channels, from the table or as they are where there are no means.
const READS_FIRST: bool = false; // the first rows, before the means are known

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn thread_index(at: Invocation) -> u32 {
    return at.index;
}

fn prepare_columns(at: Invocation, thread: u32, columns: Columns) {}

fn column_means(columns: Columns, thread: u32, channel: u32) -> vec4<f32> {
    return means_of(columns.batch, channel);
}

fn put_remaining(at: Invocation, thread: u32, group: u32) {}
