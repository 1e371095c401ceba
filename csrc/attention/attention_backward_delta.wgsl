// What the gradients of attention read of each query, lse and the sum of dy y, and behind those of all queries the number of keys of each sample.
@compute @workgroup_size(THREADS)
fn attention_backward_delta(at: Invocation) {
    let number = (at.workgroup.y * params.groups_x + at.workgroup.x) * THREADS + at.index;
    let rows = params.samples * params.heads * params.queries;
    if (number < rows) {
        let query = number % params.queries;
        let head = number / params.queries % params.heads;
        let sample = number / params.queries / params.heads;
        let y = matrix_of(Y, sample, head);
        let dy = matrix_of(DY, sample, head);
        let lse = matrix_of(LSE, sample, head);
        var sum = 0.0;
        for (var first = 0u; first < params.value_depth; first += 16u) {
            var chain = 0.0;
            for (var column = first; column < min(first + 16u, params.value_depth); column++) {
                chain += value_of(y_bits(y.base + query * y.row + column * y.column)) * value_of(dy_bits(dy.base + query * dy.row + column * dy.column));
            }
            sum += chain;
        }
        let bits = lse_bits(lse.base + query * lse.row);
        // A query that sees no key has no gradients, whatever dy holds.
        stats_scatter(2u * number, 1u, 2u, vec4<u32>(bits, select(bitcast<u32>(sum), 0u, bits == 0xff800000u), 0u, 0u));
    } else if (number - rows < params.samples) {
        stats_scatter(rows + number, 1u, 1u, vec4<u32>(length_of(number - rows), 0u, 0u, 0u));
    }
}
