// Contiguous segments in slices of SLICE elements, one for each team.
const SLICE: u32 = THREADS * CHUNKS * ELEMENTS; // elements that the registers of a team hold

struct Slice {
    batch: u32,
    channel: u32,
    index: u32, // of the slice in its segment
    first: u32, // the thread's first element in the segment
    end: u32, // of the slice in its segment; 0 for a team without a slice
    count: u32, // elements of the slice
}

fn slice_of(team: u32, thread: u32) -> Slice {
    let items = params.batch * params.channels * params.slices;
    let item = min(team, items - 1u);
    let segment = item / params.slices;
    let index = item % params.slices;
    let end = min((index + 1u) * SLICE, params.spatial);
    return Slice(
        segment / params.channels,
        segment % params.channels,
        index,
        index * SLICE + thread % THREADS * ELEMENTS,
        select(0u, end, team < items),
        end - index * SLICE,
    );
}

// Where a slice's segment starts in a tensor.
fn segment_start(slice: Slice, strides: vec3<u32>) -> u32 {
    return slice.batch * strides.x + slice.channel * strides.y;
}
