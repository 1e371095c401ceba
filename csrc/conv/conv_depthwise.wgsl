// Depthwise convolutions, forward and the gradient of the data: windows slide down a strip, and complete rows of sums go through the epilogue of
// gemm_output.wgsl to the output.

// Sums of the output rows whose windows contain the last row read: entry i is complete after i more rows.
alias Sums = array<Strip, MOST_TAPS>;

// Stores a quad of a strip, if the strip has it and it is within the output.
fn put(place: Place, quad: u32, out_at: u32, beside_at: u32, sums: vec4<f32>) {
    let column = quad * QUAD_COLUMNS;
    if (quad < STRIP && place.column + column < params.columns) {
        let count = quad_count(place, place.column + column);
        put_quad(out_at + column * params.out.column, beside_at + column * params.beside.column, count, sums);
    }
}

@compute @workgroup_size(WORKGROUP)
fn conv_depthwise(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let workgroup = workgroup_id.y * params.groups_x + workgroup_id.x;
    if (workgroup >= params.groups) {
        return;
    }
    // 1. The strip, the weight of its channels, and their bias.
    let place = place_of(workgroup, thread, 0u);
    let weight = held_weight(workgroup, thread, place);
    if (!place.is_there) {
        return;
    }
    let bias = bias_from(place);
    let rows = vec2<u32>(params.out.row, params.beside.row);
    var at = vec2<u32>(start_of(place, params.out), start_of(place, params.beside));
    // 2. One row of the gathered factor at a time, while the next one is being loaded.
    let seen = rows_seen(place);
    var next = seen_row(place, 0u);
    var sums = Sums();
    for (var index = 0u; index < seen; index++) {
        let row = next;
        next = seen_row(place, index + 1u);
        sums = plus_row(sums, place, row, weight);
        if (index + 1u >= KERNEL_ROWS) {
            let complete = sums[0];
            put(place, 0u, at.x, at.y, complete[0] + bias);
            put(place, 1u, at.x, at.y, complete[1] + bias);
            put(place, 2u, at.x, at.y, complete[2] + bias);
            put(place, 3u, at.x, at.y, complete[3] + bias);
            at += rows;
        }
    }
}
