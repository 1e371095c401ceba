// Contiguous segments, last dispatch: dx and dresidual. segment_means and put_remaining come from channel_norm_backward_apply_known, or from
// channel_norm_backward_apply_merging and channel_norm_backward_merge_held.
//
// Slices are taken in reverse order: what the sums read last may still be in a cache.
@compute @workgroup_size(WORKGROUP)
fn channel_norm_backward_apply(at: Invocation) {
    let thread = thread_index(at);
    let group = at.workgroup.y * params.groups_x + at.workgroup.x;
    let items = params.batch * params.channels * params.slices;
    let last = (items - 1u) / TEAMS;
    if (group > last) {
        put_remaining(at, thread, group - last - 1u);
        return;
    }
    let slice = slice_of((last - group) * TEAMS + team_of(thread), thread);
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
    let means = segment_means(at, thread, slice);
    let weight = vec4<f32>(weight_of(slice.channel));
    let bias = vec4<f32>(bias_of(slice.channel));
    let dx_start = segment_start(slice, params.dx);
    let dresidual_start = segment_start(slice, params.dresidual);
    for (var k = 0u; k < CHUNKS; k++) {
        let first = slice.first + k * THREADS * ELEMENTS;
        let count = count_before(slice.end, first);
        if (count > 0u) {
            var dx: array<vec4<f32>, QUADS>;
            var dresidual: array<vec4<f32>, QUADS>;
            for (var part = 0u; part < QUADS; part++) {
                let xhat = (quad(held_x[k], part) - means.z) * means.w;
                let dpre = pre_gradient(quad(held_dy[k], part), xhat, quad(held_saved[k], part), weight, bias);
                dresidual[part] = dpre;
                dx[part] = input_gradient(dpre, xhat, weight, vec4<f32>(means.w), vec4<f32>(means.x), vec4<f32>(means.y));
            }
            if (HAS_dx) {
                dx_store(dx_start + first, count, chunk_of(dx));
            }
            if (HAS_dresidual) {
                dresidual_store(dresidual_start + first, count, chunk_of(dresidual));
            }
        }
    }
}
