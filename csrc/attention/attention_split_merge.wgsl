// Merges the parts of each query in their order: a workgroup has a query, a thread some columns of its output.
@compute @workgroup_size(THREADS)
fn attention_split_merge(at: Invocation) {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let rows = params.samples * params.heads * params.queries;
    if (number >= rows) {
        return;
    }
    let query = number % params.queries;
    let head = number / params.queries % params.heads;
    let sample = number / params.queries / params.heads;
    let parts = params.split.x;
    let first = rows * parts * params.value_depth + 3u * number * parts;
    // 1. The largest score.
    var top = LEAST;
    for (var part = 0u; part < parts; part++) {
        top = max(top, bitcast<f32>(of_parts_bits(first + 3u * part)));
    }
    // 2. Sums about it.
    var sums = vec2<f32>();
    var total = 0.0;
    var improper = 0u;
    for (var part = 0u; part < parts; part++) {
        let about = bitcast<f32>(of_parts_bits(first + 3u * part));
        let factor = exponential(vec4<f32>(max(about - top, -100.0))).x;
        total += factor * bitcast<f32>(of_parts_bits(first + 3u * part + 1u));
        improper |= of_parts_bits(first + 3u * part + 2u);
        let place = (number * parts + part) * params.value_depth;
        for (var j = 0u; j < 2u; j++) {
            let column = at.index + THREADS * j;
            if (column < params.value_depth) {
                sums[j] += factor * bitcast<f32>(of_parts_bits(place + column));
            }
        }
    }
    // 3. The outputs.
    let to = matrix_of(Y, sample, head);
    for (var j = 0u; j < 2u; j++) {
        let column = at.index + THREADS * j;
        if (column < params.value_depth) {
            var value = select(sums[j] / total, 0.0, total == 0.0);
            value = select(value, no_number(), improper != 0u);
            y_scatter(to.base + query * to.row + column * to.column, 1u, 1u, vec4<u32>(bits_of(value), 0u, 0u, 0u));
        }
    }
    if (HAS_LSE && at.index == 0u) {
        var value = top + logarithm(vec4<f32>(max(total, 1e-30))).x;
        value = select(value, unseen(), total == 0.0);
        value = select(value, no_number(), improper != 0u);
        let of_lse = matrix_of(LSE, sample, head);
        put_lse(of_lse.base + query * of_lse.row, bitcast<u32>(value));
    }
}
