// Convolutions whose groups have few channels, and their gradients: the contraction of conv_output.wgsl without tiles, which groups of
// few channels would leave mostly empty. Columns are counted through all groups. A thread computes a quad of the output, each element in chains over
// a part of the terms and one more of these chains. Elements outside the image add no term.
@compute @workgroup_size(WORKGROUP)
fn conv_direct(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    // 1. The quad of this thread, in its part of the terms.
    let quad = quad_of(workgroup * WORKGROUP + thread);
    let part = quad.matrix;
    if (part >= params.parts) {
        return;
    }

    // 2. What its elements' rows and columns contribute. Indices past the last row or column are replaced by the last.
    let are_rows = params.quads_are_rows != 0u;
    let slots = vec4<u32>(0u, 1u, 2u, 3u);
    let rows = min(vec4<u32>(quad.m) + select(vec4<u32>(), slots, are_rows), vec4<u32>(params.m - 1u));
    let columns = min(vec4<u32>(quad.n) + select(slots, vec4<u32>(), are_rows), vec4<u32>(params.n - 1u));
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
    var chains = vec4<f32>();
    var chain_end = start + params.chain;
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
        if (term + 1u == chain_end) {
            chains += sums;
            sums = vec4<f32>();
            chain_end += params.chain;
        }
        digits = plus_digits(digits, params.term_step, params.term_digits);
    }
    finish_quad(part, 0u, quad.m, quad.n, chains + sums);
}
