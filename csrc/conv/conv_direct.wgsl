// Convolutions whose groups have few channels, and their gradients: the contraction of conv_output.wgsl without tiles, which groups would
// leave mostly empty. Columns are those of all groups. A thread computes a quad of the output, each element in one chain over a part of
// the terms. Terms outside of the image are not there.
@compute @workgroup_size(WORKGROUP)
fn conv_direct(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = workgroup.y * params.groups_x + workgroup.x;
    if (group >= params.groups) {
        return;
    }
    // 1. The quad of this thread: lines are rows of the output, or its columns.
    let are_rows = params.quads_are_rows != 0u;
    let line_quads = (select(params.n, params.m, are_rows) + 3u) / 4u;
    let lines = select(params.m, params.n, are_rows);
    let quad = group * WORKGROUP + thread;
    let part = quad / line_quads / lines;
    if (part >= params.parts) {
        return;
    }
    let line = quad / line_quads % lines;
    let first = quad % line_quads * 4u;
    let m = select(line, first, are_rows);
    let n = select(first, line, are_rows);

    // 2. What its elements contribute. Past the last, the last one again.
    let slots = vec4<u32>(0u, 1u, 2u, 3u);
    let rows = min(vec4<u32>(m) + select(vec4<u32>(), slots, are_rows), vec4<u32>(params.m - 1u));
    let columns = min(vec4<u32>(n) + select(slots, vec4<u32>(), are_rows), vec4<u32>(params.n - 1u));
    let of_group = vec4<u32>(params.n / params.channel_groups);
    let channel_group = columns / of_group;
    let plain_at = channel_group * params.plain_group + columns % of_group * params.plain_column;
    var places = row_places(rows);
    places.at += channel_group * params.gathered_group;

    // 3. Sums.
    let start = part * params.part_terms;
    let end = min(start + params.part_terms, params.terms);
    var digits = digits_of(start, params.term_digits);
    var sums = vec4<f32>();
    for (var term = start; term < end; term++) {
        let tuple = tuple_of(digits, params.terms_lead_last);
        let place = vec3<i32>(tuple.yzw) * params.of_term.xyz;
        let found = found_at(places, tuple.x * params.term_lead, place.x, place.y, place.z, vec4<bool>(true));
        if (any(found.is_there)) {
            let at = found.at;
            let gathered = vec4<f32>(gathered_of(at.x), gathered_of(at.y), gathered_of(at.z), gathered_of(at.w));
            let i = plain_at + vec4<u32>(with_strides(digits, params.plain_strides));
            let plain = vec4<f32>(plain_of(i.x), plain_of(i.y), plain_of(i.z), plain_of(i.w));
            sums = select(sums, fma(gathered, plain, sums), found.is_there);
        }
        digits = plus_digits(digits, params.term_step, params.term_digits);
    }
    finish_quad(part, 0u, m, n, sums);
}
