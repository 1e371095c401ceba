// A contiguous group in the registers of THREADS threads.

// The thread's chunk number k.
struct Place {
    batch: u32,
    channel: u32,
    first: u32, // in its segment
    count: u32,
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

@compute @workgroup_size(WORKGROUP)
fn channel_norm_resident(at: Invocation) {
    let thread = thread_index(at);
    let team = (at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread);
    let group = min(team, params.group_count - 1u);
    let is_group = team == group;
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, is_group);
        counts[k] = place.count;
        chunks[k] = vec4<u32>();
        if (place.count > 0u) {
            chunks[k] = x_load(start_of(place, params.x), place.count);
        }
    }
    // Scaled before the threads meet: a compiler could merge products of sums, and with them the mean and its correction.
    let shift = row_sum(at, thread_sum() * params.reciprocal_count, 0u);
    let moments = row_sums(at, thread_moments(shift) * params.reciprocal_count, 1u);
    let statistics = finish_statistics(shift, moments.x, moments.y);
    if (is_group && thread % THREADS == 0u) {
        save_statistics(group, statistics);
    }
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, is_group);
        if (place.count > 0u) {
            let weight = vec4<f32>(weight_of(place.channel));
            let bias = vec4<f32>(bias_of(place.channel));
            var addend: vec4<u32>;
            if (HAS_residual) {
                addend = residual_load(start_of(place, params.residual), place.count);
            }
            var y: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                var d: vec4<f32>;
                if (UNPACKED) {
                    d = values[k * QUADS + part];
                } else {
                    d = quad(chunks[k], part) - shift;
                }
                let xhat = (d - statistics.correction) * statistics.rstd;
                y[part] = finish_quad(xhat, weight, bias, quad(addend, part));
            }
            y_store(start_of(place, params.y), place.count, chunk_of(y));
        }
    }
}
