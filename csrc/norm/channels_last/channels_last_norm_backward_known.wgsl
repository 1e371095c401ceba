// Channels last: the means and statistics of a thread's channels, which the dispatch before wrote; or the statistics alone, if dx does not
// depend on means.
const READS_FIRST: bool = false; // whether the first rows are loaded before the means are known

struct Invocation {
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
}

fn thread_index(at: Invocation) -> u32 {
    return at.index;
}

fn prepare_columns(at: Invocation, thread: u32, columns: Columns) {}

fn channel_means(batch: u32, channel: u32) -> vec4<f32> {
    return means_of(batch, channel);
}

fn put_remaining(at: Invocation, thread: u32, workgroup: u32) {}
