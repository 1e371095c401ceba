// Form persistent: a contiguous group in the registers of a workgroup, which takes one group after the other and loads the next one while it
// computes (PREFETCH). What is done with a chunk is written out MOST_CHUNKS times: drivers keep an array in memory instead of registers if a
// loop with so many instructions indexes it.
const MOST_CHUNKS: u32 = 5u; // chunks that the text is written out for: the most that a thread of PERSISTENT in team.rs has, CHUNKS

var<private> chunks: array<vec4<u32>, MOST_CHUNKS>;
var<private> ahead: array<vec4<u32>, MOST_CHUNKS>;

fn place_at(k: u32, thread: u32, group: u32) -> Place {
    return place_of(min(group, params.group_count - 1u), thread + k * THREADS, k < CHUNKS && group < params.group_count);
}

fn read_chunk(k: u32, thread: u32, group: u32) -> vec4<u32> {
    let place = place_at(k, thread, group);
    if (place.count == 0u) {
        return vec4<u32>();
    }
    return x_load(start_of(place, params.x), place.count);
}

fn read_ahead(thread: u32, group: u32) {
    ahead[0] = read_chunk(0u, thread, group);
    ahead[1] = read_chunk(1u, thread, group);
    ahead[2] = read_chunk(2u, thread, group);
    ahead[3] = read_chunk(3u, thread, group);
    ahead[4] = read_chunk(4u, thread, group);
}

// Elements past the end of the chunk were loaded as 0.
fn chunk_sum(k: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var part = 0u; part < QUADS; part++) {
        sum += quad(chunks[k], part);
    }
    return sum;
}

// The sums of the differences from `shift` and of their squares.
fn chunk_moments(k: u32, thread: u32, group: u32, shift: f32) -> mat2x4<f32> {
    let count = place_at(k, thread, group).count;
    var sums = mat2x4<f32>();
    for (var part = 0u; part < QUADS; part++) {
        let d = quad(chunks[k], part) - within(shift, part, count);
        sums[0] += d;
        sums[1] += d * d;
    }
    return sums;
}

fn store_chunk(k: u32, thread: u32, group: u32, statistics: Statistics) {
    let place = place_at(k, thread, group);
    if (place.count == 0u) {
        return;
    }
    let weight = vec4<f32>(weight_of(place.channel));
    let bias = vec4<f32>(bias_of(place.channel));
    var addend: vec4<u32>;
    if (HAS_residual) {
        addend = residual_load(start_of(place, params.residual), place.count);
    }
    var y: array<vec4<f32>, QUADS>;
    for (var part = 0u; part < QUADS; part++) {
        let d = (quad(chunks[k], part) - statistics.shift) - statistics.correction;
        y[part] = finish_quad(d * statistics.rstd, weight, bias, quad(addend, part));
    }
    y_store(start_of(place, params.y), place.count, chunk_of(y));
}

@compute @workgroup_size(WORKGROUP)
fn channel_norm_persistent(at: Invocation) {
    let thread = thread_index(at);
    read_ahead(thread, at.workgroup.x);
    for (var group = at.workgroup.x; group < params.group_count; group += params.groups_x) {
        chunks = ahead;
        if (PREFETCH) {
            read_ahead(thread, group + params.groups_x);
        }
        // Each thread scales its own sum: from totals that are scaled later a compiler could take out the common factor, and so merge mean and correction.
        let sum = ((chunk_sum(0u) + chunk_sum(1u)) + (chunk_sum(2u) + chunk_sum(3u))) + chunk_sum(4u);
        let shift = row_sum(at, add_up(sum) * params.reciprocal_count, 0u);
        var sums = chunk_moments(0u, thread, group, shift);
        sums += chunk_moments(1u, thread, group, shift);
        sums += chunk_moments(2u, thread, group, shift);
        sums += chunk_moments(3u, thread, group, shift);
        sums += chunk_moments(4u, thread, group, shift);
        let moments = row_sums(at, vec2<f32>(add_up(sums[0]), add_up(sums[1])) * params.reciprocal_count, 1u);
        let statistics = finish_statistics(shift, moments.x, moments.y);
        if (thread == 0u) {
            save_statistics(group, statistics);
        }
        store_chunk(0u, thread, group, statistics);
        store_chunk(1u, thread, group, statistics);
        store_chunk(2u, thread, group, statistics);
        store_chunk(3u, thread, group, statistics);
        store_chunk(4u, thread, group, statistics);
    }
}
