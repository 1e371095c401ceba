// The epilogue of outputs and of gradients: out = act(sums) + beta * out, where sums include the bias. If pre is an operand (beside), it gets
// the sums.
fn put_quad(out_at: u32, pre_at: u32, count: u32, sums: vec4<f32>) -> vec4<f32> {
    if (params.has_beside != 0u) {
        pre_put_line(pre_at, params.beside_n, count, sums);
    }
    var out = activate(params.activation, sums);
    if (is_nonzero(params.beta)) {
        out += times_before(params.beta, out_line(out_at, params.out_n, count));
    }
    out_put_line(out_at, params.out_n, count, out);
    return vec4<f32>();
}
