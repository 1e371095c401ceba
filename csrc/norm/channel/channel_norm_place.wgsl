// Where a chunk of a contiguous group lies. The chunks of a group are numbered through its segments, each of which begins with a new chunk.
struct Place {
    batch: u32,
    channel: u32,
    first: u32, // its first element in the segment
    count: u32, // its elements; 0 past the end of the group
}

fn place_of(group: u32, chunk: u32, is_group: bool) -> Place {
    let segment_chunks = (params.spatial + ELEMENTS - 1u) / ELEMENTS;
    let segment = select(0u, chunk / segment_chunks, params.group_segments > 1u);
    let first = (chunk - segment * segment_chunks) * ELEMENTS;
    let count = select(0u, count_before(params.spatial, first), is_group && segment < params.group_segments);
    if (GROUPS_ARE_CHANNELS) {
        return Place(segment, group, first, count);
    }
    return Place(group / params.groups, group % params.groups * params.group_channels + segment, first, count);
}

fn start_of(place: Place, strides: vec3<u32>) -> u32 {
    return place.batch * strides.x + place.channel * strides.y + place.first;
}
