// Form resident: a contiguous group in the registers of a team of THREADS threads. A team whose group is a channel writes its dweight and dbias
// too. Otherwise the workgroups past those of the groups do, CHANNELS channels each, which read dy and x a second time; if dx lies in the place
// of dy, they come in a dispatch before.
// Chunks of a channel, of each tensor, that a thread loads before it uses the first. More would hide more latency, but drivers move longer arrays from
// registers to memory.
const BATCH: u32 = 4u;
const HELD: u32 = max(CHUNKS, BATCH); // chunks of each tensor that a thread has in registers: of its group, or of a channel

// dweight and dbias of CHANNELS channels, by all threads of a workgroup.
fn put_channels(at: Invocation, block: u32) {
    let segment_chunks = (params.spatial + ELEMENTS - 1u) / ELEMENTS;
    let chunks = params.batch * segment_chunks;
    for (var first = 0u; first < CHANNELS; first += WORKGROUP / member_count(at)) {
        let number = block * CHANNELS + first + members_number(at);
        let channel = min(number, params.channels - 1u);
        var total = vec2<f32>();
        for (var base = member_index(at); base < chunks; base += BATCH * member_count(at)) {
            var counts: array<u32, BATCH>;
            var groups: array<u32, BATCH>;
            for (var k = 0u; k < BATCH; k++) {
                let chunk = base + k * member_count(at);
                let batch = chunk / segment_chunks;
                let first_element = (chunk - batch * segment_chunks) * ELEMENTS;
                counts[k] = select(0u, count_before(params.spatial, first_element), chunk < chunks);
                groups[k] = group_of(min(batch, params.batch - 1u), channel);
                hold_place(k, Place(batch, channel, first_element, counts[k]));
            }
            for (var k = 0u; k < BATCH; k++) {
                if (counts[k] > 0u) {
                    total += segment_chunk_sums(k, counts[k], terms_of(channel, vec4<f32>(0.0, 0.0, statistics_of_group(groups[k]))));
                }
            }
        }
        let sums = members_sums(at, total, 0u);
        if (number == channel && member_index(at) == 0u) {
            put_parameters(channel, sums);
        }
    }
}

fn hold_place(k: u32, place: Place) {
    if (place.count > 0u) {
        hold(k, start_of(place, params.dy), start_of(place, params.x), start_of(place, saved_strides()), place.count);
    }
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_resident(at: Invocation) {
    let thread = thread_index(at);
    let workgroup = params.first_workgroup + at.workgroup.y * params.groups_x + at.workgroup.x;
    let workgroups = (params.group_count + TEAMS - 1u) / TEAMS;
    if (workgroup >= workgroups) {
        put_channels(at, workgroup - workgroups);
        return;
    }
    // 1. The chunks.
    let team = workgroup * TEAMS + team_of(thread);
    let group = min(team, params.group_count - 1u);
    for (var k = 0u; k < CHUNKS; k++) {
        hold_place(k, place_of(group, thread % THREADS + k * THREADS, team == group));
    }
    // 2. The sums.
    let statistics = statistics_of_group(group);
    var total = vec2<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, team == group);
        if (place.count > 0u) {
            var weight = 1.0;
            if (HAS_weight && !GROUPS_ARE_CHANNELS) {
                weight = weight_of(place.channel);
            }
            total += weight * segment_chunk_sums(k, place.count, terms_of(place.channel, vec4<f32>(0.0, 0.0, statistics)));
        }
    }
    let sums = row_sums(at, total, 0u);
    if (GROUPS_ARE_CHANNELS && team == group && thread % THREADS == 0u) {
        put_parameters(group, sums);
    }
    // 3. dx and dresidual.
    let means = vec4<f32>(means_from(sums, group), statistics);
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, team == group);
        if (place.count > 0u) {
            put_segment_chunk(k, place.count, terms_of(place.channel, means), start_of(place, params.dx), start_of(place, params.dresidual));
        }
    }
}
