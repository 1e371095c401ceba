// Forms split_merge and split_fused, first dispatch: sum(dpre) and sum(dpre * xhat) of each slice.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_split_sums(at: Invocation) {
    let thread = thread_index(at);
    let slice = slice_of((at.workgroup.y * params.groups_x + at.workgroup.x) * TEAMS + team_of(thread), thread);
    let dy_start = segment_start(slice, params.dy);
    let x_start = segment_start(slice, params.x);
    let saved_start = segment_start(slice, saved_strides());
    var held_dy: array<vec4<u32>, CHUNKS>;
    var held_x: array<vec4<u32>, CHUNKS>;
    var held_saved: array<vec4<u32>, CHUNKS>;
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = count_before(slice.end, first);
        if (count > 0u) {
            held_dy[k] = dy_load(dy_start + first, count);
            held_x[k] = x_load(x_start + first, count);
            held_saved[k] = saved_load(saved_start + first, count);
        }
    }
    let statistics = statistics_of(slice.batch, slice.channel);
    let weight = vec4<f32>(weight_of(slice.channel));
    let bias = vec4<f32>(bias_of(slice.channel));
    var sum = vec4<f32>();
    var product = vec4<f32>();
    for (var k = 0u; k < CHUNKS; k++) {
        let count = count_before(slice.end, slice.first + k * THREADS * ELEMENTS);
        if (count > 0u) {
            for (var part = 0u; part < QUADS; part++) {
                let xhat = (quad(held_x[k], part) - statistics.x) * statistics.y;
                let dpre = keep(pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), weight, bias), part, count);
                sum += dpre;
                product += dpre * keep(xhat, part, count);
            }
        }
    }
    let sums = row_sums(at, vec2<f32>(add_up(sum), add_up(product)), 0u);
    if (slice.end > 0u && thread % THREADS == 0u) {
        sums_write(part_of(slice.batch, slice.channel, slice.index), vec4<f32>(sums, 0.0, 0.0));
    }
}
