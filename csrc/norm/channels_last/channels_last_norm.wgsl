// Channels last, for the split forms. A row is the channels of one sample at one spatial position. A workgroup takes a slice of the rows of one
// sample, COLUMNS chunks of each; its threads are COLUMNS side by side and LANES below each other. A thread keeps to the channels of its chunk
// and takes every LANES-th row of the slice.
const LANES: u32 = WORKGROUP / COLUMNS;

struct Columns {
    batch: u32,
    slice: u32,
    first_channel: u32,
    count: u32, // channels of the thread's chunk; 0 if it has none
    first: u32, // the thread's first row in its sample
    end: u32, // of the slice's rows
    rows: u32, // of the slice
}

fn columns_of(workgroup: u32, thread: u32) -> Columns {
    let rest = workgroup / params.column_blocks;
    let is_extra = rest >= params.batch * params.slices;
    let item = select(rest, 0u, is_extra);
    let slice = item % params.slices;
    let first_channel = (workgroup % params.column_blocks * COLUMNS + thread % COLUMNS) * ELEMENTS;
    let start = slice * params.slice_rows;
    let end = min(start + params.slice_rows, params.spatial);
    return Columns(
        item / params.slices,
        slice,
        first_channel,
        select(count_before(params.channels, first_channel), 0u, is_extra),
        start + thread / COLUMNS,
        end,
        end - start,
    );
}

// Where the thread's chunk of row `row` lies in a tensor.
fn chunk_start(columns: Columns, row: u32, strides: vec3<u32>) -> u32 {
    return columns.batch * strides.x + columns.first_channel + row * strides.z;
}

// The group of each of the thread's channels: the index of its statistics.
fn groups_of(columns: Columns) -> array<vec4<u32>, QUADS> {
    let last = params.channels - 1u;
    let first = min(columns.first_channel, last);
    var group = group_of(columns.batch, first);
    var end = (first / params.group_channels + 1u) * params.group_channels;
    var groups: array<vec4<u32>, QUADS>;
    for (var element = 0u; element < ELEMENTS; element++) {
        let is_next = min(columns.first_channel + element, last) == end;
        group += select(0u, 1u, is_next);
        end += select(0u, params.group_channels, is_next);
        groups[element / 4u][element % 4u] = group;
    }
    return groups;
}

// A channel of the thread's chunk; the last channel for elements past the end of a cut chunk.
fn channel_at(columns: Columns, element: u32) -> u32 {
    return min(columns.first_channel + element, params.channels - 1u);
}

// The first channel of the workgroup.
fn tile_channel(columns: Columns, thread: u32) -> u32 {
    return columns.first_channel - thread % COLUMNS * ELEMENTS;
}

// What the threads of a column of lanes add up: up to two vectors of QUADS quads for each thread.
var<workgroup> column_sums: array<vec4<f32>, 2u * QUADS * WORKGROUP>;

// Adds up the first `vectors` quads of all lanes; lane 0 has the sums.
fn sum_columns(thread: u32, vectors: u32) {
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half = half >> 1u) {
        if (thread < half * COLUMNS) {
            for (var j = 0u; j < vectors; j++) {
                column_sums[j * WORKGROUP + thread] += column_sums[j * WORKGROUP + thread + half * COLUMNS];
            }
        }
        workgroupBarrier();
    }
}
