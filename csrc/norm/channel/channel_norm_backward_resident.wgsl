// Form resident: a contiguous group in the registers of a team of THREADS threads. A team whose group is a channel writes its dweight and dbias
// too. Otherwise the workgroups past those of the groups do, CHANNELS channels each, which read dy and x a second time; if dx lies in the place
// of dy, they come in a dispatch before.
// It does not hold chunks through channel_norm_backward_held: with that file's functions, dx of 3 chunks of 16-bit elements a thread took 4 % longer
// on an H200.

// Chunks of a channel, of each tensor, that a thread loads before it uses the first. More would hide more latency, but drivers move longer arrays from
// registers to memory.
const BATCH: u32 = 4u;

var<private> held_dy: array<vec4<u32>, CHUNKS>;
var<private> held_x: array<vec4<u32>, CHUNKS>;
var<private> held_saved: array<vec4<u32>, CHUNKS>;

// sum(dpre) and sum(dpre * xhat) of a chunk.
fn chunk_sums(dy: vec4<u32>, x: vec4<u32>, saved: vec4<u32>, count: u32, channel: u32, statistics: vec2<f32>) -> vec2<f32> {
    let weight = vec4<f32>(weight_of(channel));
    let bias = vec4<f32>(bias_of(channel));
    var sum = vec4<f32>();
    var product = vec4<f32>();
    for (var part = 0u; part < QUADS; part++) {
        let xhat = (quad(x, part) - statistics.x) * statistics.y;
        let dpre = keep(pre_gradient(quad(dy, part), xhat, quad(saved, part), weight, bias), part, count);
        sum += dpre;
        product += dpre * keep(xhat, part, count);
    }
    return vec2<f32>(add_up(sum), add_up(product));
}

// dweight and dbias of CHANNELS channels, by all threads of a workgroup.
fn put_channels(at: Invocation, block: u32) {
    let segment_chunks = (params.spatial + ELEMENTS - 1u) / ELEMENTS;
    let chunks = params.batch * segment_chunks;
    for (var first = 0u; first < CHANNELS; first += WORKGROUP / member_count(at)) {
        let number = block * CHANNELS + first + members_number(at);
        let channel = min(number, params.channels - 1u);
        var total = vec2<f32>();
        for (var base = member_index(at); base < chunks; base += BATCH * member_count(at)) {
            var dy: array<vec4<u32>, BATCH>;
            var x: array<vec4<u32>, BATCH>;
            var saved: array<vec4<u32>, BATCH>;
            var counts: array<u32, BATCH>;
            var groups: array<u32, BATCH>;
            for (var k = 0u; k < BATCH; k++) {
                let chunk = base + k * member_count(at);
                let batch = chunk / segment_chunks;
                let first_element = (chunk - batch * segment_chunks) * ELEMENTS;
                counts[k] = select(0u, count_before(params.spatial, first_element), chunk < chunks);
                groups[k] = group_of(min(batch, params.batch - 1u), channel);
                let place = Place(batch, channel, first_element, counts[k]);
                if (counts[k] > 0u) {
                    dy[k] = dy_load(start_of(place, params.dy), counts[k]);
                    x[k] = x_load(start_of(place, params.x), counts[k]);
                    saved[k] = saved_load(start_of(place, saved_strides()), counts[k]);
                }
            }
            for (var k = 0u; k < BATCH; k++) {
                if (counts[k] > 0u) {
                    total += chunk_sums(dy[k], x[k], saved[k], counts[k], channel, statistics_of_group(groups[k]));
                }
            }
        }
        let sums = members_sums(at, total, 0u);
        if (number == channel && member_index(at) == 0u) {
            put_parameters(channel, sums);
        }
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
        let place = place_of(group, thread % THREADS + k * THREADS, team == group);
        if (place.count > 0u) {
            held_dy[k] = dy_load(start_of(place, params.dy), place.count);
            held_x[k] = x_load(start_of(place, params.x), place.count);
            held_saved[k] = saved_load(start_of(place, saved_strides()), place.count);
        }
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
            total += weight * chunk_sums(held_dy[k], held_x[k], held_saved[k], place.count, place.channel, statistics);
        }
    }
    let sums = row_sums(at, total, 0u);
    if (GROUPS_ARE_CHANNELS && team == group && thread % THREADS == 0u) {
        put_parameters(group, sums);
    }
    // 3. dx and dresidual.
    let means = means_from(sums, group);
    for (var k = 0u; k < CHUNKS; k++) {
        let place = place_of(group, thread % THREADS + k * THREADS, team == group);
        if (place.count > 0u) {
            let weight = vec4<f32>(weight_of(place.channel));
            let bias = vec4<f32>(bias_of(place.channel));
            var dx: array<vec4<f32>, QUADS>;
            var dresidual: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let xhat = (quad(held_x[k], part) - statistics.x) * statistics.y;
                let dpre = pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), weight, bias);
                dresidual[part] = dpre;
                dx[part] = input_gradient(dpre, xhat, weight, vec4<f32>(statistics.y), vec4<f32>(means.x), vec4<f32>(means.y));
            }
            dx_store(start_of(place, params.dx), place.count, chunk_of(dx));
            if (HAS_dresidual) {
                dresidual_store(start_of(place, params.dresidual), place.count, chunk_of(dresidual));
            }
        }
    }
}
